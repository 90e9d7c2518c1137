"""One owner epoch of a shard of share groups."""

import asyncio
import logging
from collections.abc import Mapping
from typing import Final

from tidemark.codec.share_records import ShareRecord, decode, encode
from tidemark.model.backoff import Backoff, RetryDelays
from tidemark.model.errors import ErrorCode, TidemarkError
from tidemark.model.ids import Offset
from tidemark.model.topics import SHARE_GROUP_STATE
from tidemark.runtime.coordinator import shard_life
from tidemark.runtime.coordinator.shard_life import ShardKind, ShardWorld
from tidemark.runtime.telemetry import fields

from share_coordinator.core.effects import (
    Answer,
    DropWindows,
    Effect,
    LoadWindows,
    PruneLog,
    ReleaseGroupId,
    ReserveGroupId,
    TransactionsEnded,
)
from share_coordinator.core.requests import GroupIdReserved, LeadersNotified, Request
from share_coordinator.core.shard import MakeShard, ShareShard
from share_coordinator.core.share_states import Part
from share_coordinator.core.statistics import ShareStatistics
from share_coordinator.shell.broker_calls import BrokerCalls

log = logging.getLogger(__name__)

_BACKOFF: Final = Backoff(200, 60_000)


class ShardLife(shard_life.ShardLife[Request, ShareRecord, Effect]):
    """One owner epoch of a shard. One task runs ``run``; ``close`` follows it."""

    def __init__(
        self,
        shard: int,
        owner_epoch: int,
        world: ShardWorld,
        *,
        make_shard: MakeShard,
        calls: BrokerCalls,
    ) -> None:
        kind = ShardKind(SHARE_GROUP_STATE, make_shard, encode, decode)
        super().__init__(shard, owner_epoch, world, kind)
        self._calls = calls
        self._prune_before = Offset(0)
        self._pruning: asyncio.Task[None] | None = None

    def statistics(self) -> ShareStatistics | None:
        """Return counts of the state; None while it is not served."""
        state = self._runtime.shard
        return state.statistics() if isinstance(state, ShareShard) else None

    def delivered(self) -> Mapping[str, Mapping[Part, int]]:
        """Return the log ends at which lags would be 0; nothing while the state is not served."""
        state = self._runtime.shard
        return state.delivered() if isinstance(state, ShareShard) else {}

    def close(self) -> None:
        """See ShardLife."""
        if self._pruning is not None:
            self._pruning.cancel()
        super().close()

    def _perform(self, effect: Effect) -> None:
        match effect:
            case Answer(to, reply):
                self._runtime.answer(to, reply)
            case ReserveGroupId(group_id):
                self._calls.reserve(
                    group_id,
                    self._owner_epoch,
                    lambda code, message: self.submit(GroupIdReserved(group_id, code, message)),
                )
            case ReleaseGroupId(group_id, then):
                self._calls.release(group_id, self._owner_epoch, lambda: self._perform(then))
            case DropWindows(keys):
                self._calls.drop_windows(keys)
            case LoadWindows(keys):
                self._calls.load_windows(keys)
            case TransactionsEnded(transaction):
                self._calls.transaction_ended(
                    effect, lambda: self.submit(LeadersNotified(transaction))
                )
            case PruneLog(before):
                self._prune(before)

    def _prune(self, before: Offset) -> None:
        self._prune_before = max(self._prune_before, before)
        if self._pruning is None or self._pruning.done():
            self._pruning = self._calls.start(self._delete_old(), f"prune-{self._shard}")

    async def _delete_old(self) -> None:
        """Delete the records that are no longer needed; repeat until it succeeds."""
        delays = RetryDelays(_BACKOFF, self._world.dice)
        pruned = Offset(0)
        while pruned < self._prune_before:
            before = self._prune_before
            words = {"shard": self._shard, "before": before}
            try:
                await self._log.delete_before(before)
            except TidemarkError as failure:
                if failure.code is ErrorCode.TRANSACTION_COORDINATOR_FENCED:
                    return  # the later owner does it
                log.info("state not pruned yet", extra=fields(**words, reason=failure.message))
                await asyncio.sleep(delays.next_s())
            else:
                log.info("state pruned", extra=fields(**words))
                pruned = before
