"""LogEnds: ends of partitions, from their leaders over gRPC."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from tidemark_wire.v1 import common_pb2, partition_store_pb2_grpc
from tidemark_wire.v1 import partition_store_pb2 as pb

from tidemark.model.ids import Offset, TopicId
from tidemark.model.partition_leader import PartitionLeader, find_leader
from tidemark.model.topics import TopicPartition
from tidemark.runtime.channel_pool import CallFailedError, ChannelPool, call_failures
from tidemark.runtime.metadata_cache import MetadataCache

QUERIES_MAX: Final = 500
"""Partitions of one call: a few milliseconds of the leader's event loop."""
_TIMEOUT_S: Final = 5.0
_LATEST: Final = -1

Ends = Mapping[tuple[TopicId, int], Offset]
"""End, exclusive, by topic id and partition."""
_Asked = tuple[PartitionLeader, TopicPartition]


class LogEnds:
    """Looks ends up, over channels that belong to another."""

    def __init__(self, metadata: MetadataCache, channels: ChannelPool) -> None:
        self._metadata = metadata
        self._channels = channels

    async def of(
        self,
        partitions: Iterable[TopicPartition],
        *,
        read_committed: bool,
        timeout_s: float = _TIMEOUT_S,
    ) -> Ends:
        """Return the end of what a reader of that isolation level may read, for every partition
        whose leader answers. ``timeout_s`` limits each call.
        """
        by_leader: dict[str, list[_Asked]] = {}
        for at in partitions:
            leader = find_leader(self._metadata.image, at)
            if leader is not None:
                by_leader.setdefault(leader.grpc_endpoint, []).append((leader, at))
        ends: dict[tuple[TopicId, int], Offset] = {}
        async with asyncio.TaskGroup() as tasks:
            for endpoint, asked in by_leader.items():
                look_up = self._look_up(
                    endpoint, asked, ends, read_committed=read_committed, timeout_s=timeout_s
                )
                tasks.create_task(look_up)
        return ends

    async def _look_up(
        self,
        endpoint: str,
        asked: Sequence[_Asked],
        ends: dict[tuple[TopicId, int], Offset],
        *,
        read_committed: bool,
        timeout_s: float,
    ) -> None:
        """Add the ends of partitions with one leader; none if it does not answer."""
        channel = await self._channels.channel(endpoint)
        stub: Any = partition_store_pb2_grpc.PartitionStoreStub(channel)
        for first in range(0, len(asked), QUERIES_MAX):
            some = asked[first : first + QUERIES_MAX]
            request = pb.ListOffsetsRequest(
                queries=[_query(*one) for one in some], read_committed=read_committed
            )
            try:
                with call_failures(endpoint):
                    response = await stub.ListOffsets(request, timeout=timeout_s)
            except CallFailedError:
                return
            for (leader, at), answer in zip(some, response.answers, strict=False):
                if not answer.error_code:
                    ends[leader.topic_id, at.partition] = Offset(answer.offset)


def _query(leader: PartitionLeader, at: TopicPartition) -> pb.ListOffsetsRequest.Query:
    return pb.ListOffsetsRequest.Query(
        partition=common_pb2.TopicPartition(
            topic=at.topic, topic_id=leader.topic_id, partition=at.partition
        ),
        timestamp_ms=_LATEST,
        current_leader_epoch=leader.leader_epoch,
    )
