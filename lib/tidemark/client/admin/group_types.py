"""Types of the admin client for groups and transactions. Plain values."""

from dataclasses import dataclass
from typing import Final, NamedTuple

from tidemark.model.topics import TopicPartition

QUIET_STATES: Final = frozenset({"Empty", "Dead"})
"""States without members, in which offsets may be moved and deleted."""

CLASSIC: Final = "classic"
CONSUMER: Final = "consumer"


class GroupListing(NamedTuple):
    """Group as its coordinator lists it. ``kind`` is Kafka's group type, '' if not reported."""

    group_id: str
    kind: str
    protocol_type: str
    state: str
    coordinator: int


@dataclass(frozen=True, slots=True)
class MemberDescription:
    """Member and its assignment; ``member_epoch`` is -1 in a classic group. ``protocol`` is that of
    the member, ``classic`` or ``consumer``: a consumer group may have both while it is migrated.
    """

    member_id: str
    group_instance_id: str | None
    client_id: str
    host: str
    member_epoch: int
    assignment: tuple[TopicPartition, ...]
    target: tuple[TopicPartition, ...] = ()
    protocol: str = CONSUMER


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """Group; ``epoch`` and ``assignment_epoch`` are -1 in a classic one."""

    group_id: str
    kind: str
    state: str
    assignor: str
    members: tuple[MemberDescription, ...]
    epoch: int = -1
    assignment_epoch: int = -1

    @property
    def is_quiet(self) -> bool:
        """True if the group has no members."""
        return self.state in QUIET_STATES


class TransactionListing(NamedTuple):
    """Transactional id; ``state`` is Kafka's name (Ongoing, PrepareCommit, ...)."""

    transactional_id: str
    producer_id: int
    state: str


OPEN_STATES: Final = frozenset({"Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence"})
"""States in which the coordinator still has to end a transaction in its partitions."""


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """Transactional id and its open transaction; ``started_ms`` is -1 without one."""

    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    started_ms: int
    partitions: tuple[TopicPartition, ...]
