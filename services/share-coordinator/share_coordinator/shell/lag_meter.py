"""LagMeter: lags of share groups with members, for the assignor "load"."""

import asyncio
from collections.abc import Callable, Mapping

from tidemark.model.share_group_configs import IsolationLevel, ShareGroupConfig
from tidemark.model.topics import TopicPartition
from tidemark.runtime.coordinator.shards import Shards
from tidemark.runtime.log_ends import LogEnds
from tidemark.runtime.metadata_cache import MetadataCache

from share_coordinator.core.requests import LagsMeasured
from share_coordinator.core.share_states import Part
from share_coordinator.shell.shard_life import ShardLife


class LagMeter:
    """Measures at intervals. A partition whose leader does not answer is left out."""

    def __init__(
        self,
        shards: Shards[ShardLife],
        metadata: MetadataCache,
        ends: LogEnds,
        config_of: Callable[[str], ShareGroupConfig],
        *,
        interval_ms: int,
    ) -> None:
        self._shards = shards
        self._metadata = metadata
        self._ends = ends
        self._config_of = config_of
        self._interval_s = interval_ms / 1_000

    async def run(self) -> None:
        """Measure until cancelled."""
        while True:
            await asyncio.sleep(self._interval_s)
            for life in tuple(self._shards.serving().values()):
                for group_id, delivered in life.delivered().items():
                    life.submit(await self._measured(group_id, delivered))

    async def _measured(self, group_id: str, delivered: Mapping[Part, int]) -> LagsMeasured:
        topics = self._metadata.image.topics_by_id
        partitions = [
            TopicPartition(topics[topic_id].name, partition)
            for topic_id, partition in delivered
            if topic_id in topics
        ]
        isolation = self._config_of(group_id).isolation_level
        ends = await self._ends.of(
            partitions, read_committed=isolation is IsolationLevel.READ_COMMITTED
        )
        lags = {
            part: max(ends[part] - before, 0) for part, before in delivered.items() if part in ends
        }
        return LagsMeasured(group_id, lags)
