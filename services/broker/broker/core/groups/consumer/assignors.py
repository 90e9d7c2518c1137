"""Server-side assignors of KIP-848: the partitions that each member should have.

Pure and deterministic: the same members, topics and previous target give the same target, in
whatever order they come. An assignor returns a target; ``reconciliation`` moves the partitions.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from tidemark.model.assignment import Assignment, by_topic, pairs
from tidemark.model.ids import TopicId

from broker.core.groups.consumer.uniform_assignor import assign_evenly


@dataclass(frozen=True, slots=True)
class AssignorMember:
    """One member as an assignor sees it."""

    member_id: str
    instance_id: str | None
    topics: frozenset[TopicId]
    """Subscribed topics that exist."""
    target: Assignment = field(default_factory=dict)
    """Target of the member until now."""


Assignor = Callable[[Sequence[AssignorMember], Mapping[TopicId, int]], dict[str, Assignment]]
"""Function of members and of partition counts by topic; returns targets by member id."""


def assign_uniform(
    members: Sequence[AssignorMember], partition_counts: Mapping[TopicId, int]
) -> dict[str, Assignment]:
    """Return a target as even as the subscriptions allow, and among such targets close to the
    previous one. With equal subscriptions no two members differ by more than one partition, and the
    fewest possible partitions move.
    """
    ordered = sorted(members, key=lambda member: member.member_id)
    kept = _kept(ordered, partition_counts)
    taken = {one for partitions in kept.values() for one in partitions}
    subscribed = frozenset[TopicId]().union(*(member.topics for member in ordered))
    free = [
        (topic_id, partition)
        for topic_id in sorted(subscribed)
        for partition in range(partition_counts[topic_id])
        if (topic_id, partition) not in taken
    ]
    subscriptions = {member.member_id: member.topics for member in ordered}
    assigned = assign_evenly(subscriptions, kept, free)
    return {member_id: by_topic(partitions) for member_id, partitions in assigned.items()}


def assign_range(
    members: Sequence[AssignorMember], partition_counts: Mapping[TopicId, int]
) -> dict[str, Assignment]:
    """Return a contiguous range of each topic for each subscriber, the first ones with one more.

    Topics with equal counts and subscribers are split alike, so that equal partition numbers go to
    the same member. Static members come first, by instance id, so that a restart moves nothing.
    """
    ordered = sorted(members, key=_range_order)
    subscribers: dict[TopicId, list[str]] = {}
    for member in ordered:
        for topic_id in member.topics:
            subscribers.setdefault(topic_id, []).append(member.member_id)
    target: dict[str, dict[TopicId, frozenset[int]]] = {member.member_id: {} for member in ordered}
    for topic_id in sorted(subscribers):
        ranges = _ranges(partition_counts[topic_id], len(subscribers[topic_id]))
        for member_id, partitions in zip(subscribers[topic_id], ranges, strict=True):
            if partitions:
                target[member_id][topic_id] = frozenset(partitions)
    return dict(target)


ASSIGNORS: Final[Mapping[str, Assignor]] = MappingProxyType(
    {"uniform": assign_uniform, "range": assign_range}
)
"""Assignors by their names in Kafka."""


def _kept(
    members: Sequence[AssignorMember], partition_counts: Mapping[TopicId, int]
) -> dict[str, list[tuple[TopicId, int]]]:
    """Return the part of the previous target that may stay: partitions that exist, that the member
    still subscribes to, and that no earlier member keeps.
    """
    kept: dict[str, list[tuple[TopicId, int]]] = {}
    taken: set[tuple[TopicId, int]] = set()
    for member in members:
        stays = [
            one
            for one in pairs(member.target)
            if one[0] in member.topics and one[1] < partition_counts[one[0]] and one not in taken
        ]
        taken.update(stays)
        kept[member.member_id] = stays
    return kept


def _range_order(member: AssignorMember) -> tuple[bool, str]:
    if member.instance_id is None:
        return True, member.member_id
    return False, member.instance_id


def _ranges(partition_count: int, parts: int) -> Iterator[range]:
    size, longer = divmod(partition_count, parts)
    first = 0
    for part in range(parts):
        end = first + size + (part < longer)
        yield range(first, end)
        first = end
