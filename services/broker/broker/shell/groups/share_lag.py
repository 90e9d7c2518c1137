"""ShareLag: number of records that share groups have yet to deliver, from the partitions' leaders.

Lag is the distance from a share-partition's start offset to the end that its group may read, less
the offsets in between that need no delivery (KIP-1226).
"""

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any, Final

from tidemark.model.ids import TopicId
from tidemark.model.partition_leader import PartitionLeader, find_leader
from tidemark.model.share_group_configs import IsolationLevel
from tidemark.model.topics import TopicPartition
from tidemark.runtime.channel_pool import CallFailedError, ChannelPool, call_failures
from tidemark.runtime.metadata_cache import MetadataCache
from tidemark_wire.v1 import common_pb2, partition_store_pb2_grpc
from tidemark_wire.v1 import partition_store_pb2 as pb

from broker.shell.groups.share_groups import StartOffset, TopicStartOffsets

UNKNOWN_LAG: Final = -1
LOOK_UP_TIMEOUT_S: Final = 5.0
_LATEST: Final = -1
_ISOLATION_LEVEL: Final = "share.isolation.level"

Lags = Mapping[tuple[TopicId, int], int]
"""Lag by topic id and partition."""


class ShareLag:
    """Looks up lags, over channels that belong to another."""

    def __init__(self, metadata: MetadataCache, channels: ChannelPool) -> None:
        self._metadata = metadata
        self._channels = channels

    async def of(self, group_id: str, topics: Iterable[TopicStartOffsets]) -> Lags:
        """Return the lag of every share-partition for which it is known."""
        configs = self._metadata.image.group_configs.get(group_id, {})
        read_committed = configs.get(_ISOLATION_LEVEL) == IsolationLevel.READ_COMMITTED.value
        wanted: dict[str, list[tuple[PartitionLeader, TopicPartition, StartOffset]]] = {}
        for topic in topics:
            for one in topic.offsets:
                at = TopicPartition(topic.topic, one.partition)
                leader = find_leader(self._metadata.image, at)
                if leader is not None and min(one.start_offset, one.delivery_complete_count) >= 0:
                    wanted.setdefault(leader.grpc_endpoint, []).append((leader, at, one))
        lags: dict[tuple[TopicId, int], int] = {}
        async with asyncio.TaskGroup() as tasks:
            for endpoint, asked in wanted.items():
                look_up = self._look_up(endpoint, asked, lags, read_committed=read_committed)
                tasks.create_task(look_up)
        return lags

    async def _look_up(
        self,
        endpoint: str,
        asked: list[tuple[PartitionLeader, TopicPartition, StartOffset]],
        lags: dict[tuple[TopicId, int], int],
        *,
        read_committed: bool,
    ) -> None:
        """Add the lags of partitions with one leader; none if it does not answer."""
        request = pb.ListOffsetsRequest(
            queries=[_query(leader, at) for leader, at, _ in asked], read_committed=read_committed
        )
        stub: Any = partition_store_pb2_grpc.PartitionStoreStub(
            await self._channels.channel(endpoint)
        )
        try:
            with call_failures(endpoint):
                response = await stub.ListOffsets(request, timeout=LOOK_UP_TIMEOUT_S)
        except CallFailedError:
            return
        for (leader, at, one), answer in zip(asked, response.answers, strict=False):
            if not answer.error_code:
                lag = answer.offset - one.start_offset - one.delivery_complete_count
                lags[leader.topic_id, at.partition] = max(lag, 0)


def _query(leader: PartitionLeader, at: TopicPartition) -> pb.ListOffsetsRequest.Query:
    return pb.ListOffsetsRequest.Query(
        partition=common_pb2.TopicPartition(
            topic=at.topic, topic_id=leader.topic_id, partition=at.partition
        ),
        timestamp_ms=_LATEST,
        current_leader_epoch=leader.leader_epoch,
    )
