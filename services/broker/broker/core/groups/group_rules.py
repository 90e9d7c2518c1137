"""Rules common to groups of both protocols: commits, tombstones, subscriptions."""

from collections.abc import Callable, Mapping, Sequence

from tidemark.codec.group_records import GroupMetadataRecord, GroupRecord
from tidemark.model.errors import ErrorCode

from broker.core.groups.classic import member_requests
from broker.core.groups.classic.group import ClassicGroup
from broker.core.groups.consumer.group import ConsumerGroup
from broker.core.groups.effects import Answer, Membership
from broker.core.groups.id_requests import CoordinatorReply
from broker.core.groups.requests import (
    ConsumerGroupDescribe,
    ConsumerGroupHeartbeatReply,
    DescribeGroup,
    GroupReply,
    GroupRequest,
    OffsetCommit,
    SyncGroup,
    SyncGroupReply,
    TxnOffsetCommit,
)

AnyGroup = ClassicGroup | ConsumerGroup


def commit_refused(group: AnyGroup | None, request: OffsetCommit) -> ErrorCode:
    """Return the error of a commit from a sender that may not move the group's offsets, or NONE.

    An unused group id is a new group of consumers that assign partitions themselves.
    """
    if isinstance(group, ConsumerGroup):
        return group.commit_refused(
            request.member_id,
            request.generation_or_epoch,
            request.group_instance_id,
            knows_epochs=request.knows_epochs,
        )
    if group is not None:
        return member_requests.commit_refused(group, request) or ErrorCode.NONE
    named = request.generation_or_epoch >= 0
    return ErrorCode.GROUP_ID_NOT_FOUND if named else ErrorCode.NONE


def confirmed_by(request: GroupRequest, reply: GroupReply) -> Membership | None:
    """Return the membership with which a reply at once assigns partitions, if it does."""
    if isinstance(reply, ConsumerGroupHeartbeatReply):
        if not reply.assignment or reply.member_id is None:
            return None
        return Membership(request.group_id, reply.member_id, reply.member_epoch)
    if isinstance(request, SyncGroup) and isinstance(reply, SyncGroupReply) and reply.assignment:
        return Membership(request.group_id, request.member_id, request.generation_id)
    return None


def reply_now(groups: Mapping[str, AnyGroup], answer: Answer) -> CoordinatorReply:
    """Return the reply to send for an answer whose decision is committed. A member that its group
    has lost meanwhile, as its session ended, must not take what others may have by now.
    """
    named = answer.confirms
    if named is None:
        return answer.reply
    group = groups.get(named.group_id)
    if isinstance(group, ConsumerGroup):
        is_member = named.member_id in group.logged.members
    else:
        is_member = group is not None and named.member_id in group.members
    if not is_member:
        unknown = ErrorCode.UNKNOWN_MEMBER_ID
        if isinstance(answer.reply, ConsumerGroupHeartbeatReply):
            return ConsumerGroupHeartbeatReply(error_code=unknown)
        return SyncGroupReply(error_code=unknown)
    if isinstance(group, ClassicGroup) and group.generation != named.generation:
        return SyncGroupReply(error_code=ErrorCode.ILLEGAL_GENERATION)
    return answer.reply


def missing(
    group: AnyGroup | None, request: DescribeGroup | ConsumerGroupDescribe, kind: str
) -> str:
    """Return Kafka's message where the group is not there, or is not of the ``kind`` requested."""
    return f"Group {request.group_id} " + (
        "not found." if group is None else f"is not a {kind} group."
    )


def producer_problem(request: TxnOffsetCommit) -> ErrorCode:
    """Return the error of a transactional commit that names no producer, or NONE."""
    if request.producer_id < 0 or request.producer_epoch < 0:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    return ErrorCode.NONE


def txn_commit_refused(group: AnyGroup | None, request: TxnOffsetCommit) -> ErrorCode:
    """Return the error of a transactional commit, or NONE (KIP-447).

    Its producer sends generations, never member epochs, so a stale epoch is ILLEGAL_GENERATION.
    """
    problem = producer_problem(request)
    if problem is not ErrorCode.NONE:
        return problem
    if isinstance(group, ConsumerGroup):
        if member_requests.names_no_member(request, request.generation_id):
            return ErrorCode.NONE
        refused = group.commit_refused(
            request.member_id, request.generation_id, request.group_instance_id
        )
        stale = refused is ErrorCode.STALE_MEMBER_EPOCH
        return ErrorCode.ILLEGAL_GENERATION if stale else refused
    if group is not None:
        return member_requests.txn_commit_refused(group, request) or ErrorCode.NONE
    return ErrorCode.ILLEGAL_GENERATION if request.generation_id >= 0 else ErrorCode.NONE


def tombstones(group: AnyGroup) -> Sequence[GroupRecord]:
    """Return the records that end a group in the log."""
    if isinstance(group, ConsumerGroup):
        return group.tombstones()
    return (GroupMetadataRecord(group.group_id, None),) if group.is_logged else ()


def is_unused(group: AnyGroup) -> bool:
    """True if the group has no members and waits for none."""
    return group.is_empty and not (isinstance(group, ClassicGroup) and group.pending)


def is_subscribed(group: AnyGroup) -> Callable[[str], bool]:
    """Return a function that is true for each topic name that a member may read."""
    return group.is_subscribed_to if isinstance(group, ClassicGroup) else group.subscribes_to
