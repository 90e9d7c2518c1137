"""Assignments of a group's members: which partitions of which topics, by topic id."""

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from tidemark.model.ids import TopicId

Assignment = Mapping[TopicId, frozenset[int]]
"""Partitions by topic; a topic without partitions is left out."""

NOTHING: Final[Assignment] = MappingProxyType({})


class TopicIdPartitions(NamedTuple):
    """Some partitions of one topic, by its id."""

    topic_id: TopicId
    partitions: tuple[int, ...]


def by_topic(partitions: Iterable[tuple[TopicId, int]]) -> Assignment:
    """Pairs of topic and partition as an assignment."""
    found: dict[TopicId, set[int]] = {}
    for topic_id, partition in partitions:
        found.setdefault(topic_id, set()).add(partition)
    return {topic_id: frozenset(numbers) for topic_id, numbers in found.items()}


def pairs(assignment: Assignment) -> Iterator[tuple[TopicId, int]]:
    """An assignment as pairs of topic and partition, in order."""
    for topic_id in sorted(assignment):
        for partition in sorted(assignment[topic_id]):
            yield topic_id, partition


def assignment_of(topics: Iterable[TopicIdPartitions]) -> Assignment:
    """From the form of requests and records; topics named twice are put together."""
    found: dict[TopicId, frozenset[int]] = {}
    for topic_id, partitions in topics:
        numbers = found.get(topic_id, frozenset()) | frozenset(partitions)
        if numbers:
            found[topic_id] = numbers
    return found


def listed(assignment: Assignment) -> tuple[TopicIdPartitions, ...]:
    """The form of requests and records, in order."""
    return tuple(
        TopicIdPartitions(topic_id, tuple(sorted(assignment[topic_id])))
        for topic_id in sorted(assignment)
    )
