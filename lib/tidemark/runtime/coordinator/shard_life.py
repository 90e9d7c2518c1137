"""One owner epoch of a shard: its log, its state, and the ``ShardRuntime`` that runs both."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from tidemark.model.backoff import Dice
from tidemark.model.errors import ErrorCode, TidemarkError
from tidemark.model.topics import TopicPartition
from tidemark.protocol.shard import Shard
from tidemark.runtime.channel_pool import ChannelPool
from tidemark.runtime.clock import Clock
from tidemark.runtime.metadata_cache import MetadataCache
from tidemark.runtime.partition_log import LogLimits, RemotePartitionLog
from tidemark.runtime.shard_runtime import Decode, Encode, ShardRuntime
from tidemark.runtime.telemetry import fields

log = logging.getLogger(__name__)

RequestT = TypeVar("RequestT")
RecordT = TypeVar("RecordT")
EffectT = TypeVar("EffectT")


@dataclass(frozen=True, slots=True)
class ShardWorld:
    """Objects that all shards of one replica share."""

    metadata: MetadataCache
    channels: ChannelPool
    clock: Clock
    dice: Dice
    client_id: str
    append_timeout_ms: int
    requests_waiting_max: int
    observe_load_s: Callable[[float], None]
    linger_ms: int = 0


@dataclass(frozen=True, slots=True)
class ShardKind(Generic[RequestT, RecordT, EffectT]):
    """Topic, records and state of the shards of one service."""

    topic: str
    make_shard: Callable[[], Shard[RequestT, RecordT, EffectT]]
    encode: Encode[RecordT]
    decode: Decode[RecordT]


class ShardLife(Generic[RequestT, RecordT, EffectT]):
    """One owner epoch of a shard. One task runs ``run``; ``close`` follows it."""

    def __init__(
        self,
        shard: int,
        owner_epoch: int,
        world: ShardWorld,
        kind: ShardKind[RequestT, RecordT, EffectT],
    ) -> None:
        self._began = world.clock.now_ms()
        self._world = world
        self._shard = shard
        self._owner_epoch = owner_epoch
        self._log = RemotePartitionLog(
            TopicPartition(kind.topic, shard),
            world.metadata,
            world.channels,
            owner_epoch=owner_epoch,
            client_id=world.client_id,
            limits=LogLimits(append_timeout_ms=world.append_timeout_ms),
            dice=world.dice,
        )
        self._runtime: ShardRuntime[RequestT, RecordT, EffectT] = ShardRuntime(
            kind.make_shard,
            self._log,
            encode=kind.encode,
            decode=kind.decode,
            clock=world.clock,
            perform=self._perform,
            linger_ms=world.linger_ms,
            on_loaded=self._loaded,
        )

    def _perform(self, effect: EffectT) -> None:
        """Perform an effect of a decision that is committed."""
        raise NotImplementedError

    @property
    def is_serving(self) -> bool:
        """True if the whole log is replayed."""
        return self._runtime.is_serving

    @property
    def waiting_count(self) -> int:
        """Number of requests that are not answered yet."""
        return self._runtime.waiting_count

    async def run(self) -> None:
        """Load, then serve until cancelled. Raises TidemarkError, or a group of them, when the
        state is dropped.
        """
        await self._runtime.run()

    async def ask(self, request: RequestT) -> Any:
        """Return the reply to a request. Raises TidemarkError."""
        requests_max = self._world.requests_waiting_max
        if self._runtime.waiting_count >= requests_max:
            raise TidemarkError(
                ErrorCode.COORDINATOR_NOT_AVAILABLE,
                f"{requests_max} requests wait for shard {self._shard}",
            )
        return await self._runtime.ask(request)

    def submit(self, request: RequestT) -> None:
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
