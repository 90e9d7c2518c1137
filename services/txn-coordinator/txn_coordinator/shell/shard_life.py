"""One owner epoch of a shard of transactions."""

from tidemark.codec.txn_records import TxnRecord, decode, encode
from tidemark.model.topics import TRANSACTION_STATE
from tidemark.runtime.coordinator import shard_life
from tidemark.runtime.coordinator.shard_life import ShardKind, ShardWorld

from txn_coordinator.core.effects import Answer, Effect, SendMarkers
from txn_coordinator.core.requests import Request
from txn_coordinator.core.settings import TxnSettings
from txn_coordinator.core.shard import TxnShard
from txn_coordinator.core.table import TxnStatistics
from txn_coordinator.shell.marker_sender import MarkerSender


class ShardLife(shard_life.ShardLife[Request, TxnRecord, Effect]):
    """One owner epoch of a shard. One task runs ``run``; ``close`` follows it."""

    def __init__(
        self,
        shard: int,
        owner_epoch: int,
        world: ShardWorld,
        *,
        settings: TxnSettings,
        markers: MarkerSender,
    ) -> None:
        kind = ShardKind(TRANSACTION_STATE, lambda: TxnShard(settings), encode, decode)
        super().__init__(shard, owner_epoch, world, kind)
        self._markers = markers

    def statistics(self) -> TxnStatistics | None:
        """Return counts of the state; None while it is not served."""
        state = self._runtime.shard
        return state.statistics() if isinstance(state, TxnShard) else None

    def _perform(self, effect: Effect) -> None:
        match effect:
            case Answer(to, reply):
                self._runtime.answer(to, reply)
            case SendMarkers():
                self._markers.send(self._shard, self._owner_epoch, effect)
