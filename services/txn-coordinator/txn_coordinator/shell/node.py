"""One txn-coordinator replica: a member of the cluster that serves the shards assigned to it."""

import asyncio
import random
from collections.abc import Callable, Collection, Coroutine, Sequence
from dataclasses import replace
from typing import Any, Final

from tidemark.model.backoff import Dice
from tidemark.model.errors import ErrorCode, TidemarkError
from tidemark.model.ids import TopicId
from tidemark.model.metadata import TXN, ClusterImage
from tidemark.model.partition_leader import find_partition, has_topics
from tidemark.model.topics import CONSUMER_OFFSETS, TRANSACTION_STATE, TopicPartition
from tidemark.runtime.channel_pool import ChannelPool
from tidemark.runtime.clock import Clock
from tidemark.runtime.coordinator.node import CoordinatorNode
from tidemark.runtime.coordinator.shard_life import ShardWorld
from tidemark.runtime.metrics import Metrics
from tidemark.runtime.producer_ids import ProducerIdBlock, ProducerIds

from txn_coordinator.config import SERVICE, TxnCoordinatorConfig
from txn_coordinator.core.marker_queue import MarkerLimits
from txn_coordinator.core.settings import TxnSettings
from txn_coordinator.shell.marker_sender import MarkerSender
from txn_coordinator.shell.metrics import RequestStats, measure
from txn_coordinator.shell.shard_life import ShardLife

_METADATA_WAIT_S: Final = 1.0
"""Time for which a request waits for metadata that its sender may have seen already."""


class TxnCoordinatorNode(CoordinatorNode[ShardLife]):
    """Object graph of one replica, between its server and its membership."""

    config: TxnCoordinatorConfig
    stats: RequestStats

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
        super().__init__(
            TXN,
            TRANSACTION_STATE,
            config,
            clock,
            RequestStats(metrics),
            channels=channels,
            dice=dice,
        )
        self.metrics = metrics
        self.settings = settings_of(config)
        self.markers = MarkerSender(
            self.metadata,
            self.channels,
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
        self._world = ShardWorld(
            self.metadata,
            self.channels,
            clock,
            dice,
            client_id=f"{SERVICE}-{config.coordinator_id}",
            append_timeout_ms=config.transaction_state_log_append_timeout_ms,
            requests_waiting_max=config.shard_requests_waiting_max,
            observe_load_s=self.stats.load_seconds.observe,
        )
        measure(self, metrics)

    def open_life(self, shard: int, owner_epoch: int) -> ShardLife:
        """See CoordinatorNode."""
        return ShardLife(
            shard, owner_epoch, self._world, settings=self.settings, markers=self.markers
        )

    def dropped(self, shard: int) -> None:
        """See CoordinatorNode."""
        self.markers.forget(shard)

    def duties(self) -> Sequence[tuple[str, Coroutine[Any, Any, None]]]:
        """See CoordinatorNode."""
        return (("markers", self.markers.run()),)

    # -- seams of requests

    async def _allocate(self) -> ProducerIdBlock:
        """Return a block of producer ids. Raises TidemarkError COORDINATOR_LOAD_IN_PROGRESS, which
        clients retry.
        """
        try:
            return await self.session.allocate_producer_ids()
        except TidemarkError as failure:
            words = f"no producer id: {failure.message}"
            raise TidemarkError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, words) from failure

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
