"""One group of the new consumer protocol (KIP-848), whose members send heartbeats and nothing else,
unless they still use the classic protocol (`classic_members`).

A heartbeat may change the members and their subscriptions (group epoch), then each member's target
(assignment epoch), then the sender's assignment (member epoch). ``heartbeat``, ``wake`` and
``loaded`` return records and change nothing that is logged; ``replay`` does. They also change
deadlines and the metadata position, which may be lost.

A log may end within the records of one decision. So the group's epoch goes first, the target's
epoch after the target, and the metadata of a leaving member last. Wherever the log is cut, the
group is left with a target older than its epoch, or with a member whose session will end.
"""

from collections.abc import Mapping
from typing import Final

from tidemark.codec.consumer_protocol import PROTOCOL_TYPE
from tidemark.codec.group_records_consumer import (
    ConsumerGroupPartitionMetadataRecord,
    ConsumerGroupTargetAssignmentMetadataRecord,
    ConsumerRecord,
)
from tidemark.model.assignment import Assignment, listed
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import InstantMs
from tidemark.protocol.member_timers import MemberTimers
from tidemark.protocol.shard import Moment

from broker.core.groups.consumer import classic_members
from broker.core.groups.consumer.admission import Admitted, Refused, admit, request_problem
from broker.core.groups.consumer.assignors import ASSIGNORS
from broker.core.groups.consumer.description import described, preferred_assignor
from broker.core.groups.consumer.member import (
    JOINS,
    LEAVES_FOR_A_WHILE,
    NOT_SAID,
    ConsumerMember,
    MemberState,
    owned_by,
)
from broker.core.groups.consumer.reconciliation import Goal, reconcile
from broker.core.groups.consumer.regrouping import Context, Regrouping
from broker.core.groups.consumer.state import (
    ConsumerGroupState,
    current_record,
    epoch_record,
    group_tombstones,
    matches_tombstones,
    member_tombstones,
    metadata_record,
    target_record,
)
from broker.core.groups.consumer.targets import candidates_for, changed_targets, target_before
from broker.core.groups.requests import (
    ConsumerGroupDescribeReply,
    ConsumerGroupHeartbeat,
    ConsumerGroupHeartbeatReply,
    GroupSettings,
    Heartbeat,
    HeartbeatReply,
    JoinGroup,
    JoinGroupReply,
    LeaveGroup,
    LeaveGroupReply,
    SyncGroup,
    SyncGroupReply,
    Topics,
)
from broker.core.groups.subscriptions.patterns import MayDescribe
from broker.core.groups.subscriptions.resolver import (
    Matches,
    partition_counts,
    subscribed,
    topic_ids,
)

_DEFAULTS: Final = GroupSettings()

Decided = tuple[list[ConsumerRecord], ConsumerGroupHeartbeatReply]
"""Records to append, and the reply to send once they are committed."""


class ConsumerGroup:
    """One group. A new one exists once its first records are replayed."""

    def __init__(self, group_id: str) -> None:
        self._state = ConsumerGroupState(group_id)
        self._regrouping = Regrouping(self._state)
        self._sessions = MemberTimers()
        self._revocations = MemberTimers()

    @property
    def group_id(self) -> str:
        """Id of the group."""
        return self._state.group_id

    @property
    def state(self) -> str:
        """Empty, Assigning, Reconciling, Stable or Dead."""
        return self._state.state.value

    @property
    def exists(self) -> bool:
        """True if the log has records of the group."""
        return self._state.exists

    @property
    def is_empty(self) -> bool:
        """True if the group has no members."""
        return not self._state.members

    @property
    def member_count(self) -> int:
        """Number of members, including static members that are away."""
        return len(self._state.members)

    @property
    def logged(self) -> ConsumerGroupState:
        """Logged state of the group; read-only."""
        return self._state

    # -- heartbeats

    def heartbeat(
        self,
        request: ConsumerGroupHeartbeat,
        now: Moment,
        topics: Topics,
        settings: GroupSettings,
        may_describe: MayDescribe,
    ) -> Decided:
        """Decide one heartbeat. Patterns match topics that its sender ``may_describe``."""
        refused = request_problem(request, settings)
        if refused is not None:
            return _refusal(refused)
        admitted = admit(self._state, request, settings)
        if isinstance(admitted, Refused):
            return _refusal(admitted)
        if request.member_epoch < JOINS:
            return self._leave(request, admitted.member)
        context = Context(now, topics, settings, may_describe)
        member = admitted.member.updated(request)
        records, after = self._apply(member, owned_by(request), admitted, context)
        return records, _answer(request, admitted.member, after, settings)

    def _apply(
        self,
        member: ConsumerMember,
        owned: Assignment | None,
        admitted: Admitted,
        context: Context,
    ) -> tuple[list[ConsumerRecord], ConsumerMember]:
        """Return the records of a member's new details, and the member as they leave it; ``owned``
        is the list of owned partitions in its request, None if that has none.
        """
        before = admitted.member
        members = self._members_after(member, admitted.replaces)
        is_changed = member.subscription != before.subscription or _is_incomplete(admitted)
        epoch, records, matches = self._regrouping.regroup(
            members, context, resubscribed=is_changed
        )
        records += self._replacement(admitted)
        is_new = admitted.replaces is None and member.member_id not in self._state.members
        if member is not before or is_new:
            records.append(metadata_record(self.group_id, member))
        target = target_before(self._state, admitted)
        if epoch > self._state.assignment_epoch:
            targets = self._assign(members, matches, admitted, context)
            records += changed_targets(self._state, targets, admitted)
            records.append(ConsumerGroupTargetAssignmentMetadataRecord(self.group_id, epoch))
            target = targets[member.member_id]
        goal = Goal(epoch, target, self._state.owner_of)
        after = reconcile(member, goal, owned)
        if after is not member:
            records.append(current_record(self.group_id, after))
        self._time(after, context, moved=after is not member)
        return records, after

    def _assign(
        self,
        members: Mapping[str, ConsumerMember],
        matches: Matches,
        admitted: Admitted,
        context: Context,
    ) -> dict[str, Assignment]:
        """Return a new target for each member."""
        subscriptions = {member.subscription for member in members.values()}
        ids = topic_ids(subscriptions, matches, context.topics)
        metadata = subscribed(subscriptions, matches, context.topics)
        assignor = preferred_assignor(members.values(), context.settings)
        candidates = candidates_for(self._state, members, admitted, ids)
        return ASSIGNORS[assignor](candidates, partition_counts(metadata))

    def _replacement(self, admitted: Admitted) -> list[ConsumerRecord]:
        """Return records that move everything of a static member to its new member id."""
        replaced = admitted.replaces
        if replaced is None:
            return []
        self._sessions.stop(replaced.member_id)
        self._revocations.stop(replaced.member_id)
        target = self._state.target_of(replaced.member_id)
        *nothing_left, gone = member_tombstones(self.group_id, replaced.member_id)
        return [
            *nothing_left,
            metadata_record(self.group_id, admitted.member),
            target_record(self.group_id, admitted.member.member_id, target),
            current_record(self.group_id, admitted.member),
            gone,
        ]

    def _members_after(
        self, member: ConsumerMember, replaced: ConsumerMember | None
    ) -> Mapping[str, ConsumerMember]:
        """Return all members as they are once the records so far are replayed."""
        current = self._state.members
        if current.get(member.member_id) is member:
            return current
        members = dict(current)
        if replaced is not None:
            members.pop(replaced.member_id, None)
        members[member.member_id] = member
        return members

    # -- members of the classic protocol

    def join(
        self, request: JoinGroup, now: Moment, topics: Topics, settings: GroupSettings
    ) -> tuple[list[ConsumerRecord], JoinGroupReply]:
        """Decide a JoinGroup, which is answered at once."""
        subscription = classic_members.readable(request.protocols)
        if subscription is None or not classic_members.supports(self._state, request):
            return [], JoinGroupReply(
                error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL, member_id=request.member_id
            )
        admitted = classic_members.admit(self._state, request, subscription, settings)
        if isinstance(admitted, ErrorCode):
            is_new = admitted is ErrorCode.MEMBER_ID_REQUIRED
            member_id = request.new_member_id if is_new else request.member_id
            return [], JoinGroupReply(error_code=admitted, member_id=member_id)
        member = classic_members.joining(admitted.member, request, subscription)
        owned = classic_members.owned_when_joining(admitted.member, subscription, topics)
        records, after = self._apply(member, owned, admitted, Context(now, topics, settings))
        return records, JoinGroupReply(
            error_code=ErrorCode.NONE,
            member_id=after.member_id,
            generation_id=after.member_epoch,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=classic_members.protocol_of(after),
        )

    def sync(
        self, request: SyncGroup, now: Moment, topics: Topics, settings: GroupSettings
    ) -> SyncGroupReply:
        """Return what a member of the classic protocol may use."""
        member = classic_members.in_generation(self._state, request)
        if isinstance(member, ErrorCode):
            return SyncGroupReply(error_code=member)
        problem = classic_members.sync_problem(member, request)
        if problem is not None:
            return SyncGroupReply(error_code=problem)
        self._renew(member, now.instant, settings)
        if classic_members.is_outdated(self._state, member):
            self._expect_join(member, now.instant)
            return SyncGroupReply(error_code=ErrorCode.REBALANCE_IN_PROGRESS)
        self._revocations.stop(member.member_id)
        return SyncGroupReply(
            error_code=ErrorCode.NONE,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=classic_members.protocol_of(member),
            assignment=classic_members.assignment_bytes(member, member.assigned, topics),
        )

    def classic_heartbeat(
        self, request: Heartbeat, now: Moment, topics: Topics, settings: GroupSettings
    ) -> tuple[list[ConsumerRecord], HeartbeatReply]:
        """Renew the session of a member of the classic protocol, and ask it to join again if that
        helps. Without this look at the topics, a group of such members alone would miss new
        partitions.
        """
        member = classic_members.in_generation(self._state, request)
        if isinstance(member, ErrorCode):
            return [], HeartbeatReply(member)
        self._renew(member, now.instant, settings)
        context = Context(now, topics, settings)
        members = self._state.members
        _, records, _ = self._regrouping.regroup(members, context, resubscribed=False)
        if not records and not classic_members.must_join(self._state, member):
            return records, HeartbeatReply(ErrorCode.NONE)
        self._expect_join(member, now.instant)
        return records, HeartbeatReply(ErrorCode.REBALANCE_IN_PROGRESS)

    def _expect_join(self, member: ConsumerMember, now: InstantMs) -> None:
        """Give a member its rebalance timeout to join; more heartbeats do not extend it."""
        if self._revocations.due_of(member.member_id) is None:
            due = InstantMs(now + member.about.rebalance_timeout_ms)
            self._revocations.start(member.member_id, due)

    def remove(self, request: LeaveGroup) -> tuple[list[ConsumerRecord], LeaveGroupReply]:
        """Decide a LeaveGroup."""
        left, ids = classic_members.leaving(self._state, request)
        for member_id in ids:
            self._sessions.stop(member_id)
            self._revocations.stop(member_id)
        reply = LeaveGroupReply(error_code=ErrorCode.NONE, members=left)
        return self._fence(ids) if ids else [], reply

    # -- leaving

    def _leave(self, request: ConsumerGroupHeartbeat, member: ConsumerMember) -> Decided:
        reply = ConsumerGroupHeartbeatReply(
            error_code=ErrorCode.NONE,
            member_id=member.member_id,
            member_epoch=request.member_epoch,
        )
        if request.member_epoch == LEAVES_FOR_A_WHILE:
            self._revocations.stop(member.member_id)
            return [current_record(self.group_id, member.away())], reply
        self._sessions.stop(member.member_id)
        self._revocations.stop(member.member_id)
        return self._fence([member.member_id]), reply

    def _fence(self, member_ids: list[str]) -> list[ConsumerRecord]:
        """Remove members. Their partitions become free; the next heartbeat assigns them."""
        records: list[ConsumerRecord] = [epoch_record(self.group_id, self._state.group_epoch + 1)]
        records += matches_tombstones(self._state, member_ids)
        for member_id in member_ids:
            records += member_tombstones(self.group_id, member_id)
        if len(member_ids) == len(self._state.members) and self._state.topics:
            records.append(ConsumerGroupPartitionMetadataRecord(self.group_id, ()))
        self._regrouping.look_again()
        return records

    # -- time

    def _time(self, member: ConsumerMember, context: Context, *, moved: bool) -> None:
        now = context.now.instant
        self._renew(member, now, context.settings)
        if moved or member.classic is not None:
            self._time_revocation(member, now)

    def _renew(self, member: ConsumerMember, now: InstantMs, settings: GroupSettings) -> None:
        """Restart the member's session. One of the classic protocol chooses its length."""
        session_ms = settings.group_consumer_session_timeout_ms
        if member.classic is not None:
            session_ms = member.classic.session_timeout_ms
        self._sessions.start(member.member_id, InstantMs(now + session_ms))

    def _time_revocation(self, member: ConsumerMember, now: InstantMs) -> None:
        """Wait for the member's confirmation, or for the SyncGroup of one that joined."""
        is_due = member.state is MemberState.UNREVOKED_PARTITIONS or member.classic is not None
        if is_due and not member.is_away:
            due = InstantMs(now + member.about.rebalance_timeout_ms)
            self._revocations.start(member.member_id, due)
        else:
            self._revocations.stop(member.member_id)

    def next_deadline(self) -> InstantMs | None:
        """Return the time of the next ``wake``; None if only a heartbeat can set one."""
        deadlines = (self._sessions.next(), self._revocations.next())
        return min((due for due in deadlines if due is not None), default=None)

    def wake(self, now: Moment) -> list[ConsumerRecord]:
        """Fence members whose session has ended, and those that did not revoke partitions, or join
        or sync again, within their rebalance timeout.
        """
        due = [*self._sessions.expired(now.instant), *self._revocations.expired(now.instant)]
        expired = [
            member_id for member_id in dict.fromkeys(due) if member_id in self._state.members
        ]
        for member_id in due:
            self._sessions.stop(member_id)
            self._revocations.stop(member_id)
        return self._fence(expired) if expired else []

    def loaded(self, now: Moment, settings: GroupSettings) -> None:
        """Restart every session and every revocation after the log is replayed."""
        for member in self._state.members.values():
            self._renew(member, now.instant, settings)
            if member.classic is None:
                self._time_revocation(member, now.instant)

    # -- queries

    def commit_refused(
        self,
        member_id: str,
        epoch: int,
        group_instance_id: str | None = None,
        *,
        knows_epochs: bool = True,
    ) -> ErrorCode:
        """Return the error of an offset commit with this member and epoch, or NONE.

        While the group is empty, commits need no member. A member commits in its current epoch
        only, by a request that ``knows_epochs`` unless its protocol is the classic one. A static
        member whose place another holds is fenced: it would take it back otherwise.
        """
        if epoch < 0 and self.is_empty:
            return ErrorCode.NONE
        member = self._state.members.get(member_id)
        if member is not None:
            if member.classic is None and not knows_epochs:
                return ErrorCode.UNSUPPORTED_VERSION
            return _epoch_refused(member, epoch)
        is_replaced = self._state.static_member(group_instance_id or "") is not None
        return ErrorCode.FENCED_INSTANCE_ID if is_replaced else ErrorCode.UNKNOWN_MEMBER_ID

    def fetch_refused(self, member_id: str | None, epoch: int) -> ErrorCode:
        """Return the error of an offset fetch with this member and epoch, or NONE. A fetch need not
        name a member: its id is null, or empty, where Kafka takes null alone.
        """
        if not member_id and epoch < 0:
            return ErrorCode.NONE
        member = self._state.members.get(member_id or "")
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return _epoch_refused(member, epoch)

    def subscribes_to(self, topic_name: str) -> bool:
        """True if a member reads this topic, as of the group's last metadata."""
        if self.is_empty:
            return False
        if any(topic.topic_name == topic_name for topic in self._state.topics):
            return True
        members = self._state.members.values()
        return any(topic_name in member.about.subscribed_topic_names for member in members)

    def describe(
        self, topics: Topics, settings: GroupSettings = _DEFAULTS
    ) -> ConsumerGroupDescribeReply:
        """Return the reply to ConsumerGroupDescribe."""
        return described(self._state, topics, settings)

    def tombstones(self) -> list[ConsumerRecord]:
        """Return the records that end the group."""
        return group_tombstones(self._state)

    # -- the log

    def replay(self, record: ConsumerRecord) -> None:
        """Apply a record of this group, in log order. Logged state changes here alone."""
        self._state.replay(record)

    def check(self) -> None:
        """Assert every invariant."""
        self._state.check()
        self._sessions.check()
        self._revocations.check()


def _is_incomplete(admitted: Admitted) -> bool:
    """True if a static member's predecessor never had an epoch: the log was cut while that one
    replaced another, and the target was lost.
    """
    return admitted.replaces is not None and admitted.replaces.member_epoch == JOINS


def _epoch_refused(member: ConsumerMember, epoch: int) -> ErrorCode:
    """Return STALE_MEMBER_EPOCH unless the epoch is current, or its counterpart of the classic
    protocol. A member that joins or is away has no
    epoch in which it could own partitions.
    """
    if JOINS < epoch == member.member_epoch:
        return ErrorCode.NONE
    is_classic = member.classic is not None
    return ErrorCode.ILLEGAL_GENERATION if is_classic else ErrorCode.STALE_MEMBER_EPOCH


def _refusal(refused: Refused) -> Decided:
    return [], ConsumerGroupHeartbeatReply(
        error_code=refused.error_code, error_message=refused.message
    )


def _answer(
    request: ConsumerGroupHeartbeat,
    before: ConsumerMember,
    after: ConsumerMember,
    settings: GroupSettings,
) -> ConsumerGroupHeartbeatReply:
    """Return the reply, with the assignment if it changed or if the request is a full one."""
    is_full_request = request.member_epoch == JOINS or (
        request.rebalance_timeout_ms != NOT_SAID
        and (request.subscribed_topic_names, request.subscribed_topic_regex) != (None, None)
        and request.topic_partitions is not None
    )
    has_assignment = is_full_request or after.assigned != before.assigned
    return ConsumerGroupHeartbeatReply(
        error_code=ErrorCode.NONE,
        member_id=after.member_id,
        member_epoch=after.member_epoch,
        heartbeat_interval_ms=settings.group_consumer_heartbeat_interval_ms,
        assignment=listed(after.assigned) if has_assignment else None,
    )
