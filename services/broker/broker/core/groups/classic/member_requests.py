"""Requests of members of a classic group other than JoinGroup: SyncGroup, Heartbeat, LeaveGroup,
and the checks of offset commits.
"""

from tidemark.model.errors import ErrorCode
from tidemark.protocol.shard import Moment

from broker.core.groups.classic.group import CONSUMER_PROTOCOL_TYPE, ClassicGroup
from broker.core.groups.classic.member import Member
from broker.core.groups.classic.rebalance import Rebalance, answer_assigned
from broker.core.groups.classic.states import GroupState
from broker.core.groups.effects import Outcome
from broker.core.groups.requests import (
    NO_GENERATION,
    UNKNOWN_MEMBER,
    Heartbeat,
    LeaveGroup,
    LeaveGroupReply,
    LeavingMember,
    LeftMember,
    OffsetCommit,
    SyncGroup,
    SyncGroupReply,
    TxnOffsetCommit,
)


def sync(
    rebalance: Rebalance,
    group: ClassicGroup,
    request_id: int,
    request: SyncGroup,
    now: Moment,
    out: Outcome,
) -> None:
    """Answer with the member's assignment, or let the request wait for the leader's.

    The leader's SyncGroup makes the group stable once its record is in the log.
    """
    member = _current_member(
        group, request.member_id, request.group_instance_id, request.generation_id
    )
    error_code = _sync_refusal(group, member, request)
    if error_code is not None:
        out.answer(request_id, SyncGroupReply(error_code=error_code))
        return
    assert isinstance(member, Member)
    if group.state is GroupState.STABLE:
        rebalance.synced(group, member)
        rebalance.renew_session(group, member, now)
        answer_assigned(group, member, request_id, out)
        return
    if member.awaiting_sync is not None:  # the client gave up on it and retries
        superseded = SyncGroupReply(error_code=ErrorCode.REBALANCE_IN_PROGRESS)
        out.answer(member.awaiting_sync, superseded)
    member.awaiting_sync = request_id
    rebalance.synced(group, member)
    if member.member_id == group.leader:
        rebalance.assign(group, dict(request.assignments), now, out)


def _sync_refusal(
    group: ClassicGroup, member: Member | ErrorCode, request: SyncGroup
) -> ErrorCode | None:
    if isinstance(member, ErrorCode):
        return member
    if request.protocol_type not in (None, group.protocol_type):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if request.protocol_name not in (None, group.protocol):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if group.state is GroupState.PREPARING_REBALANCE:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return None


def heartbeat(
    rebalance: Rebalance, group: ClassicGroup, request: Heartbeat, now: Moment
) -> ErrorCode:
    """Renew the member's session; return REBALANCE_IN_PROGRESS if it must join again."""
    member = _current_member(
        group, request.member_id, request.group_instance_id, request.generation_id
    )
    if isinstance(member, ErrorCode):
        return member
    rebalance.renew_session(group, member, now)
    if group.state is GroupState.PREPARING_REBALANCE:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def _current_member(
    group: ClassicGroup, member_id: str, group_instance_id: str | None, generation: int
) -> Member | ErrorCode:
    member = group.identify(member_id, group_instance_id)
    if isinstance(member, Member) and generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    return member


def leave(
    rebalance: Rebalance, group: ClassicGroup, request: LeaveGroup, now: Moment, out: Outcome
) -> LeaveGroupReply:
    """Remove the members; they share one rebalance."""
    count = len(group.members)
    left = tuple(_leave_one(rebalance, group, leaving, out) for leaving in request.members)
    if len(group.members) < count:
        rebalance.members_changed(group, now, out)
    else:
        rebalance.maybe_complete_join(group, now, out)
    return LeaveGroupReply(error_code=ErrorCode.NONE, members=left)


def left_unknown_group(request: LeaveGroup) -> LeaveGroupReply:
    """Return the reply for a group that does not exist: all members are unknown."""
    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    left = tuple(
        LeftMember(each.member_id, each.group_instance_id, unknown) for each in request.members
    )
    return LeaveGroupReply(error_code=ErrorCode.NONE, members=left)


def _leave_one(
    rebalance: Rebalance, group: ClassicGroup, leaving: LeavingMember, out: Outcome
) -> LeftMember:
    member_id, instance_id = leaving.member_id, leaving.group_instance_id
    if member_id in group.pending:
        group.remove(member_id)
        rebalance.forget(group, member_id)
        return LeftMember(member_id, instance_id, ErrorCode.NONE)
    if member_id == UNKNOWN_MEMBER:  # an administrator names static members by instance ids
        member: Member | ErrorCode = group.static_member(instance_id) or ErrorCode.UNKNOWN_MEMBER_ID
    else:
        member = group.identify(member_id, instance_id)
    if isinstance(member, ErrorCode):
        return LeftMember(member_id, instance_id, member)
    rebalance.remove_member(group, member, out)
    return LeftMember(member_id, instance_id, ErrorCode.NONE)


def commit_refused(group: ClassicGroup, request: OffsetCommit) -> ErrorCode | None:
    """Return the error of an offset commit, or None.

    Only members of the current generation may commit: an expired member must not move offsets of
    partitions that now belong to another. While the group is empty, commits need no member.
    """
    if request.generation_or_epoch < 0 and group.is_empty:
        return None
    if names_no_member(request, request.generation_or_epoch):
        return ErrorCode.UNKNOWN_MEMBER_ID
    member = _current_member(
        group, request.member_id, request.group_instance_id, request.generation_or_epoch
    )
    if isinstance(member, ErrorCode):
        return member
    if group.state is GroupState.COMPLETING_REBALANCE:
        return ErrorCode.REBALANCE_IN_PROGRESS  # the member has no assignment yet
    return None


def txn_commit_refused(group: ClassicGroup, request: TxnOffsetCommit) -> ErrorCode | None:
    """Return the error of a transactional offset commit, or None (KIP-447).

    Old producers name no member; they are fenced by their transaction alone.
    """
    if names_no_member(request, request.generation_id):
        return None
    if request.generation_id < 0 and group.is_empty:
        return None
    member = _current_member(
        group, request.member_id, request.group_instance_id, request.generation_id
    )
    return member if isinstance(member, ErrorCode) else None


def names_no_member(request: OffsetCommit | TxnOffsetCommit, generation: int) -> bool:
    """True if a commit names neither member nor generation."""
    return (
        generation <= NO_GENERATION
        and request.member_id == UNKNOWN_MEMBER
        and request.group_instance_id is None
    )


def committed(
    rebalance: Rebalance, group: ClassicGroup, request: OffsetCommit, now: Moment
) -> None:
    """Renew the session of a member that committed."""
    member = group.members.get(request.member_id)
    if member is not None:
        rebalance.renew_session(group, member, now)


def offset_delete_refused(group: ClassicGroup) -> ErrorCode | None:
    """Return the error of OffsetDelete, or None. If the members' topics are unknown, nothing may be
    deleted while there are members (KIP-496).
    """
    if group.is_empty or group.protocol_type == CONSUMER_PROTOCOL_TYPE:
        return None
    return ErrorCode.NON_EMPTY_GROUP
