"""LetterProblems: reasons for which dead letters of a share group are not copied, from the leaders
of the partitions.
"""

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any, Final

from tidemark.model.authorization import Authorizer, Operation, Requester, topic_resource
from tidemark.model.ids import TopicId
from tidemark.model.metadata import ClusterImage
from tidemark.model.partition_leader import PartitionLeader, find_leader
from tidemark.model.share_group_configs import DEAD_LETTER_TOPIC
from tidemark.model.topics import TopicPartition
from tidemark.runtime.channel_pool import CallFailedError, ChannelPool, call_failures
from tidemark.runtime.metadata_cache import MetadataCache
from tidemark_wire.v1 import share_pb2, share_pb2_grpc

HIDDEN: Final = "dead letters cannot be copied; the reason is about a topic that is not shown"
"""Reason for callers who may not describe the queue."""
_TIMEOUT_S: Final = 2.0

Problems = Mapping[tuple[TopicId, int], str]
"""Reason by topic id and partition."""


def shown_problem(
    problem: str, group_id: str, image: ClusterImage, authorizer: Authorizer, requester: Requester
) -> str:
    """Return a problem as this caller may see it: a reason names the queue, a topic, and describes
    it, and the right to describe the group is none to its configuration.
    """
    queue = image.group_configs.get(group_id, {}).get(DEAD_LETTER_TOPIC, "")
    sees = not problem or authorizer.sees(requester, Operation.DESCRIBE, topic_resource(queue))
    return problem if sees else HIDDEN


class LetterProblems:
    """Looks problems up, over channels that belong to another."""

    def __init__(self, metadata: MetadataCache, channels: ChannelPool) -> None:
        self._metadata = metadata
        self._channels = channels

    async def of(self, group_id: str, partitions: Iterable[TopicPartition]) -> Problems:
        """Return the problems of a group with a dead-letter queue, as far as leaders answer."""
        image = self._metadata.image
        if not image.group_configs.get(group_id, {}).get(DEAD_LETTER_TOPIC):
            return {}
        by_leader: dict[str, list[tuple[PartitionLeader, int]]] = {}
        for at in partitions:
            leader = find_leader(image, at)
            if leader is not None:
                led = by_leader.setdefault(leader.grpc_endpoint, [])
                led.append((leader, at.partition))
        found: dict[tuple[TopicId, int], str] = {}
        async with asyncio.TaskGroup() as tasks:
            for endpoint, asked in by_leader.items():
                tasks.create_task(self._look_up(endpoint, group_id, asked, found))
        return found

    async def _look_up(
        self,
        endpoint: str,
        group_id: str,
        asked: list[tuple[PartitionLeader, int]],
        found: dict[tuple[TopicId, int], str],
    ) -> None:
        """Add the problems of partitions with one leader; none if it does not answer."""
        request = share_pb2.DescribeShareLagsRequest(
            group_id=group_id,
            topics=[
                share_pb2.ShareTopicPartitions(topic_id=leader.topic_id, partitions=[partition])
                for leader, partition in asked
            ],
        )
        stub: Any = share_pb2_grpc.SharePartitionsStub(await self._channels.channel(endpoint))
        try:
            with call_failures(endpoint):
                response = await stub.DescribeLags(request, timeout=_TIMEOUT_S)
        except CallFailedError:
            return
        for lag in response.lags:
            if lag.dead_letter_problem:
                found[TopicId(lag.topic_id), lag.partition] = lag.dead_letter_problem
