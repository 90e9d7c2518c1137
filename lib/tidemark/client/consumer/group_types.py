"""What a consumer group's users give and get. Plain values, and the listener they may implement."""

from collections.abc import Awaitable, Iterable, Mapping
from typing import Final, NamedTuple, Protocol

from tidemark.model.topics import TopicPartition

NO_MEMBER_EPOCH: Final = -1


class OffsetAndMetadata(NamedTuple):
    """A committed offset: of the next record to read, with a text of the user's (D05)."""

    offset: int
    metadata: str = ""
    leader_epoch: int = -1


class GroupMetadata(NamedTuple):
    """Who commits: what a transactional producer needs to commit a consumer's offsets (KIP-447).

    ``member_epoch`` -1 and no member id: a simple consumer, which is no member.
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
"""What users write: a plain offset has no metadata."""


class RebalanceListener(Protocol):
    """Told, within poll(), of partitions that come and go. Each may be a plain or an async
    function.
    """

    def on_assigned(self, partitions: tuple[TopicPartition, ...]) -> Awaitable[None] | None:
        """These are ours now; seek() here to begin elsewhere than at the committed offset."""
        ...

    def on_revoked(self, partitions: tuple[TopicPartition, ...]) -> Awaitable[None] | None:
        """These go to another member once this returns: the last chance to commit."""
        ...

    def on_lost(self, partitions: tuple[TopicPartition, ...]) -> Awaitable[None] | None:
        """These are another's already, we were fenced: do not commit."""
        ...


class NoListener:
    """Hears nothing; a listener may inherit from it and implement what it needs."""

    def on_assigned(self, partitions: tuple[TopicPartition, ...]) -> Awaitable[None] | None:
        """Nothing to do."""
        return None

    def on_revoked(self, partitions: tuple[TopicPartition, ...]) -> Awaitable[None] | None:
        """Nothing to do."""
        return None

    def on_lost(self, partitions: tuple[TopicPartition, ...]) -> Awaitable[None] | None:
        """Nothing to do."""
        return None


def as_offsets(offsets: OffsetsInput) -> dict[TopicPartition, OffsetAndMetadata]:
    """Offsets as users write them, whole. Raises ValueError for a negative one."""
    whole = {
        TopicPartition(*partition): OffsetAndMetadata(each) if isinstance(each, int) else each
        for partition, each in offsets.items()
    }
    for partition, each in whole.items():
        if each.offset < 0:
            raise ValueError(f"offset {each.offset} of {partition} is negative")
    return whole


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Partition numbers by topic, in order of both."""
    groups: dict[str, list[int]] = {}
    for topic, number in sorted(partitions):
        groups.setdefault(topic, []).append(number)
    return groups
