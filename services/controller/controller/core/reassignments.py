"""Moves of replicas (KIP-455): new ones are added and catch up; then old ones are removed.

A removal raises the leader epoch (as in Kafka), so that fetches of the removed replica are fenced:
its broker may not have the metadata of the removal yet. If the replica were added again meanwhile,
it would catch up and join the ISR with the log that its broker is about to delete.
"""

from collections.abc import Collection
from dataclasses import replace

from tidemark.model.errors import ErrorCode, TidemarkError
from tidemark.model.ids import NO_BROKER, BrokerId, PartitionEpoch, TopicId
from tidemark.model.metadata import ClusterDelta, ClusterImage, PartitionImage

from controller.core.cluster import Change, Cluster, with_partitions
from controller.core.effects import PartitionResult, PartitionResults
from controller.core.election_rules import demote, next_epoch
from controller.core.inputs import AlterReassignments, Move
from controller.core.placement import check_assignment


def target_of(partition: PartitionImage) -> tuple[BrokerId, ...]:
    """Return the replicas at the end of the move that is under way."""
    return tuple(one for one in partition.replicas if one not in partition.removing)


def original_of(partition: PartitionImage) -> tuple[BrokerId, ...]:
    """Return the replicas before the move that is under way."""
    return tuple(one for one in partition.replicas if one not in partition.adding)


def moved_to(
    partition: PartitionImage, target: tuple[BrokerId, ...], alive: Collection[BrokerId]
) -> PartitionImage:
    """Return the partition as it begins to move to ``target``, from its replicas before any move.

    Replicas that an earlier move added are removed at once; a leader among them is demoted. Raises
    TidemarkError INVALID_REPLICA_ASSIGNMENT if no other replica could lead.
    """
    original = original_of(partition)
    everyone = (*target, *(one for one in original if one not in target))
    _require_member(partition, everyone, alive)
    isr = tuple(one for one in partition.isr if one in everyone)
    made = replace(
        partition,
        replicas=everyone,
        adding=tuple(one for one in target if one not in original),
        removing=tuple(one for one in original if one not in target),
        isr=isr,
        elr=tuple(one for one in partition.elr if one in everyone),
        partition_epoch=PartitionEpoch(partition.partition_epoch + 1),
    )
    return completed(_fenced(partition, made))


def cancelled(partition: PartitionImage, alive: Collection[BrokerId]) -> PartitionImage:
    """Return the partition with its replicas before the move. Raises TidemarkError
    INVALID_REPLICA_ASSIGNMENT if only new replicas could lead.
    """
    original = original_of(partition)
    _require_member(partition, original, alive)
    isr = tuple(one for one in partition.isr if one in original)
    made = replace(
        partition,
        replicas=original,
        adding=(),
        removing=(),
        isr=isr,
        elr=tuple(one for one in partition.elr if one in original),
        partition_epoch=PartitionEpoch(partition.partition_epoch + 1),
    )
    return _fenced(partition, made)


def _require_member(
    partition: PartitionImage, kept: Collection[BrokerId], alive: Collection[BrokerId]
) -> None:
    """Raise TidemarkError if the partition loses every replica that has all committed records, or
    that is alive and has them. The dead may stay in the ISR, and return without their disks.
    """
    members = {*(partition.isr or partition.elr)}
    for able in (members, members.intersection(alive)):
        if able and able.isdisjoint(kept):
            raise TidemarkError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                "Only replicas that the present move has added are in sync and alive: wait until"
                " others are.",
            )


def completed(partition: PartitionImage) -> PartitionImage:
    """Return the partition with its target replicas alone, once all of them are in sync. A leader
    that is removed is demoted first.
    """
    target = target_of(partition)
    if not partition.is_reassigning or not set(target) <= set(partition.isr):
        return partition
    made = replace(
        partition,
        replicas=target,
        adding=(),
        removing=(),
        isr=tuple(one for one in partition.isr if one in target),
        elr=tuple(one for one in partition.elr if one in target),
        partition_epoch=PartitionEpoch(partition.partition_epoch + 1),
    )
    return _fenced(partition, made)


def _fenced(before: PartitionImage, after: PartitionImage) -> PartitionImage:
    """Return ``after`` in the next leader epoch if it lacks a replica of ``before``. A leader that
    is removed is demoted.
    """
    if set(before.replicas) <= set(after.replicas) or after.leader == NO_BROKER:
        return after
    if after.leader not in after.replicas:
        return demote(after)
    return next_epoch(after, after.leader)


class _Room:
    """Replicas that each topic may still get: those of all its partitions are in one znode."""

    def __init__(self, image: ClusterImage, replicas_max: int) -> None:
        self._image = image
        self._replicas_max = replicas_max
        self._left: dict[str, int] = {}

    def take(self, topic: str, before: PartitionImage, after: PartitionImage) -> None:
        """Count what a partition gets. Raises TidemarkError POLICY_VIOLATION if it is too much."""
        if topic not in self._left:
            partitions = self._image.topics[topic].partitions
            self._left[topic] = self._replicas_max - sum(len(one.replicas) for one in partitions)
        more = len(after.replicas) - len(before.replicas)
        if more > max(self._left[topic], 0):
            raise TidemarkError(
                ErrorCode.POLICY_VIOLATION,
                f"A topic may have {self._replicas_max} replicas, those of all its partitions"
                " together and those that a move removes at its end: move fewer at once.",
            )
        self._left[topic] -= more


def decide_reassignments(
    cluster: Cluster, request: AlterReassignments, replicas_per_topic_max: int
) -> tuple[Change | None, PartitionResults]:
    """Decide on each partition alone."""
    image, room = cluster.image, _Room(cluster.image, replicas_per_topic_max)
    drafts: dict[TopicId, dict[int, PartitionImage]] = {}
    results: list[PartitionResult] = []
    for move in request.moves:
        try:
            before = _find(image, move)
            after = _moved(image, before, move, request)
            room.take(move.topic, before, after)
        except TidemarkError as error:
            results.append(PartitionResult(move.topic, move.partition, error.code, error.message))
            continue
        results.append(PartitionResult(move.topic, move.partition))
        if after != before:
            topic_id = image.topics[move.topic].topic_id
            drafts.setdefault(topic_id, {})[move.partition] = after
    if not drafts:
        return None, PartitionResults(tuple(results))
    delta = ClusterDelta(topics_changed=with_partitions(image, drafts))
    return Change(delta), PartitionResults(tuple(results))


def _find(image: ClusterImage, move: Move) -> PartitionImage:
    topic = image.topics.get(move.topic)
    if topic is None or not 0 <= move.partition < len(topic.partitions):
        raise TidemarkError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no {move.topic}-{move.partition}."
        )
    return topic.partitions[move.partition]


def _moved(
    image: ClusterImage, partition: PartitionImage, move: Move, request: AlterReassignments
) -> PartitionImage:
    alive = {one.broker_id for one in image.brokers.values() if not one.fenced}
    if move.replicas is None:
        if not partition.is_reassigning:
            raise TidemarkError(
                ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "No reassignment is in progress."
            )
        return cancelled(partition, alive)
    check_assignment(move.replicas, dict(image.brokers), None)
    if not request.allow_rf_change and len(move.replicas) != len(original_of(partition)):
        raise TidemarkError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"The replication factor is {len(original_of(partition))}, and may not change to"
            f" {len(move.replicas)}.",
        )
    if move.replicas == target_of(partition):
        return partition
    return moved_to(partition, move.replicas, alive)
