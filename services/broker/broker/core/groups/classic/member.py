"""One member of a group of the classic protocol."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from tidemark.codec.group_records import MemberMetadata

from broker.core.groups.requests import DescribedMember, JoinGroup, JoinProtocol

NO_ASSIGNMENT: Final = b""


@dataclass(slots=True)
class Member:
    """What a member said of itself, what it was given, and which requests of it wait."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: tuple[JoinProtocol, ...]
    assignment: bytes = NO_ASSIGNMENT
    awaiting_join: int | None = None
    """The JoinGroup that is answered when the generation begins; only ``ClassicGroup`` sets it."""
    awaiting_sync: int | None = None
    """The SyncGroup that is answered when the assignment is in the log."""
    is_new: bool = False
    """It has not been in a generation yet: its session runs out even while it waits."""

    @property
    def is_static(self) -> bool:
        """Whether it keeps its place over a restart (KIP-345)."""
        return self.group_instance_id is not None

    @property
    def is_held(self) -> bool:
        """Whether it cannot send heartbeats because we owe it an answer."""
        return not self.is_new and (
            self.awaiting_join is not None or self.awaiting_sync is not None
        )

    def metadata(self, protocol: str | None) -> bytes:
        """Its subscription in one protocol; empty in one that it does not know."""
        return next((one.metadata for one in self.protocols if one.name == protocol), b"")

    def vote(self, candidates: Collection[str]) -> str:
        """The protocol that it likes best of those that all members know."""
        return next(one.name for one in self.protocols if one.name in candidates)

    def record(self, protocol: str, assignment: bytes) -> MemberMetadata:
        """What the log keeps of it."""
        return MemberMetadata(
            self.member_id,
            self.group_instance_id,
            self.client_id,
            self.client_host,
            self.rebalance_timeout_ms,
            self.session_timeout_ms,
            self.metadata(protocol),
            assignment,
        )

    def described(self, protocol: str | None) -> DescribedMember:
        """As DescribeGroups shows it; without a protocol its bytes stay hidden."""
        return DescribedMember(
            self.member_id,
            self.group_instance_id,
            self.client_id,
            self.client_host,
            self.metadata(protocol) if protocol is not None else b"",
            self.assignment if protocol is not None else NO_ASSIGNMENT,
        )


def joining_member(member_id: str, request: JoinGroup) -> Member:
    """A member as it introduces itself."""
    return Member(
        member_id,
        request.group_instance_id,
        request.client_id,
        request.client_host,
        request.rebalance_timeout_ms,
        request.session_timeout_ms,
        request.protocols,
        is_new=True,
    )


def logged_member(record: MemberMetadata, protocol: str | None) -> Member:
    """A member as the log remembers it: it knows one protocol, until it joins again."""
    return Member(
        record.member_id,
        record.group_instance_id,
        record.client_id,
        record.client_host,
        record.rebalance_timeout_ms,
        record.session_timeout_ms,
        (JoinProtocol(protocol, record.subscription),) if protocol is not None else (),
        record.assignment,
    )
