"""One group of the new consumer protocol (KIP-848), whose members send heartbeats and nothing else.

A heartbeat may change the members and their subscriptions (group epoch), then each member's target
(assignment epoch), then the sender's assignment (member epoch). ``heartbeat``, ``wake`` and
``loaded`` return records and change nothing that is logged; ``replay`` does. They also change
deadlines and the metadata position, which may be lost.

A log may end within the records of one decision. So the group's epoch goes first, the target's
epoch after the target, and the metadata of a leaving member last. Wherever the log is cut, the
group is left with a target older than its epoch, or with a member whose session will end.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

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

from broker.core.groups.consumer.admission import Admitted, Refused, admit, request_problem
from broker.core.groups.consumer.assignors import ASSIGNORS, AssignorMember
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
from broker.core.groups.consumer.state import (
    ConsumerGroupState,
    current_record,
    epoch_record,
    group_tombstones,
    member_tombstones,
    metadata_record,
    target_record,
)
from broker.core.groups.requests import (
    ConsumerGroupDescribeReply,
    ConsumerGroupHeartbeat,
    ConsumerGroupHeartbeatReply,
    GroupSettings,
    Topics,
)
from broker.core.groups.subscriptions.resolver import TopicResolver, partition_counts

_DEFAULTS: Final = GroupSettings()

Decided = tuple[list[ConsumerRecord], ConsumerGroupHeartbeatReply]
"""Records to append, and the reply to send once they are committed."""


class _Context(NamedTuple):
    """Inputs of a heartbeat's decision besides the group."""

    now: Moment
    topics: Topics
    settings: GroupSettings


class ConsumerGroup:
    """One group. A new one exists once its first records are replayed."""

    def __init__(self, group_id: str) -> None:
        self._state = ConsumerGroupState(group_id)
        self._resolver = TopicResolver()
        self._looked_at: int | None = None
        """Position of the metadata when subscribed topics were last compared with it."""
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
    ) -> Decided:
        """Decide one heartbeat."""
        refused = request_problem(request, settings)
        if refused is not None:
            return _refusal(refused)
        admitted = admit(self._state, request, settings)
        if isinstance(admitted, Refused):
            return _refusal(admitted)
        if request.member_epoch < JOINS:
            return self._leave(request, admitted.member)
        return self._apply(request, admitted, _Context(now, topics, settings))

    def _apply(
        self, request: ConsumerGroupHeartbeat, admitted: Admitted, context: _Context
    ) -> Decided:
        before = admitted.member
        member = before.updated(request)
        members = self._members_after(member, admitted.replaces)
        resubscribed = member.subscription != before.subscription
        epoch, records = self._regroup(members, context.topics, resubscribed=resubscribed)
        records += self._replacement(admitted)
        is_new = admitted.replaces is None and member.member_id not in self._state.members
        if member is not before or is_new:
            records.append(metadata_record(self.group_id, member))
        target = self._target_before(admitted)
        if epoch > self._state.assignment_epoch:
            targets = self._assign(members, admitted, context)
            records += self._target_records(targets, admitted)
            records.append(ConsumerGroupTargetAssignmentMetadataRecord(self.group_id, epoch))
            target = targets[member.member_id]
        goal = Goal(epoch, target, self._state.owner_of)
        after = reconcile(member, goal, owned_by(request))
        if after is not member:
            records.append(current_record(self.group_id, after))
        self._time(after, context, moved=after is not member)
        return records, _answer(request, before, after, context.settings)

    def _replacement(self, admitted: Admitted) -> list[ConsumerRecord]:
        """Return records that move everything of a static member to its new member id."""
        replaced = admitted.replaces
        if replaced is None:
            return []
        self._sessions.stop(replaced.member_id)
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

    def _regroup(
        self, members: Mapping[str, ConsumerMember], topics: Topics, *, resubscribed: bool
    ) -> tuple[int, list[ConsumerRecord]]:
        """Raise the group epoch after any change of the subscriptions or of their topics."""
        epoch = self._state.group_epoch
        if not resubscribed and self._looked_at == topics.position:
            return epoch, []
        subscriptions = (member.subscription for member in members.values())
        metadata = self._resolver.metadata(subscriptions, topics)
        self._looked_at = topics.position
        is_other = metadata != self._state.topics
        if not (resubscribed or is_other or epoch == 0):
            return epoch, []
        records: list[ConsumerRecord] = [epoch_record(self.group_id, epoch + 1)]
        if is_other:
            records.append(ConsumerGroupPartitionMetadataRecord(self.group_id, metadata))
        return epoch + 1, records

    # -- targets

    def _target_before(self, admitted: Admitted) -> Assignment:
        holder = admitted.replaces or admitted.member
        return self._state.target_of(holder.member_id)

    def _assign(
        self, members: Mapping[str, ConsumerMember], admitted: Admitted, context: _Context
    ) -> dict[str, Assignment]:
        """Return a new target for each member."""
        subscriptions = [member.subscription for member in members.values()]
        topic_ids = self._resolver.topic_ids(subscriptions, context.topics)
        metadata = self._resolver.metadata(subscriptions, context.topics)
        assignor = preferred_assignor(members.values(), context.settings)
        candidates = [
            AssignorMember(
                member.member_id,
                member.about.instance_id,
                topic_ids[member.subscription],
                self._target_before(admitted)
                if member.member_id == admitted.member.member_id
                else self._state.target_of(member.member_id),
            )
            for member in members.values()
        ]
        return ASSIGNORS[assignor](candidates, partition_counts(metadata))

    def _target_records(
        self, targets: Mapping[str, Assignment], admitted: Admitted
    ) -> list[ConsumerRecord]:
        """Return records for the members whose target changed."""
        records: list[ConsumerRecord] = []
        for member_id in sorted(targets):
            is_asking = member_id == admitted.member.member_id
            before = (
                self._target_before(admitted) if is_asking else self._state.target_of(member_id)
            )
            is_new = is_asking and member_id not in self._state.members
            if targets[member_id] != before or (is_new and admitted.replaces is None):
                records.append(target_record(self.group_id, member_id, targets[member_id]))
        return records

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
        for member_id in member_ids:
            records += member_tombstones(self.group_id, member_id)
        if len(member_ids) == len(self._state.members) and self._state.topics:
            records.append(ConsumerGroupPartitionMetadataRecord(self.group_id, ()))
        self._looked_at = None
        return records

    # -- time

    def _time(self, member: ConsumerMember, context: _Context, *, moved: bool) -> None:
        now = context.now.instant
        session_ms = context.settings.group_consumer_session_timeout_ms
        self._sessions.start(member.member_id, InstantMs(now + session_ms))
        if moved:
            self._time_revocation(member, now)

    def _time_revocation(self, member: ConsumerMember, now: InstantMs) -> None:
        if member.state is MemberState.UNREVOKED_PARTITIONS and not member.is_away:
            due = InstantMs(now + member.about.rebalance_timeout_ms)
            self._revocations.start(member.member_id, due)
        else:
            self._revocations.stop(member.member_id)

    def next_deadline(self) -> InstantMs | None:
        """Return the time of the next ``wake``; None if only a heartbeat can set one."""
        deadlines = (self._sessions.next(), self._revocations.next())
        return min((due for due in deadlines if due is not None), default=None)

    def wake(self, now: Moment) -> list[ConsumerRecord]:
        """Fence members whose session has ended, and those that did not revoke partitions within
        their rebalance timeout.
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
        session_ms = settings.group_consumer_session_timeout_ms
        for member in self._state.members.values():
            self._sessions.start(member.member_id, InstantMs(now.instant + session_ms))
            self._time_revocation(member, now.instant)

    # -- queries

    def commit_refused(self, member_id: str, epoch: int) -> ErrorCode:
        """Return the error of an offset commit with this member and epoch, or NONE.

        While the group is empty, commits need no member. A member commits in its current epoch
        only.
        """
        if epoch < 0 and self.is_empty:
            return ErrorCode.NONE
        member = self._state.members.get(member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return _epoch_refused(member, epoch)

    def fetch_refused(self, member_id: str | None, epoch: int) -> ErrorCode:
        """Return the error of an offset fetch with this member and epoch, or NONE. A fetch need not
        name a member.
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


def _epoch_refused(member: ConsumerMember, epoch: int) -> ErrorCode:
    """Return STALE_MEMBER_EPOCH unless the epoch is current. A member that joins or is away has no
    epoch in which it could own partitions.
    """
    is_current = JOINS < epoch == member.member_epoch
    return ErrorCode.NONE if is_current else ErrorCode.STALE_MEMBER_EPOCH


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
