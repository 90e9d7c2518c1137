"""One replica of a coordinator service: a member of the cluster that serves the shards assigned to
it.
"""

import asyncio
import logging
import random
from collections.abc import Coroutine, Sequence
from typing import Any, Final, Generic, Protocol, TypeVar

from tidemark.model.authorization import Authorizer
from tidemark.model.backoff import Dice
from tidemark.model.metadata_change import Kind, MetadataChange
from tidemark.runtime.channel_pool import ChannelPool
from tidemark.runtime.clock import Clock
from tidemark.runtime.coordinator.config import CoordinatorConfig
from tidemark.runtime.coordinator.metrics import RequestStats
from tidemark.runtime.coordinator.shards import Runtime, Shards
from tidemark.runtime.metadata_cache import MetadataCache
from tidemark.runtime.producer_ids import ProducerIdBlock
from tidemark.runtime.telemetry import fields

log = logging.getLogger(__name__)

LifeT = TypeVar("LifeT", bound=Runtime)

SHARDS: Final = "shards"
"""Subscriber that assigns shards; those of a service come after it."""
_DRAIN_SHARE: Final = 0.4
"""Share of the shutdown deadline that requests under way may take."""


class Membership(Protocol):
    """The part of ``CoordinatorSession`` that a node needs."""

    async def run(self, metadata: MetadataCache) -> None:
        """Join the cluster and follow the metadata, until cancelled."""
        ...

    def problem(self) -> str | None:
        """Return why this replica is no member; None if it is one."""
        ...

    def owned_shards(self) -> frozenset[int]:
        """Return the shards of this process in the newest image."""
        ...

    async def acquire(self, shard: int) -> int:
        """Return a new owner epoch of a shard. Raises TidemarkError."""
        ...

    async def allocate_producer_ids(self) -> ProducerIdBlock:
        """Return a block of producer ids. Raises TidemarkError."""
        ...


class CoordinatorNode(Generic[LifeT]):
    """Object graph of one replica, between its server and its membership.

    A service implements ``open_life``, and may implement ``dropped`` and ``duties``.
    """

    def __init__(
        self,
        kind: str,
        state_topic: str,
        config: CoordinatorConfig,
        clock: Clock,
        stats: RequestStats,
        *,
        channels: ChannelPool | None = None,
        dice: Dice = random.random,
        subscribers: Sequence[str] = (),
    ) -> None:
        """The node closes ``channels``, which go to brokers. ``dice`` spreads retries."""
        self.kind = kind
        self.config = config
        self.clock = clock
        self.stats = stats
        self.authorizer = Authorizer()
        self.metadata = MetadataCache(then=(SHARDS, *subscribers))
        self.metadata.subscribe(SHARDS, Kind.POSITION, self._assign_shards)
        self.channels = ChannelPool() if channels is None else channels
        self.shards: Shards[LifeT] = Shards(
            clock,
            state_topic=state_topic,
            acquire=self._acquire,
            open_runtime=self.open_life,
            on_dropped=self.dropped,
            dice=dice,
        )
        self.drained = asyncio.Event()
        """Set once this replica answers no further requests: streams that are kept end."""
        self._ready = asyncio.Event()
        self._is_stopping = False
        self._session: Membership | None = None

    # -- parts of a service

    def open_life(self, shard: int, owner_epoch: int) -> LifeT:
        """Return the runtime of a shard under an owner epoch."""
        raise NotImplementedError

    def dropped(self, shard: int) -> None:
        """Called with each shard whose state is no longer served."""

    def duties(self) -> Sequence[tuple[str, Coroutine[Any, Any, None]]]:
        """Return tasks to run until the node has drained, with their names."""
        return ()

    # -- life

    def problem(self) -> str | None:
        """Return why this replica is not ready; None if it is, with or without shards."""
        if self._is_stopping:
            return "stopping"
        if self._session is None:
            return f"no ZooKeeper session at {self.config.zookeeper_connect} yet"
        return self._session.problem()

    async def wait_ready(self) -> None:
        """Return once this replica is a member of the cluster."""
        await self._ready.wait()

    async def run(self, session: Membership, stop: asyncio.Event) -> None:
        """Serve until ``stop``; then answer the requests under way, and drop the shards.

        Raises ServiceError if this replica may not join.
        """
        self._session = session
        try:
            async with asyncio.TaskGroup() as tasks:
                duties = [
                    tasks.create_task(session.run(self.metadata), name="membership"),
                    *(tasks.create_task(duty, name=name) for name, duty in self.duties()),
                    tasks.create_task(self.shards.run(), name="shards"),
                ]
                await stop.wait()
                self._is_stopping = True
                await self._drain()
                self.drained.set()
                for duty in duties:
                    duty.cancel()
        finally:
            await self.channels.close()

    async def _drain(self) -> None:
        wait_s = self.config.shutdown_deadline_ms / 1_000 * _DRAIN_SHARE
        try:
            async with asyncio.timeout(wait_s):
                await self.shards.drain()
        except TimeoutError:
            log.warning("requests are left unanswered")

    def _assign_shards(self, change: MetadataChange) -> None:
        self.shards.assign(change.image.shards.get(self.kind, ()), self.session.owned_shards())
        if not self._ready.is_set() and self.problem() is None:
            log.info("ready", extra=fields(coordinator_id=self.config.coordinator_id))
            self._ready.set()

    @property
    def session(self) -> Membership:
        """Membership of the cluster, once the node runs."""
        assert self._session is not None, "a shard, an image or a request before run()"
        return self._session

    async def _acquire(self, shard: int) -> int:
        return await self.session.acquire(shard)
