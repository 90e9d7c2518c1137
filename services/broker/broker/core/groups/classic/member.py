"""One member of a group of the classic protocol."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from tidemark.codec.group_records import MemberMetadata

from broker.core.groups.requests import DescribedMember, JoinGroup, JoinProtocol

NO_ASSIGNMENT: Final = b""


@dataclass(slots=True)
class Member:
    """A member's own details, its assignment, and its waiting requests."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: tuple[JoinProtocol, ...]
    assignment: bytes = NO_ASSIGNMENT
    awaiting_join: int | None = None
    """Id of the JoinGroup to answer when the generation begins; set by ``ClassicGroup`` alone."""
    awaiting_sync: int | None = None
    """Id of the SyncGroup to answer when the assignment is in the log."""
    is_new: bool = False
    """True until the member's first generation begins; its session can end even while it waits."""

    @property
    def is_static(self) -> bool:
        """True if the member keeps its place over a restart (KIP-345)."""
        return self.group_instance_id is not None

    @property
    def awaits_reply(self) -> bool:
        """True if the member cannot send heartbeats because a request of it waits."""
        return not self.is_new and (
            self.awaiting_join is not None or self.awaiting_sync is not None
        )

    def metadata(self, protocol: str | None) -> bytes:
        """Return the member's subscription in a protocol; empty if it does not support it."""
        return next((one.metadata for one in self.protocols if one.name == protocol), b"")

    def vote(self, candidates: Collection[str]) -> str:
        """Return the member's preferred protocol among ``candidates``."""
        return next(one.name for one in self.protocols if one.name in candidates)

    def record(self, protocol: str, assignment: bytes) -> MemberMetadata:
        """Return the member's part of the group's record."""
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
        """Return the member as DescribeGroups shows it; without a protocol its bytes are empty."""
        return DescribedMember(
            self.member_id,
            self.group_instance_id,
            self.client_id,
            self.client_host,
            self.metadata(protocol) if protocol is not None else b"",
            self.assignment if protocol is not None else NO_ASSIGNMENT,
        )


def joining_member(member_id: str, request: JoinGroup) -> Member:
    """Return a member with the details in its JoinGroup."""
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
    """Return a member from the log; it supports only the logged protocol until it joins again."""
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
