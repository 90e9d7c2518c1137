"""CoordinatorShard: a GroupShard, and the group ids in it that share groups have.

A share group's id is refused to groups of the other types, and the other way round. Before a
request is refused, the share-coordinator is asked whether the group exists: a reservation whose
group was never created, or whose release was lost, ends there.
"""

from collections import deque
from typing import Final

from tidemark.codec.group_records import CoordinatorRecord, ShareGroupMetadataRecord
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import InstantMs
from tidemark.protocol.shard import Decision, Moment, Writer

from broker.core.groups import group_rules
from broker.core.groups.effects import Answer, GroupEffect, LookUpShareGroup
from broker.core.groups.id_requests import (
    CoordinatorReply,
    CoordinatorRequest,
    GroupIdReply,
    HasShareGroup,
    ReleaseGroupId,
    ReserveGroupId,
    ShareGroupLookedUp,
)
from broker.core.groups.name_limits import fits
from broker.core.groups.requests import (
    ConsumerGroupDescribe,
    ConsumerGroupDescribeReply,
    ConsumerGroupHeartbeat,
    ConsumerGroupHeartbeatReply,
    DeleteGroup,
    DescribeGroup,
    DescribeGroupReply,
    GroupRequest,
    JoinGroup,
    JoinGroupReply,
    OffsetCommit,
    OffsetCommitReply,
    TxnOffsetCommit,
)
from broker.core.groups.reserved_ids import Parked, ReservedIds
from broker.core.groups.shard import GroupDecision, GroupShard

CoordinatorDecision = Decision[CoordinatorRecord, GroupEffect]

_OF_CONSUMERS: Final = (JoinGroup, ConsumerGroupHeartbeat, OffsetCommit, TxnOffsetCommit)
"""Requests with which consumers begin to use a group id. A read of offsets finds none, as with any
id that no group of consumers has.
"""


class CoordinatorShard:
    """One shard (`tidemark.protocol.shard.Shard`); created over an empty GroupShard, then loaded
    from the log.
    """

    def __init__(self, groups: GroupShard) -> None:
        self.groups = groups
        self._ids = ReservedIds()
        self._ready: deque[Parked] = deque()
        """Parked requests whose group id is free again."""

    def decide(
        self, request_id: int, request: CoordinatorRequest, now: Moment
    ) -> CoordinatorDecision:
        """Decide one request, as GroupShard does, or a request about ids."""
        match request:
            case ReserveGroupId():
                return self._reserve(request_id, request, now)
            case ReleaseGroupId():
                records = self._ids.release(request.group_id, request.owner_epoch)
                return Decision(records, (Answer(request_id, GroupIdReply(ErrorCode.NONE)),))
            case ShareGroupLookedUp():
                return self._looked_up(request, now)
            case _ if request.group_id in self._ids:
                return self._meet_share_group(request_id, request, now)
            case _:
                return _of_groups(self.groups.decide(request_id, request, now))

    def wake(self, now: Moment) -> CoordinatorDecision:
        """Decide one request whose group id is free again, or do what GroupShard does."""
        if self._ready:
            parked = self._ready.popleft()
            if isinstance(parked.request, TxnOffsetCommit):
                # The partition's leader verified it before the look-up: its transaction may have
                # ended since, and nothing would end what begins now.
                return _refused([parked], ErrorCode.COORDINATOR_NOT_AVAILABLE)
            return self.decide(*parked, now)
        return _of_groups(self.groups.wake(now))

    def reply_now(self, answer: Answer) -> CoordinatorReply:
        """Return the reply to send for an answer whose decision is committed."""
        groups, _ = self.groups.state
        return group_rules.reply_now(groups, answer)

    def next_deadline(self) -> InstantMs | None:
        """Return a time not later than the first deadline; it may be earlier."""
        return InstantMs(0) if self._ready else self.groups.next_deadline()

    def replay(self, record: CoordinatorRecord, writer: Writer | None) -> None:
        """Apply a record of the log."""
        if isinstance(record, ShareGroupMetadataRecord):
            self._ids.replay(record)
        else:
            self.groups.replay(record, writer)

    def replay_end(self, writer: Writer, *, commits: bool) -> None:
        """End a transaction; see GroupShard."""
        self.groups.replay_end(writer, commits=commits)

    def loaded(self, now: Moment) -> CoordinatorDecision:
        """Start to serve; see GroupShard."""
        self._ids.loaded(now.instant)
        return _of_groups(self.groups.loaded(now))

    def check(self) -> None:
        """Assert every invariant."""
        self.groups.check()
        self._ids.check()
        for group in self.groups.listed():
            assert group.group_id not in self._ids, f"{group.group_id} has two types of group"

    # -- share groups

    def _reserve(
        self, request_id: int, request: ReserveGroupId, now: Moment
    ) -> CoordinatorDecision:
        group_id = request.group_id
        if not group_id or not fits(group_id):
            code, message = ErrorCode.INVALID_GROUP_ID, "a group id has 1 to 32,767 bytes"
            return Decision((), (Answer(request_id, GroupIdReply(code, message)),))
        if group_id not in self._ids and self.groups.has_group(group_id):
            code, message = ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a share group."
            return Decision((), (Answer(request_id, GroupIdReply(code, message)),))
        records = self._ids.reserve(group_id, request.owner_epoch, now.instant)
        return Decision(records, (Answer(request_id, GroupIdReply(ErrorCode.NONE)),))

    def _meet_share_group(
        self, request_id: int, request: GroupRequest, now: Moment
    ) -> CoordinatorDecision:
        """Decide a request of another type that names a reserved id."""
        if not isinstance(request, _OF_CONSUMERS):
            reply = _refusal(request)
            if reply is None:
                return _of_groups(self.groups.decide(request_id, request, now))
            return Decision((), (Answer(request_id, reply),))
        group_id, instant = request.group_id, now.instant
        if not self._ids.may_be_abandoned(group_id, instant) or self._ids.was_found(
            group_id, instant
        ):
            return _refused([Parked(request_id, request)])
        if self._ids.is_full:
            return _refused([Parked(request_id, request)], ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if self._ids.park(request_id, request):
            return Decision((), (LookUpShareGroup(group_id),))
        return Decision()

    def _looked_up(self, request: ShareGroupLookedUp, now: Moment) -> CoordinatorDecision:
        group_id, exists = request.group_id, request.exists
        parked = self._ids.take_parked(group_id)
        if group_id not in self._ids:
            self._ready.extend(parked)
            return Decision()
        if exists is None:
            return _refused(parked, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if exists:
            self._ids.found(group_id, now.instant)
        # A reservation that came during the look-up is for a group that is created now.
        if exists or not self._ids.may_be_abandoned(group_id, now.instant):
            return _refused(parked)
        self._ready.extend(parked)
        return Decision((ShareGroupMetadataRecord(group_id, None),))


def _of_groups(decision: GroupDecision) -> CoordinatorDecision:
    return Decision(decision.records, decision.effects, decision.writer)


def _refused(parked: list[Parked], code: ErrorCode | None = None) -> CoordinatorDecision:
    """Refuse requests of consumers, with ``code`` or for the type of the id."""
    replies = [(one.request_id, _refusal(one.request, code)) for one in parked]
    return Decision((), [Answer(to, reply) for to, reply in replies if reply is not None])


def _refusal(request: GroupRequest, code: ErrorCode | None = None) -> CoordinatorReply | None:
    """Return Kafka's refusal of a request that names a share group; None if the reply is that of a
    group that does not exist.
    """
    not_found = code or ErrorCode.GROUP_ID_NOT_FOUND
    match request:
        case JoinGroup():
            inconsistent = code or ErrorCode.INCONSISTENT_GROUP_PROTOCOL
            return JoinGroupReply(error_code=inconsistent, member_id=request.member_id)
        case ConsumerGroupHeartbeat():
            message = f"Group {request.group_id} is not a consumer group."
            return ConsumerGroupHeartbeatReply(error_code=not_found, error_message=message)
        case ConsumerGroupDescribe(group_id):
            message = f"Group {group_id} is not a consumer group."
            return ConsumerGroupDescribeReply(
                error_code=not_found, error_message=message, group_id=group_id
            )
        case OffsetCommit() | TxnOffsetCommit():
            return OffsetCommitReply(error_code=not_found)
        case DeleteGroup():
            return HasShareGroup()
        case DescribeGroup(group_id):
            return DescribeGroupReply(
                error_code=not_found,
                error_message=f"Group {group_id} is not a classic group.",
                group_id=group_id,
                state="Dead",
            )
        case _:
            return None
