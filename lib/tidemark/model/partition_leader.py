"""Lookup of a partition and of its leader in an image of the metadata."""

from collections.abc import Collection
from typing import NamedTuple

from tidemark.model.ids import NO_BROKER, BrokerId, LeaderEpoch, TopicId
from tidemark.model.metadata import ClusterImage, PartitionImage
from tidemark.model.topics import TopicPartition


class PartitionLeader(NamedTuple):
    """Leader of one partition, and its gRPC endpoint."""

    broker_id: BrokerId
    grpc_endpoint: str
    topic_id: TopicId
    leader_epoch: LeaderEpoch


def find_partition(image: ClusterImage, at: TopicPartition) -> PartitionImage | None:
    """Return one partition of an image; None if the image does not have it."""
    topic = image.topics.get(at.topic)
    if topic is None or not 0 <= at.partition < len(topic.partitions):
        return None
    return topic.partitions[at.partition]


def has_topics(image: ClusterImage, topics: Collection[tuple[str, TopicId]]) -> bool:
    """True if an image has these topics, by name and id. A topic that is deleted and created again
    has another id.
    """
    shown = ((image.topics.get(name), topic_id) for name, topic_id in topics)
    return all(topic is not None and topic.topic_id == topic_id for topic, topic_id in shown)


def find_leader(image: ClusterImage, at: TopicPartition) -> PartitionLeader | None:
    """Return the leader of a partition; None while the partition is unknown, has no leader, or its
    leader has no endpoint.
    """
    partition = find_partition(image, at)
    if partition is None or partition.leader == NO_BROKER:
        return None
    broker = image.brokers.get(partition.leader)
    if broker is None or not broker.grpc_endpoint:
        return None
    topic_id = image.topics[at.topic].topic_id
    return PartitionLeader(partition.leader, broker.grpc_endpoint, topic_id, partition.leader_epoch)
