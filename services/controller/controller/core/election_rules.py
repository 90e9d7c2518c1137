"""Who leads a partition, and what an election does to its ISR.

In order: live members of the ISR as preferred, then live eligible leader replicas (KIP-966), then,
where the topic allows it, any live replica: that one may lose records.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace

from tidemark.model.ids import NO_BROKER, BrokerId, LeaderEpoch, PartitionEpoch
from tidemark.model.metadata import PartitionImage

from controller.core.isr import with_isr, without_replica


@dataclass(frozen=True, slots=True)
class BrokerAvailability:
    """Who may be chosen, and who may be replaced, at this moment."""

    eligible: Collection[BrokerId]
    """Live, and not about to stop."""
    alive: Collection[BrokerId]
    """Live: whoever leads stays, unless it is to be demoted."""
    expired: Collection[BrokerId]
    """Gone for a whole lease: nothing that they led is acknowledged by them any more."""
    restarted: BrokerId = NO_BROKER
    """Has registered just now: where it leads it does so anew."""


@dataclass(frozen=True, slots=True)
class TopicRules:
    """What of a topic's configuration elections need."""

    min_insync_replicas: int = 1
    unclean_election: bool = False


def choose_leader(
    partition: PartitionImage, eligible: Collection[BrokerId], *, unclean: bool = False
) -> BrokerId:
    """Whom to elect; NO_BROKER when nobody may lead."""
    candidates = [one for one in partition.replicas if one in partition.isr]
    candidates += [one for one in partition.replicas if one in partition.elr]
    if unclean:
        last = partition.last_known_leader
        candidates += [one for one in partition.replicas if one == last]
        candidates += partition.replicas
    return next((one for one in candidates if one in eligible), NO_BROKER)


def is_unclean(partition: PartitionImage, leader: BrokerId) -> bool:
    """Whether electing this one may lose committed records."""
    return leader not in partition.isr and leader not in partition.elr


def elect(
    partition: PartitionImage, availability: BrokerAvailability, rules: TopicRules
) -> PartitionImage:
    """The partition after an election that is due; the same object when none is.

    For a partition without a leader the caller has made sure that the last one is expired. A
    leader that ``restarted`` gets a new epoch although it stays: after a crash its log may end
    earlier than before, and one offset of one epoch must never hold two records.
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
    """Elected. Outside the ISR it is alone in a new one, and who was in the old one stays eligible
    if it was elected cleanly; else the replaced leader leaves the ISR, unless that one lives and
    stays (ADR 0012).
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
    """Under the next leader epoch. Without a leader the last one is remembered."""
    known = partition.leader if partition.leader != NO_BROKER else partition.last_known_leader
    return replace(
        partition,
        leader=leader,
        leader_epoch=LeaderEpoch(partition.leader_epoch + 1),
        partition_epoch=PartitionEpoch(partition.partition_epoch + 1),
        last_known_leader=known if leader == NO_BROKER else NO_BROKER,
    )


def demote(partition: PartitionImage) -> PartitionImage:
    """Nobody leads: the first of the two writes that replace a leader that lives (ADR 0010)."""
    return next_epoch(partition, NO_BROKER)


def lost_its_disk(partition: PartitionImage, broker: BrokerId, rules: TopicRules) -> PartitionImage:
    """A replica came back without what it had acknowledged: it is in no ISR and in no ELR.

    A partition with no other replica goes on with what there is. Where it was the last of the ISR
    nobody is in it any more: it is the last-known leader, and leads only by an unclean election.
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
