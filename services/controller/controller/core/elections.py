"""Elections: those that are due, requested ones, and those for a broker that shuts down."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain

from tidemark.model.errors import ErrorCode, TidemarkError
from tidemark.model.ids import NO_BROKER, BrokerId, InstantMs, TopicId
from tidemark.model.metadata import ClusterDelta, ClusterImage, PartitionImage, TopicImage

from controller.core.cluster import Change, Cluster, with_partitions
from controller.core.effects import PartitionResult, PartitionResults, ShutdownProgress
from controller.core.election_rules import (
    BrokerAvailability,
    TopicRules,
    choose_leader,
    demote,
    elect,
    is_unclean,
    led_by,
)
from controller.core.inputs import ControlledShutdown, ElectLeaders, PartitionRef
from controller.core.isr import with_isr, without_replica
from controller.core.isr_changes import check_broker_epoch
from controller.core.leader_replacement import LeaderReplacement
from controller.core.reassignments import completed
from controller.core.topic_rules import rules_of

_Draft = tuple[TopicImage, PartitionImage, PartitionImage]
"""A topic, and a partition of it before and after."""


@dataclass(slots=True)
class _Drafts:
    """New states of partitions, how many there are, and the number of unclean elections among
    them.
    """

    topics: dict[TopicId, dict[int, PartitionImage]]
    partitions: int = 0
    unclean: int = 0

    def put(self, topic: TopicImage, before: PartitionImage, after: PartitionImage) -> None:
        """Add the new state of a partition, unless it is the same object. The election of a replica
        from outside of the ISR may be what a move waits for.
        """
        if after is before:
            return
        after = completed(after)
        self.topics.setdefault(topic.topic_id, {})[before.partition] = after
        self.partitions += 1
        elected = after.leader != NO_BROKER and after.leader_epoch != before.leader_epoch
        self.unclean += elected and is_unclean(before, after.leader)

    def fill(self, drafts: Iterable[_Draft], at_once: int) -> None:
        """Add new states until there are ``at_once``."""
        for topic, before, after in drafts:
            self.put(topic, before, after)
            if self.partitions >= at_once:
                return

    def change(self, image: ClusterImage, delta: ClusterDelta | None = None) -> Change | None:
        """Return all as one change, together with ``delta``; None if nothing changes."""
        if not self.topics and delta is None:
            return None
        base = delta or ClusterDelta()
        topics = with_partitions(image, self.topics)
        return Change(replace(base, topics_changed=topics), unclean=self.unclean)


def availability_of(
    image: ClusterImage, expired: frozenset[BrokerId], restarted: BrokerId = NO_BROKER
) -> BrokerAvailability:
    """Return the availability of the brokers of an image."""
    live = [one for one in image.brokers.values() if not one.fenced]
    return BrokerAvailability(
        eligible=frozenset(one.broker_id for one in live if not one.shutting_down),
        alive=frozenset(one.broker_id for one in live),
        expired=expired,
        restarted=restarted,
    )


def due_elections(
    cluster: Cluster, replacement: LeaderReplacement, now: InstantMs, *, at_once: int
) -> Change | None:
    """Return elections that are due and possible now, then the removal of followers that have ended
    from the ISR: writes with acks=all would wait for them until their leaders notice that they lag.

    The change has ``at_once`` partitions at most, so that those of a broker with thousands are led
    one part after the other, and not all when the last one is written. With this change applied,
    the next call returns more.
    """
    image, expired = cluster.image, replacement.expired(now)
    availability, drafts = availability_of(image, expired), _Drafts({})
    elected = _elected(image, availability, replacement, expired)
    departed = _departed(image, availability, replacement.ended())
    drafts.fill(chain(elected, departed), at_once)
    return drafts.change(image)


def _elected(
    image: ClusterImage,
    availability: BrokerAvailability,
    replacement: LeaderReplacement,
    expired: frozenset[BrokerId],
) -> Iterator[_Draft]:
    """Yield partitions without a live leader, after their elections."""
    for topic in image.topics.values():
        rules = None
        for partition in topic.partitions:
            if partition.leader in availability.alive:
                continue
            key = (topic.topic_id, partition.partition)
            if partition.leader == NO_BROKER and not replacement.is_replaceable(
                key, partition, image.brokers, expired
            ):
                continue
            rules = rules or rules_of(image, topic)
            yield topic, partition, elect(partition, availability, rules)


def _departed(
    image: ClusterImage, availability: BrokerAvailability, ended: frozenset[BrokerId]
) -> Iterator[_Draft]:
    """Yield partitions with a live leader, without the followers that have ended."""
    if not ended:
        return
    for topic in image.topics.values():
        rules = None
        for partition in topic.partitions:
            if partition.leader in availability.alive and not ended.isdisjoint(partition.isr):
                rules = rules or rules_of(image, topic)
                yield topic, partition, _without_ended(partition, ended, rules)


def _without_ended(
    partition: PartitionImage, ended: frozenset[BrokerId], rules: TopicRules
) -> PartitionImage:
    """Return the partition without the ended members of its ISR. Its leader is alive, and stays."""
    isr = tuple(one for one in partition.isr if one not in ended or one == partition.leader)
    if isr == partition.isr:
        return partition
    return with_isr(partition, isr, rules.min_insync_replicas)


def decide_elect_leaders(
    cluster: Cluster,
    request: ElectLeaders,
    replacement: LeaderReplacement,
    now: InstantMs,
    *,
    at_once: int,
) -> tuple[Change | None, PartitionResults | ElectLeaders]:
    """Elect preferred leaders, or leaders by unclean elections where there is none. A preferred
    leader takes two writes: this one demotes, and the election that is then due follows. An unclean
    election is refused for as long as the last leader may acknowledge writes.

    The change has ``at_once`` partitions at most, so that the elections of one part come before all
    of the others are without a leader. Returned with it is then the rest of the request, to be
    decided on when the change is written.
    """
    image, expired = cluster.image, replacement.expired(now)
    availability, drafts = availability_of(image, expired), _Drafts({})
    wanted = request.partitions
    refs = iter(_in_need(image, preferred=request.preferred) if wanted is None else wanted)
    results = list(request.decided)
    for ref in refs:
        try:
            topic, partition = _find(image, ref)
            if request.preferred:
                after = _preferred(partition, availability)
            else:
                after = _unclean(image, topic, partition, availability, replacement)
            drafts.put(topic, partition, after)
        except TidemarkError as error:
            results.append(PartitionResult(ref.topic, ref.partition, error.code, error.message))
        else:
            results.append(PartitionResult(ref.topic, ref.partition))
        if drafts.partitions >= at_once:
            break
    change, left = drafts.change(image), tuple(refs)
    if left:
        return change, replace(request, partitions=left, decided=tuple(results))
    return change, PartitionResults(tuple(results))


def _in_need(image: ClusterImage, *, preferred: bool) -> Iterator[PartitionRef]:
    """Yield the partitions that need an election of this type."""
    for topic in image.topics.values():
        for partition in topic.partitions:
            leader = partition.leader
            if leader != partition.replicas[0] if preferred else leader == NO_BROKER:
                yield PartitionRef(topic.name, partition.partition)


def _find(image: ClusterImage, ref: PartitionRef) -> tuple[TopicImage, PartitionImage]:
    topic = image.topics.get(ref.topic)
    if topic is None or not 0 <= ref.partition < len(topic.partitions):
        raise TidemarkError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no {ref.topic}-{ref.partition}."
        )
    return topic, topic.partitions[ref.partition]


def _preferred(partition: PartitionImage, availability: BrokerAvailability) -> PartitionImage:
    preferred = partition.replicas[0]
    if partition.leader == preferred:
        raise TidemarkError(
            ErrorCode.ELECTION_NOT_NEEDED, "The preferred replica leads the partition already."
        )
    if preferred not in availability.eligible or preferred not in partition.isr:
        raise TidemarkError(
            ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
            f"The preferred replica {preferred} is not alive or not in sync.",
        )
    # Without a leader an election is due anyway, and prefers it.
    return partition if partition.leader == NO_BROKER else demote(partition)


def _unclean(
    image: ClusterImage,
    topic: TopicImage,
    partition: PartitionImage,
    availability: BrokerAvailability,
    replacement: LeaderReplacement,
) -> PartitionImage:
    if partition.leader != NO_BROKER:
        raise TidemarkError(ErrorCode.ELECTION_NOT_NEEDED, "The partition has a leader.")
    if choose_leader(partition, availability.eligible) != NO_BROKER:
        return partition  # a clean election is due, once the last leader acknowledges no more
    chosen = choose_leader(partition, availability.eligible, unclean=True)
    if chosen == NO_BROKER:
        raise TidemarkError(
            ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, "No replica of the partition is alive."
        )
    key, expired = (topic.topic_id, partition.partition), frozenset(availability.expired)
    if not replacement.is_replaceable(key, partition, image.brokers, expired):
        raise TidemarkError(
            ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
            f"The last leader, broker {partition.last_known_leader}, may still acknowledge writes"
            " (until a lease after it is gone). Try again.",
        )
    return led_by(partition, chosen, availability, rules_of(image, topic))


def rebalance(cluster: Cluster, *, at_once: int) -> Change | None:
    """Demote leaders whose partition has a preferred replica that could lead, ``at_once`` at most:
    the preferred replicas lead a part before all of the others are without a leader.
    """
    image, drafts = cluster.image, _Drafts({})
    drafts.fill(_not_led_as_preferred(image, availability_of(image, frozenset())), at_once)
    return drafts.change(image)


def _not_led_as_preferred(
    image: ClusterImage, availability: BrokerAvailability
) -> Iterator[_Draft]:
    """Yield partitions whose preferred replica could lead and does not, without a leader."""
    for topic in image.topics.values():
        for partition in topic.partitions:
            preferred = partition.replicas[0]
            if (
                partition.leader not in (NO_BROKER, preferred)
                and preferred in partition.isr
                and preferred in availability.eligible
            ):
                yield topic, partition, demote(partition)


def decide_shutdown(
    cluster: Cluster, request: ControlledShutdown, *, at_once: int
) -> tuple[Change | None, ShutdownProgress]:
    """Note that the broker shuts down, and begin to hand over what it has (``due_handover``).
    Return the number of partitions that are still to be led by others.
    """
    image, broker_id = cluster.image, request.broker_id
    check_broker_epoch(image, broker_id, request.broker_epoch)
    broker = image.brokers[broker_id]
    availability = availability_of(image, frozenset())
    others = frozenset(availability.eligible) - {broker_id}
    led = sum(
        broker_id in (one.leader, one.last_known_leader)
        and one.leader in (broker_id, NO_BROKER)
        and choose_leader(one, others) != NO_BROKER
        for topic in image.topics.values()
        for one in topic.partitions
    )
    stopping = None
    if not broker.shutting_down:
        stopping = ClusterDelta(brokers_changed=(replace(broker, shutting_down=True),))
    drafts = _handed_over(image, broker_id, others, at_once)
    return drafts.change(image, stopping), ShutdownProgress(led)


def due_handover(cluster: Cluster, *, at_once: int) -> Change | None:
    """Return what a broker that shuts down hands over next, ``at_once`` partitions at most. It
    leaves the ISRs that have other members first. Then it is demoted where another can lead, so
    that a partition is without a leader for as long as a part takes, and not all of them.
    """
    image = cluster.image
    availability = availability_of(image, frozenset())
    for broker in image.brokers.values():
        if broker.shutting_down and not broker.fenced:
            others = frozenset(availability.eligible) - {broker.broker_id}
            change = _handed_over(image, broker.broker_id, others, at_once).change(image)
            if change is not None:
                return change
    return None


def _handed_over(
    image: ClusterImage, broker_id: BrokerId, others: frozenset[BrokerId], at_once: int
) -> _Drafts:
    drafts = _Drafts({})
    drafts.fill(chain(_left_by(image, broker_id), _demoted(image, broker_id, others)), at_once)
    return drafts


def _left_by(image: ClusterImage, broker_id: BrokerId) -> Iterator[_Draft]:
    """Yield partitions that another live broker leads, without this follower in the ISR. While the
    leader is gone and waited for, the follower may be the only replica that is left.
    """
    leaders = availability_of(image, frozenset()).alive
    for topic in image.topics.values():
        rules = None
        for partition in topic.partitions:
            leader = partition.leader
            if broker_id in partition.isr and leader != broker_id and leader in leaders:
                rules = rules or rules_of(image, topic)
                minimum = rules.min_insync_replicas
                yield topic, partition, without_replica(partition, broker_id, minimum)


def _demoted(
    image: ClusterImage, broker_id: BrokerId, others: frozenset[BrokerId]
) -> Iterator[_Draft]:
    """Yield partitions that this broker leads and another can lead, without a leader."""
    for topic in image.topics.values():
        for partition in topic.partitions:
            if partition.leader == broker_id and choose_leader(partition, others) != NO_BROKER:
                yield topic, partition, demote(partition)
