"""One owner epoch of a shard: its log, its state, and the ``ShardRuntime`` that runs both."""

import logging
from collections.abc import Callable
from dataclasses import dataclass

from tidemark.codec.txn_records import TxnRecord, decode, encode
from tidemark.model.backoff import Dice
from tidemark.model.errors import ErrorCode, TidemarkError
from tidemark.model.topics import TRANSACTION_STATE, TopicPartition
from tidemark.runtime.channel_pool import ChannelPool
from tidemark.runtime.clock import Clock
from tidemark.runtime.metadata_cache import MetadataCache
from tidemark.runtime.partition_log import LogLimits, RemotePartitionLog
from tidemark.runtime.shard_runtime import ShardRuntime
from tidemark.runtime.telemetry import fields

from txn_coordinator.config import SERVICE, TxnCoordinatorConfig
from txn_coordinator.core.effects import Answer, Effect, SendMarkers
from txn_coordinator.core.requests import Reply, Request
from txn_coordinator.core.settings import TxnSettings
from txn_coordinator.core.shard import TxnShard
from txn_coordinator.core.table import TxnStatistics
from txn_coordinator.shell.marker_sender import MarkerSender

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ShardWorld:
    """Objects that all shards of one replica share."""

    metadata: MetadataCache
    channels: ChannelPool
    clock: Clock
    markers: MarkerSender
    settings: TxnSettings
    config: TxnCoordinatorConfig
    observe_load_s: Callable[[float], None]
    dice: Dice


class ShardLife:
    """One owner epoch of a shard. One task runs ``run``; ``close`` follows it."""

    def __init__(self, shard: int, owner_epoch: int, world: ShardWorld) -> None:
        config = world.config
        self._began = world.clock.now_ms()
        self._world = world
        self._shard = shard
        self._owner_epoch = owner_epoch
        self._requests_max = config.shard_requests_waiting_max
        self._log = RemotePartitionLog(
            TopicPartition(TRANSACTION_STATE, shard),
            world.metadata,
            world.channels,
            owner_epoch=owner_epoch,
            client_id=f"{SERVICE}-{config.coordinator_id}",
            limits=LogLimits(append_timeout_ms=config.transaction_state_log_append_timeout_ms),
            dice=world.dice,
        )
        self._runtime: ShardRuntime[Request, TxnRecord, Effect] = ShardRuntime(
            lambda: TxnShard(world.settings),
            self._log,
            encode=encode,
            decode=decode,
            clock=world.clock,
            perform=self._perform,
            on_loaded=self._loaded,
        )

    @property
    def is_serving(self) -> bool:
        """True if the whole log is replayed."""
        return self._runtime.is_serving

    @property
    def waiting_count(self) -> int:
        """Number of requests that are not answered yet."""
        return self._runtime.waiting_count

    def statistics(self) -> TxnStatistics | None:
        """Return counts of the state; None while it is not served."""
        state = self._runtime.shard
        return state.statistics() if isinstance(state, TxnShard) else None

    async def run(self) -> None:
        """Load, then serve until cancelled. Raises TidemarkError, or a group of them, when the
        state is dropped.
        """
        await self._runtime.run()

    async def ask(self, request: Request) -> Reply:
        """Return the reply to a request. Raises TidemarkError."""
        if self._runtime.waiting_count >= self._requests_max:
            raise TidemarkError(
                ErrorCode.COORDINATOR_NOT_AVAILABLE,
                f"{self._requests_max} requests wait for shard {self._shard}",
            )
        reply: Reply = await self._runtime.ask(request)
        return reply

    def submit(self, request: Request) -> None:
        """Take a request that has no reply."""
        self._runtime.submit(request)

    def close(self) -> None:
        """Close the log."""
        self._log.close()

    def _loaded(self) -> None:
        took_ms = self._world.clock.now_ms() - self._began
        self._world.observe_load_s(took_ms / 1_000)
        words = fields(shard=self._shard, owner_epoch=self._owner_epoch, took_ms=took_ms)
        log.info("shard serving", extra=words)

    def _perform(self, effect: Effect) -> None:
        match effect:
            case Answer(to, reply):
                self._runtime.answer(to, reply)
            case SendMarkers():
                self._world.markers.send(self._shard, self._owner_epoch, effect)
