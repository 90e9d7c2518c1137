"""One txn-coordinator replica: a member of the cluster that serves the shards assigned to it."""

import asyncio
import logging
import random
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Final, Protocol

from tidemark.model.authorization import Authorizer
from tidemark.model.backoff import Dice
from tidemark.model.errors import ErrorCode, TidemarkError
from tidemark.model.ids import TopicId
from tidemark.model.metadata import TXN, ClusterImage
from tidemark.model.metadata_change import Kind, MetadataChange
from tidemark.model.partition_leader import find_partition, has_topics
from tidemark.model.topics import CONSUMER_OFFSETS, TopicPartition
from tidemark.runtime.channel_pool import ChannelPool
from tidemark.runtime.clock import Clock
from tidemark.runtime.metadata_cache import MetadataCache
from tidemark.runtime.metrics import Metrics
from tidemark.runtime.producer_ids import ProducerIdBlock, ProducerIds
from tidemark.runtime.telemetry import fields

from txn_coordinator.config import TxnCoordinatorConfig
from txn_coordinator.core.marker_queue import MarkerLimits
from txn_coordinator.core.settings import TxnSettings
from txn_coordinator.shell.marker_sender import MarkerSender
from txn_coordinator.shell.metrics import RequestStats, measure
from txn_coordinator.shell.shard_life import ShardLife, ShardWorld
from txn_coordinator.shell.shards import Shards

log = logging.getLogger(__name__)

SHARDS: Final = "shards"
_METADATA_WAIT_S: Final = 1.0
"""Time for which a request waits for metadata that its sender may have seen already."""
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


class TxnCoordinatorNode:
    """Object graph of one replica, between its server and its membership."""

    def __init__(
        self,
        config: TxnCoordinatorConfig,
        clock: Clock,
        metrics: Metrics,
        *,
        channels: ChannelPool | None = None,
        dice: Dice = random.random,
    ) -> None:
        """The node closes ``channels``, which go to brokers. ``dice`` spreads retries."""
        self.config = config
        self.metrics = metrics
        self.authorizer = Authorizer()
        self.metadata = MetadataCache(then=(SHARDS,))
        self.metadata.subscribe(SHARDS, Kind.POSITION, self._assign_shards)
        self.settings = settings_of(config)
        self.stats = RequestStats(metrics)
        self.shards = Shards(
            clock,
            acquire=self._acquire,
            open_runtime=self._open,
            on_dropped=self._dropped,
            dice=dice,
        )
        self._channels = ChannelPool() if channels is None else channels
        self.markers = MarkerSender(
            self.metadata,
            self._channels,
            clock,
            self.shards,
            limits=MarkerLimits(
                targets_per_request_max=config.marker_targets_per_request_max,
            ),
            request_timeout_ms=config.marker_request_timeout_ms,
            observe_s=self.stats.marker_seconds.observe,
            dice=dice,
        )
        self.producer_ids = ProducerIds(self._allocate)
        self.clock = clock
        self._ready = asyncio.Event()
        self._is_stopping = False
        self._session: Membership | None = None
        self._world = ShardWorld(
            self.metadata,
            self._channels,
            clock,
            self.markers,
            self.settings,
            config,
            self.stats.load_seconds.observe,
            dice,
        )
        measure(self, metrics)

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
                    tasks.create_task(self.markers.run(), name="markers"),
                    tasks.create_task(self.shards.run(), name="shards"),
                ]
                await stop.wait()
                self._is_stopping = True
                await self._drain()
                for duty in duties:
                    duty.cancel()
        finally:
            await self._channels.close()

    async def _drain(self) -> None:
        wait_s = self.config.shutdown_deadline_ms / 1_000 * _DRAIN_SHARE
        try:
            async with asyncio.timeout(wait_s):
                await self.shards.drain()
        except TimeoutError:
            log.warning("requests are left unanswered")

    def _assign_shards(self, change: MetadataChange) -> None:
        assert self._session is not None, "an image without a session"
        self.shards.assign(change.image.shards.get(TXN, ()), self._session.owned_shards())
        if not self._ready.is_set() and self.problem() is None:
            log.info("ready", extra=fields(coordinator_id=self.config.coordinator_id))
            self._ready.set()

    # -- seams of the shards

    async def _acquire(self, shard: int) -> int:
        assert self._session is not None, "a shard without a session"
        return await self._session.acquire(shard)

    def _open(self, shard: int, owner_epoch: int) -> ShardLife:
        return ShardLife(shard, owner_epoch, self._world)

    def _dropped(self, shard: int) -> None:
        self.markers.forget(shard)

    async def _allocate(self) -> ProducerIdBlock:
        """Return a block of producer ids. Raises TidemarkError COORDINATOR_LOAD_IN_PROGRESS, which
        clients retry.
        """
        assert self._session is not None, "a request without a session"
        try:
            return await self._session.allocate_producer_ids()
        except TidemarkError as failure:
            words = f"no producer id: {failure.message}"
            raise TidemarkError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, words) from failure

    # -- seams of requests

    async def shows_topics(self, topics: Collection[tuple[str, TopicId]]) -> bool:
        """Return True once the metadata shows these topics, by name and id; False if it does not
        after a short wait. A topic that is deleted and created again has another id.
        """
        return await self._wait_until(lambda image: has_topics(image, topics))

    async def unknown_partitions(
        self, partitions: Sequence[TopicPartition]
    ) -> frozenset[TopicPartition]:
        """Return the partitions that the metadata does not have, even after a short wait."""

        def unknown(image: ClusterImage) -> frozenset[TopicPartition]:
            return frozenset(at for at in partitions if find_partition(image, at) is None)

        await self._wait_until(lambda image: not unknown(image))
        return unknown(self.metadata.image)

    async def _wait_until(self, is_met: Callable[[ClusterImage], bool]) -> bool:
        """Return True once the metadata meets a condition; False if it does not in time."""
        try:
            async with asyncio.timeout(_METADATA_WAIT_S):
                while not is_met(image := self.metadata.image):
                    await self.metadata.wait_newer(image.position)
        except TimeoutError:
            return False
        return True

    async def offsets_settings(self) -> TxnSettings:
        """Return the settings with the present number of partitions of groups' offsets. Raises
        TidemarkError COORDINATOR_NOT_AVAILABLE while there are none.
        """
        if await self.unknown_partitions([TopicPartition(CONSUMER_OFFSETS, 0)]):
            words = f"the topic {CONSUMER_OFFSETS} does not exist yet"
            raise TidemarkError(ErrorCode.COORDINATOR_NOT_AVAILABLE, words)
        count = len(self.metadata.image.topics[CONSUMER_OFFSETS].partitions)
        return replace(self.settings, offsets_partition_count=count)


def settings_of(config: TxnCoordinatorConfig) -> TxnSettings:
    """Return the settings of shards that a configuration has."""
    return TxnSettings(
        transaction_max_timeout_ms=config.transaction_max_timeout_ms,
        transactional_id_expiration_ms=config.transactional_id_expiration_ms,
        expiry_interval_ms=config.transaction_remove_expired_transaction_cleanup_interval_ms,
        writers_max=config.transaction_writers_max,
        writer_partitions_max=config.transaction_writer_partitions_max,
    )
