"""ImageBoard: the newest metadata, for tasks that wait until it says something else."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from tidemark.model.ids import NO_BROKER, BrokerId, LeaderEpoch, TopicId
from tidemark.model.metadata import ClusterDelta, ClusterImage, FeedPosition, PartitionImage
from tidemark.model.topics import TopicPartition


class ImageBoard:
    """One process's newest image. ``take`` is what a MetadataFollower is given as ``on_image``."""

    def __init__(self, image: ClusterImage | None = None) -> None:
        self.image = ClusterImage() if image is None else image
        self._changed = asyncio.Event()
        self._watchers: list[Callable[[ClusterImage], None]] = []

    def take(self, image: ClusterImage, delta: ClusterDelta | None = None) -> None:
        """Show a new image, and wake who waits for one."""
        del delta
        self.image = image
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
        for watcher in tuple(self._watchers):
            watcher(image)

    @contextmanager
    def watched(self, watcher: Callable[[ClusterImage], None]) -> Iterator[None]:
        """Within it ``watcher`` hears each new image; it must not wait."""
        self._watchers.append(watcher)
        try:
            yield
        finally:
            self._watchers.remove(watcher)

    async def wait_newer(self, than: FeedPosition) -> ClusterImage:
        """The first image seen that is newer."""
        while self.image.position <= than:
            await self._changed.wait()
        return self.image

    async def wait_newer_or(self, than: FeedPosition, wait_s: float) -> ClusterImage:
        """As ``wait_newer``, but for ``wait_s`` at most: the image, newer or not."""
        try:
            async with asyncio.timeout(wait_s):
                return await self.wait_newer(than)
        except TimeoutError:
            return self.image


class PartitionLeader(NamedTuple):
    """Who leads one partition, and where it is called."""

    broker_id: BrokerId
    grpc_endpoint: str
    topic_id: TopicId
    leader_epoch: LeaderEpoch


def find_partition(image: ClusterImage, at: TopicPartition) -> PartitionImage | None:
    """One partition as the image knows it; None when there is no such one."""
    topic = image.topics.get(at.topic)
    if topic is None or not 0 <= at.partition < len(topic.partitions):
        return None
    return topic.partitions[at.partition]


def find_leader(image: ClusterImage, at: TopicPartition) -> PartitionLeader | None:
    """None while the partition is unknown, has no leader, or its leader cannot be called."""
    partition = find_partition(image, at)
    if partition is None or partition.leader == NO_BROKER:
        return None
    broker = image.brokers.get(partition.leader)
    if broker is None or not broker.grpc_endpoint:
        return None
    topic_id = image.topics[at.topic].topic_id
    return PartitionLeader(partition.leader, broker.grpc_endpoint, topic_id, partition.leader_epoch)
