"""Types of the consumer group API: plain values and the rebalance listener."""

from collections.abc import Awaitable, Iterable, Mapping
from typing import Final, NamedTuple, Protocol

from tidemark.model.topics import TopicPartition

NO_MEMBER_EPOCH: Final = -1


class OffsetAndMetadata(NamedTuple):
    """Committed offset of the next record to read, with the user's metadata."""

    offset: int
    metadata: str = ""
    leader_epoch: int = -1


class GroupMetadata(NamedTuple):
    """Identity of a group member, with which transactional producers commit offsets (KIP-447).

    A simple consumer has no member id and ``member_epoch`` -1.
    """

    group_id: str
    member_epoch: int = NO_MEMBER_EPOCH
    member_id: str = ""
    group_instance_id: str | None = None


Offsets = Mapping[TopicPartition, OffsetAndMetadata]
OffsetsInput = (
    Mapping[TopicPartition, int | OffsetAndMetadata]
    | Mapping[tuple[str, int], int | OffsetAndMetadata]
)
"""Offsets as users pass them: a plain number has no metadata."""


class RebalanceListener(Protocol):
    """Called within ``poll`` when partitions change. Methods may be plain or asynchronous."""

    def on_assigned(self, partitions: tuple[TopicPartition, ...]) -> Awaitable[None] | None:
        """Partitions were assigned. Call ``seek`` here to override the committed offsets."""
        ...

    def on_revoked(self, partitions: tuple[TopicPartition, ...]) -> Awaitable[None] | None:
        """Partitions move to another member when this returns: the last chance to commit."""
        ...

    def on_lost(self, partitions: tuple[TopicPartition, ...]) -> Awaitable[None] | None:
        """Partitions already belong to another member (this one was fenced): do not commit."""
        ...


class NoListener:
    """Listener that does nothing; base class of listeners that implement some of the methods."""

    def on_assigned(self, partitions: tuple[TopicPartition, ...]) -> Awaitable[None] | None:
        """Do nothing."""
        return None

    def on_revoked(self, partitions: tuple[TopicPartition, ...]) -> Awaitable[None] | None:
        """Do nothing."""
        return None

    def on_lost(self, partitions: tuple[TopicPartition, ...]) -> Awaitable[None] | None:
        """Do nothing."""
        return None


def as_offsets(offsets: OffsetsInput) -> dict[TopicPartition, OffsetAndMetadata]:
    """Convert offsets to OffsetAndMetadata. Raises ValueError for a negative offset."""
    whole = {
        TopicPartition(*partition): OffsetAndMetadata(each) if isinstance(each, int) else each
        for partition, each in offsets.items()
    }
    for partition, each in whole.items():
        if each.offset < 0:
            raise ValueError(f"offset {each.offset} of {partition} is negative")
    return whole


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Return partition numbers by topic, sorted."""
    groups: dict[str, list[int]] = {}
    for topic, number in sorted(partitions):
        groups.setdefault(topic, []).append(number)
    return groups
