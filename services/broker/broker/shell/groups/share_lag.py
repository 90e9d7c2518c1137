"""ShareLag: number of records that share groups have yet to deliver, from the partitions' leaders.

Lag is the distance from a share-partition's start offset to the end that its group may read, less
the offsets in between that need no delivery (KIP-1226).
"""

from collections.abc import Iterable, Mapping
from typing import Final

from tidemark.model.ids import TopicId
from tidemark.model.share_group_configs import IsolationLevel
from tidemark.model.topics import TopicPartition
from tidemark.runtime.channel_pool import ChannelPool
from tidemark.runtime.log_ends import LogEnds
from tidemark.runtime.metadata_cache import MetadataCache

from broker.shell.groups.share_groups import TopicStartOffsets

UNKNOWN_LAG: Final = -1
_ISOLATION_LEVEL: Final = "share.isolation.level"

Lags = Mapping[tuple[TopicId, int], int]
"""Lag by topic id and partition."""


class ShareLag:
    """Looks up lags, over channels that belong to another."""

    def __init__(self, metadata: MetadataCache, channels: ChannelPool) -> None:
        self._metadata = metadata
        self._ends = LogEnds(metadata, channels)

    async def of(self, group_id: str, topics: Iterable[TopicStartOffsets]) -> Lags:
        """Return the lag of every share-partition for which it is known."""
        configs = self._metadata.image.group_configs.get(group_id, {})
        read_committed = configs.get(_ISOLATION_LEVEL) == IsolationLevel.READ_COMMITTED.value
        done: dict[TopicPartition, int] = {
            TopicPartition(topic.topic, one.partition): one.start_offset
            + one.delivery_complete_count
            for topic in topics
            for one in topic.offsets
            if min(one.start_offset, one.delivery_complete_count) >= 0
        }
        ends = await self._ends.of(done, read_committed=read_committed)
        found = self._metadata.image.topics
        return {
            (topic_id, at.partition): max(ends[topic_id, at.partition] - before, 0)
            for at, before in done.items()
            if at.topic in found and ((topic_id := found[at.topic].topic_id), at.partition) in ends
        }
