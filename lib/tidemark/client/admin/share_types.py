"""Types of the admin client for share groups. Plain values."""

from dataclasses import dataclass
from typing import NamedTuple

from tidemark.client.admin.group_types import QUIET_STATES
from tidemark.model.topics import TopicPartition


@dataclass(frozen=True, slots=True)
class ShareMemberDescription:
    """Member of a share group. Several members may have the same partition."""

    member_id: str
    client_id: str
    host: str
    rack: str | None
    member_epoch: int
    topics: tuple[str, ...]
    """Topics of its subscription."""
    assignment: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class ShareGroupDescription:
    """Share group with its members."""

    group_id: str
    state: str
    assignor: str
    members: tuple[ShareMemberDescription, ...]
    epoch: int
    assignment_epoch: int

    @property
    def is_quiet(self) -> bool:
        """True if the group has no members."""
        return self.state in QUIET_STATES


class ShareGroupOffset(NamedTuple):
    """Start offset of a share-partition: records before it are not delivered again."""

    start_offset: int | None
    """None: no member has read the partition yet."""
    leader_epoch: int
    lag: int | None
    """Number of records whose delivery is not complete; None: unknown."""
    dead_letter_problem: str | None = None
    """Reason for which dead letters are not copied to their queue; None if they are."""
