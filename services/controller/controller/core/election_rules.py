"""Rules of elections: the leader that is chosen, and the ISR afterwards.

Candidates in order: live members of the ISR in the order of the replicas, live eligible leader
replicas (KIP-966), and, if the topic allows unclean elections, any live replica, which may lack
committed records.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace

from tidemark.model.ids import NO_BROKER, BrokerId, LeaderEpoch, PartitionEpoch
from tidemark.model.metadata import PartitionImage

from controller.core.isr import with_isr, without_replica


@dataclass(frozen=True, slots=True)
class BrokerAvailability:
    """Brokers that may be elected, and brokers that may be replaced, at this moment."""

    eligible: Collection[BrokerId]
    """Live brokers that are not shutting down."""
    alive: Collection[BrokerId]
    """Live brokers, which keep the partitions that they lead."""
    expired: Collection[BrokerId]
    """Brokers that are gone for a whole lease, and acknowledge no writes as leaders."""
    restarted: BrokerId = NO_BROKER
    """The broker that is registering: it leads its partitions in a new epoch."""


@dataclass(frozen=True, slots=True)
class TopicRules:
    """Configuration of a topic that elections need."""

    min_insync_replicas: int = 1
    unclean_election: bool = False


def choose_leader(
    partition: PartitionImage, eligible: Collection[BrokerId], *, unclean: bool = False
) -> BrokerId:
    """Return the broker to elect; NO_BROKER if none may lead."""
    candidates = [one for one in partition.replicas if one in partition.isr]
    candidates += [one for one in partition.replicas if one in partition.elr]
    if unclean:
        last = partition.last_known_leader
        candidates += [one for one in partition.replicas if one == last]
        candidates += partition.replicas
    return next((one for one in candidates if one in eligible), NO_BROKER)


def is_unclean(partition: PartitionImage, leader: BrokerId) -> bool:
    """True if the election of ``leader`` may lose committed records."""
    return leader not in partition.isr and leader not in partition.elr


def elect(
    partition: PartitionImage, availability: BrokerAvailability, rules: TopicRules
) -> PartitionImage:
    """Return the partition after an election that is due; the same object if none is.

    For a partition without a leader the caller has made sure that the last one may be replaced. A
    leader that ``restarted`` stays in a new epoch: after a crash its log may end earlier than
    before, and one offset of one epoch must never hold two records.
    """
    leader = partition.leader
    if leader in availability.alive:
        return next_epoch(partition, leader) if leader == availability.restarted else partition
    if leader != NO_BROKER and leader not in availability.expired:
        return partition
    chosen = choose_leader(partition, availability.eligible, unclean=rules.unclean_election)
    if chosen == NO_BROKER:
        return partition if leader == NO_BROKER else demote(partition)
    return led_by(partition, chosen, availability, rules)


def led_by(
    partition: PartitionImage, chosen: BrokerId, availability: BrokerAvailability, rules: TopicRules
) -> PartitionImage:
    """Return the partition led by ``chosen``. A leader from outside the ISR is alone in a new one;
    after a clean election the members of the old ISR become eligible. A leader from the ISR keeps
    it, without the replaced leader unless that is alive and stays (ADR 0012).
    """
    old = partition.leader if partition.leader != NO_BROKER else partition.last_known_leader
    if is_unclean(partition, chosen):
        made = replace(partition, isr=(chosen,), elr=())
    elif chosen not in partition.isr:
        made = with_isr(partition, (chosen,), rules.min_insync_replicas)
    elif old not in (NO_BROKER, chosen) and old not in availability.eligible:
        made = without_replica(partition, old, rules.min_insync_replicas)
    else:
        made = partition
    return next_epoch(made, chosen)


def next_epoch(partition: PartitionImage, leader: BrokerId) -> PartitionImage:
    """Return the partition with this leader, in the next leader epoch. Without a leader it keeps
    the last known one.
    """
    last = partition.leader if partition.leader != NO_BROKER else partition.last_known_leader
    return replace(
        partition,
        leader=leader,
        leader_epoch=LeaderEpoch(partition.leader_epoch + 1),
        partition_epoch=PartitionEpoch(partition.partition_epoch + 1),
        last_known_leader=last if leader == NO_BROKER else NO_BROKER,
    )


def demote(partition: PartitionImage) -> PartitionImage:
    """Return the partition without a leader: the first of two writes that replace a live leader
    (ADR 0010).
    """
    return next_epoch(partition, NO_BROKER)


def lost_its_disk(partition: PartitionImage, broker: BrokerId, rules: TopicRules) -> PartitionImage:
    """Return the partition without a replica that lost acknowledged records in its ISR and ELR.

    The only replica of a partition keeps its place. If the replica was the last member of the ISR,
    the ISR is empty and the replica is the last known leader, which only an unclean election makes
    leader again.
    """
    if partition.replicas == (broker,) or broker not in (*partition.isr, *partition.elr):
        return partition
    elr = tuple(one for one in partition.elr if one != broker)
    isr = tuple(one for one in partition.isr if one != broker)
    if partition.leader == broker:
        partition = demote(partition)
    elif not isr and partition.last_known_leader == NO_BROKER:
        partition = replace(partition, last_known_leader=broker)
    made = with_isr(replace(partition, elr=elr), isr, rules.min_insync_replicas)
    return replace(made, elr=tuple(one for one in made.elr if one != broker))
