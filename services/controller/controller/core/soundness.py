"""Decisions on unsound replicas: their disk failed or lost bytes that may have been committed.

Such a replica leaves ISR and ELR, so that it does not lead, and returns as a follower: it copies
the leader's log, and no other replica truncates its log to the unsound one. There are two kinds.

    lost      the end of its log may be missing: if it led, others would truncate what it lacks
    damaged   a batch before the end is missing or altered: it may lead if no other replica can
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum

from tidemark.model.errors import ErrorCode
from tidemark.model.ids import NO_BROKER, BrokerId, TopicId
from tidemark.model.metadata import ClusterDelta, PartitionImage, TopicImage

from controller.core.cluster import (
    FIRST_LEADER_EPOCH,
    FIRST_PARTITION_EPOCH,
    Change,
    Cluster,
    with_partitions,
)
from controller.core.effects import ReportedReplica, ReportedReplicas
from controller.core.election_rules import (
    BrokerAvailability,
    TopicRules,
    elect,
    is_unclean,
    lost_its_disk,
    next_epoch,
)
from controller.core.elections import availability_of
from controller.core.inputs import HeldLogs, ReportReplicas, UnsoundReplica
from controller.core.isr_changes import check_broker_epoch
from controller.core.reassignments import completed
from controller.core.topic_rules import rules_of

_Drafts = dict[TopicId, dict[int, PartitionImage]]


class Soundness(Enum):
    """Soundness of a replica's log."""

    SOUND = "sound"
    DAMAGED = "damaged"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class Holdings:
    """Logs that a registering broker has kept."""

    logs: HeldLogs | None
    """None: the broker's release does not send them. Then it has kept all or nothing."""
    nothing_kept: bool
    """True if the page cache was lost before it was written, or all log directories are others;
    without ``logs`` also if any log directory is another.
    """
    directory_gone: bool
    """True if one of its log directories is missing."""
    new_directories: frozenset[bytes] = frozenset()
    """Directories that its last registration did not have. Logs there are not those that it had
    then: an old disk that was put back, for example.
    """

    def soundness(self, topic: TopicImage, partition: PartitionImage) -> Soundness:
        """Return the soundness of the broker's replica of a partition."""
        if self.nothing_kept:
            return Soundness.LOST
        logs, key = self.logs, (topic.topic_id, partition.partition)
        if logs is None:
            return Soundness.SOUND
        if logs.directory_of.get(key) in self.new_directories:
            return Soundness.LOST
        if key in logs.sound:
            return Soundness.SOUND
        if key in logs.damaged:
            return Soundness.DAMAGED
        if key in logs.lost or (topic.name, partition.partition) in logs.missing:
            return Soundness.LOST
        never_made = is_untouched(partition) and not self.directory_gone
        return Soundness.SOUND if never_made else Soundness.LOST


def is_untouched(partition: PartitionImage) -> bool:
    """True if the ISR is that of the partition's creation. A member without a log has not fetched
    or led yet, so nothing is committed: its log is empty, not lost.

    Every change of the ISR raises the partition epoch once more than the leader epoch. Elections
    raise both by one: a leader that restarts before it has made its log is elected again each time.
    """
    elections = partition.leader_epoch - FIRST_LEADER_EPOCH
    return elections == partition.partition_epoch - FIRST_PARTITION_EPOCH


def without_unsound(
    partition: PartitionImage,
    broker: BrokerId,
    soundness: Soundness,
    *,
    availability: BrokerAvailability,
    rules: TopicRules,
) -> PartitionImage:
    """Return the partition without an unsound replica in ISR and ELR. Return the same object if the
    replica stays: it is sound, the only one, or damaged and no other member could lead.
    """
    if soundness is Soundness.SOUND:
        return partition
    others = {*partition.isr, *partition.elr} - {broker}
    if soundness is Soundness.DAMAGED and others.isdisjoint(availability.eligible):
        return partition
    return lost_its_disk(partition, broker, rules)


def decide_report(
    cluster: Cluster, request: ReportReplicas
) -> tuple[Change | None, ReportedReplicas]:
    """Decide on each replica alone. Raises TidemarkError STALE_BROKER_EPOCH if the broker is not
    registered under its epoch.
    """
    image, broker_id = cluster.image, request.broker_id
    check_broker_epoch(image, broker_id, request.broker_epoch)
    availability = availability_of(image, frozenset())
    drafts: _Drafts = {}
    rows = []
    for one in request.replicas:
        topic = image.topics_by_id.get(one.topic_id)
        code = ErrorCode.UNKNOWN_TOPIC_ID
        if topic is not None:
            code = _judge(topic, one, broker_id, availability, rules_of(image, topic), drafts)
        rows.append(ReportedReplica(one.topic_id, one.partition, code))
    if not drafts:
        return None, ReportedReplicas(tuple(rows))
    delta = ClusterDelta(topics_changed=with_partitions(image, drafts))
    return Change(delta, unclean=_unclean(cluster, drafts)), ReportedReplicas(tuple(rows))


def _unclean(cluster: Cluster, drafts: _Drafts) -> int:
    """Count the elections that may have lost committed records."""
    topics = cluster.image.topics_by_id
    return sum(
        after.leader not in (NO_BROKER, topics[topic_id].partitions[number].leader)
        and is_unclean(topics[topic_id].partitions[number], after.leader)
        for topic_id, changed in drafts.items()
        for number, after in changed.items()
    )


def _judge(
    topic: TopicImage,
    reported: UnsoundReplica,
    broker: BrokerId,
    availability: BrokerAvailability,
    rules: TopicRules,
    drafts: _Drafts,
) -> ErrorCode:
    if not 0 <= reported.partition < len(topic.partitions):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    changed: Mapping[int, PartitionImage] = drafts.get(topic.topic_id, {})
    before = changed.get(reported.partition, topic.partitions[reported.partition])
    if broker not in before.replicas:
        return ErrorCode.NONE
    is_member = broker in (*before.isr, *before.elr)
    if not is_member and reported.leader_epoch < before.leader_epoch:
        return ErrorCode.NONE  # no fetch of the replica names the present epoch
    after = _reported(before, reported, broker, availability, rules)
    if is_member and broker in (*after.isr, *after.elr):
        return ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    drafts.setdefault(topic.topic_id, {})[before.partition] = after
    return ErrorCode.NONE


def _reported(
    before: PartitionImage,
    reported: UnsoundReplica,
    broker: BrokerId,
    availability: BrokerAvailability,
    rules: TopicRules,
) -> PartitionImage:
    """Return the partition without the replica in ISR and ELR, in another leader epoch: a fetch
    that the replica sent before its report must not bring it back. A leader that is offline is
    replaced in the same write.
    """
    soundness = Soundness.LOST if reported.offline else Soundness.DAMAGED
    after = without_unsound(before, broker, soundness, availability=availability, rules=rules)
    if broker in (*after.isr, *after.elr):
        return before
    if after.leader_epoch == before.leader_epoch:
        after = next_epoch(after, after.leader)
    if before.leader == broker and reported.offline:
        others = frozenset(availability.eligible) - {broker}
        after = completed(elect(after, replace(availability, eligible=others), rules))
    return after
