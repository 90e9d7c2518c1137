"""What the admin client tells of consumer groups and transactions. Plain values."""

from dataclasses import dataclass
from typing import Final, NamedTuple

from tidemark.model.topics import TopicPartition

QUIET_STATES: Final = frozenset({"Empty", "Dead"})
"""In these a group has no members: its offsets may be moved and deleted."""


class GroupListing(NamedTuple):
    """One group as its coordinator lists it. ``kind`` is Kafka's group type: Classic, Consumer,
    ...; '' where the broker does not tell.
    """

    group_id: str
    kind: str
    protocol_type: str
    state: str
    coordinator: int


@dataclass(frozen=True, slots=True)
class MemberDescription:
    """One member and what it reads now; ``member_epoch`` is -1 in a classic group."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    host: str
    member_epoch: int
    assignment: tuple[TopicPartition, ...]
    target: tuple[TopicPartition, ...] = ()


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """One group; ``epoch`` and ``assignment_epoch`` are -1 in a classic one."""

    group_id: str
    kind: str
    state: str
    assignor: str
    members: tuple[MemberDescription, ...]
    epoch: int = -1
    assignment_epoch: int = -1

    @property
    def is_quiet(self) -> bool:
        """Whether it has no members."""
        return self.state in QUIET_STATES


class TransactionListing(NamedTuple):
    """One transactional id; ``state`` in Kafka's words (Ongoing, PrepareCommit, ...)."""

    transactional_id: str
    producer_id: int
    state: str


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """One transactional id and its open transaction; ``started_ms`` is -1 when none is open."""

    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    started_ms: int
    partitions: tuple[TopicPartition, ...]
