"""Who leads a partition: the first live replica of its ISR, in order of preference."""

from collections.abc import Collection, Iterable
from dataclasses import replace

from tidemark.model.ids import NO_BROKER, BrokerId, LeaderEpoch, PartitionEpoch
from tidemark.model.metadata import PartitionImage, TopicImage


def choose_leader(partition: PartitionImage, live: Collection[BrokerId]) -> BrokerId:
    """The present leader while it lives; else the first live member of the ISR; else NO_BROKER."""
    if partition.leader in live:
        return partition.leader
    return next(
        (broker for broker in partition.replicas if broker in partition.isr and broker in live),
        NO_BROKER,
    )


def elect(
    partition: PartitionImage, live: Collection[BrokerId], restarted: BrokerId = NO_BROKER
) -> PartitionImage:
    """The partition after an election; the same object when nothing changes.

    A leader that ``restarted`` gets a new epoch although it stays: after a crash its log may end
    earlier than before, and one offset of one epoch must never hold two records. The ISR is left
    alone: losing a session is not lagging.
    """
    leader = choose_leader(partition, live)
    if leader == partition.leader and (leader != restarted or leader == NO_BROKER):
        return partition
    last_known = partition.leader if leader == NO_BROKER else NO_BROKER
    return replace(
        partition,
        leader=leader,
        leader_epoch=LeaderEpoch(partition.leader_epoch + 1),
        partition_epoch=PartitionEpoch(partition.partition_epoch + 1),
        last_known_leader=last_known,
    )


def elect_all(
    topics: Iterable[TopicImage], live: Collection[BrokerId], restarted: BrokerId = NO_BROKER
) -> tuple[TopicImage, ...]:
    """The topics of which a partition changes, changed."""
    changed = []
    for topic in topics:
        partitions = tuple(elect(partition, live, restarted) for partition in topic.partitions)
        if any(new is not old for new, old in zip(partitions, topic.partitions, strict=True)):
            changed.append(replace(topic, partitions=partitions))
    return tuple(changed)
