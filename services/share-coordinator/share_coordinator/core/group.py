"""One share group (KIP-932): members send heartbeats, and nothing else.

A heartbeat may change members and subscriptions (group epoch), then the target of each member
(assignment epoch), then the assignment of its sender (member epoch). Only ``replay`` changes logged
state; ``heartbeat``, ``wake`` and the other methods return records. The rest of the state
(deadlines, position of the metadata, time of the last target, measured lags) may be lost.

A log may end within the records of one decision. So the group's epoch goes first, the target's
epoch after the target, and a member's metadata goes last when it leaves: if the end is missing, the
group is left with a target older than its epoch, or with a member whose session will end.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tidemark.codec.share_group_records import ShareGroupRecord
from tidemark.codec.share_records import ShareRecord
from tidemark.model.assignment import Assignment, listed
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import InstantMs, TopicId
from tidemark.model.share_group_configs import ShareGroupConfig
from tidemark.model.topics import Topics
from tidemark.protocol.member_timers import MemberTimers
from tidemark.protocol.shard import Moment

from share_coordinator.core import initialization
from share_coordinator.core.admission import Refused, admit, request_problem
from share_coordinator.core.assignors import ASSIGNORS, BY_LOAD, AssignorMember, Demand
from share_coordinator.core.group_state import ShareGroupState
from share_coordinator.core.load_watch import is_skewed
from share_coordinator.core.member import JOINS, LEAVES, ShareMember
from share_coordinator.core.requests import ShareGroupHeartbeat, ShareGroupHeartbeatReply
from share_coordinator.core.settings import ShareSettings
from share_coordinator.core.share_states import ShareStates
from share_coordinator.core.subscribed_topics import (
    SubscribedTopics,
    metadata_hash,
    subscribed_topics,
)

Decided = tuple[list[ShareRecord], ShareGroupHeartbeatReply]
"""Records to append, and the reply once they are committed."""


class Around(NamedTuple):
    """Context of a decision besides the group's own state."""

    now: Moment
    topics: Topics
    states: ShareStates
    config: ShareGroupConfig
    """In force for the group."""
    settings: ShareSettings


class _Regrouped(NamedTuple):
    epoch: int
    records: list[ShareRecord]


class ShareGroup:
    """One group. A new one exists once its first records are replayed."""

    def __init__(self, group_id: str) -> None:
        self._state = ShareGroupState(group_id)
        self._looked_at: int | None = None
        """The position of the metadata when subscribed topics were last compared with it."""
        self._assign_at: InstantMs | None = None
        """Before it no further target is computed; None: at once."""
        self._sessions = MemberTimers()
        self._lags: Mapping[tuple[TopicId, int], int] = {}

    @property
    def group_id(self) -> str:
        """Its name."""
        return self._state.group_id

    @property
    def logged(self) -> ShareGroupState:
        """State of the group in the log; not to be changed."""
        return self._state

    @property
    def is_empty(self) -> bool:
        """True if the group has no members."""
        return not self._state.members

    # -------------------------------------------------------------------- heartbeats

    def heartbeat(self, request: ShareGroupHeartbeat, around: Around) -> Decided:
        """Judge one heartbeat."""
        refused = request_problem(request)
        if refused is not None:
            return refusal(refused)
        admitted = admit(self._state, request, around.settings.group_share_max_size)
        if isinstance(admitted, Refused):
            return refusal(admitted)
        if request.member_epoch == LEAVES:
            return self._leave(admitted)
        return self._go_on(request, admitted, around)

    def _go_on(self, request: ShareGroupHeartbeat, before: ShareMember, around: Around) -> Decided:
        member = before.updated_by(request)
        is_new = member.member_id not in self._state.members
        members = self._members_with(member)
        regrouped = self._regroup(
            members, around, resubscribed=is_new or member.subscription != before.subscription
        )
        records = regrouped.records
        if is_new or member is not before:
            records.append(self._state.member_record(member))
        assigned_epoch = self._state.assignment_epoch
        target = self._state.target_of(member.member_id)
        if regrouped.epoch > assigned_epoch and self._may_assign(around.now):
            targets = self._assign(members, around)
            records += self._target_records(targets, regrouped.epoch, around.now)
            assigned_epoch, target = regrouped.epoch, targets[member.member_id]
        after = member.moved_to(assigned_epoch, target)
        if after is not member:
            records.append(self._state.current_record(after))
        session_ms = around.config.session_timeout_ms
        self._sessions.start(member.member_id, InstantMs(around.now.instant + session_ms))
        wait_ms = self._wait_ms(around) if regrouped.epoch > assigned_epoch else None
        return records, _answer(request, before, after, wait_ms or self._interval_ms(around))

    def _members_with(self, member: ShareMember) -> Mapping[str, ShareMember]:
        """All members as they are once the records so far are replayed."""
        known = self._state.members
        if known.get(member.member_id) is member:
            return known
        return {**known, member.member_id: member}

    def _regroup(
        self, members: Mapping[str, ShareMember], around: Around, *, resubscribed: bool
    ) -> _Regrouped:
        """Raise the group epoch if subscriptions or their topics have changed."""
        state = self._state
        if not resubscribed and self._looked_at == around.topics.position:
            return _Regrouped(state.group_epoch, [])
        self._looked_at = around.topics.position
        subscribed = _subscribed(members, around.topics)
        found = metadata_hash(subscribed)
        records: list[ShareRecord] = []
        epoch = state.group_epoch
        if resubscribed or found != state.metadata_hash or not state.exists:
            epoch += 1
            records.append(state.epoch_record(epoch, found))
        starts = initialization.missing(state, subscribed)
        records += initialization.begin(state, around.states, starts, around.now.wall)
        return _Regrouped(epoch, records)

    # -------------------------------------------------------------------- targets

    def _may_assign(self, now: Moment) -> bool:
        return self._assign_at is None or now.instant >= self._assign_at

    def _assign(self, members: Mapping[str, ShareMember], around: Around) -> dict[str, Assignment]:
        """A new target for all members."""
        interval_ms = around.settings.group_share_assignment_interval_ms
        self._assign_at = InstantMs(around.now.instant + interval_ms)
        assignor = ASSIGNORS[around.settings.assignor_name]
        return assignor(
            self._assignor_members(members, around.topics), self._demand(members, around)
        )

    def _assignor_members(
        self, members: Mapping[str, ShareMember], topics: Topics
    ) -> list[AssignorMember]:
        topic_ids = {
            subscription: frozenset(subscribed_topics((subscription,), topics))
            for subscription in {member.subscription for member in members.values()}
        }
        return [
            AssignorMember(
                member.member_id,
                topic_ids[member.subscription],
                self._state.target_of(member.member_id),
            )
            for member in members.values()
        ]

    def _demand(self, members: Mapping[str, ShareMember], around: Around) -> Demand:
        subscribed = _subscribed(members, around.topics)
        counts = {topic_id: topic.partition_count for topic_id, topic in subscribed.items()}
        return Demand(counts, self._lags)

    def _target_records(
        self, targets: Mapping[str, Assignment], epoch: int, now: Moment
    ) -> list[ShareGroupRecord]:
        """Only for members whose target is another one; the epoch after them."""
        state = self._state
        changed = [
            state.target_record(member_id, targets[member_id])
            for member_id in sorted(targets)
            if targets[member_id] != state.target_of(member_id)
        ]
        return [*changed, state.assigned_record(epoch, now.wall)]

    def measured(
        self, lags: Mapping[tuple[TopicId, int], int], around: Around
    ) -> list[ShareRecord]:
        """Take over measured lags; a new epoch where members should move to where the lag is. A
        share-partition that was not measured, as its leader did not answer, keeps its lag.
        """
        states = around.states.of_group(self.group_id)
        merged = {**self._lags, **lags}
        self._lags = {part: lag for part, lag in merged.items() if part in states}
        state = self._state
        if self.is_empty or state.assignment_epoch < state.group_epoch:
            return []  # the next target sees them
        if around.settings.assignor_name != BY_LOAD:
            return []
        members = self._assignor_members(state.members, around.topics)
        if is_skewed(members, self._demand(state.members, around)):
            return [state.epoch_record(state.group_epoch + 1)]
        return []

    # -------------------------------------------------------------------- leaving

    def _leave(self, member: ShareMember) -> Decided:
        self._sessions.stop(member.member_id)
        reply = ShareGroupHeartbeatReply(
            error_code=ErrorCode.NONE, member_id=member.member_id, member_epoch=LEAVES
        )
        return self._remove([member.member_id]), reply

    def _remove(self, member_ids: Sequence[str]) -> list[ShareRecord]:
        """Remove members; the next target gives their places to others."""
        records: list[ShareRecord] = [self._state.epoch_record(self._state.group_epoch + 1)]
        for member_id in member_ids:
            records += self._state.member_tombstones(member_id)
        return records

    # -------------------------------------------------------------------- time

    def next_deadline(self) -> InstantMs | None:
        """Instant at which to call ``wake``; None: not before a heartbeat."""
        deadlines = (self._sessions.next(), self._assignment_due())
        return min((one for one in deadlines if one is not None), default=None)

    def _assignment_due(self) -> InstantMs | None:
        state = self._state
        if self.is_empty or state.assignment_epoch == state.group_epoch:
            return None
        return self._assign_at or InstantMs(0)

    def wake(self, around: Around) -> list[ShareRecord]:
        """Remove members whose session ended; else compute the target that is due."""
        now = around.now
        due = self._sessions.expired(now.instant)
        for member_id in due:
            self._sessions.stop(member_id)
        gone = [member_id for member_id in due if member_id in self._state.members]
        if gone:
            return self._remove(gone)
        assignment_due = self._assignment_due()
        if assignment_due is None or assignment_due > now.instant:
            return []
        members = self._state.members
        regrouped = self._regroup(members, around, resubscribed=False)
        targets = self._assign(members, around)
        return [*regrouped.records, *self._target_records(targets, regrouped.epoch, now)]

    def loaded(self, around: Around) -> None:
        """Restart every session after the log is replayed."""
        due = InstantMs(around.now.instant + around.config.session_timeout_ms)
        for member_id in self._state.members:
            self._sessions.start(member_id, due)

    def _interval_ms(self, around: Around) -> int:
        return around.config.heartbeat_interval_ms

    def _wait_ms(self, around: Around) -> int | None:
        """Time until a target that is not computed yet is due, if a heartbeat would come later."""
        if self._assign_at is None:
            return None
        wait_ms = max(1, self._assign_at - around.now.instant)
        return min(wait_ms, self._interval_ms(around))

    # -------------------------------------------------------------------- the log

    def replay(self, record: ShareGroupRecord) -> None:
        """A record of this group, in log order: the only way in which logged state changes."""
        self._state.replay(record)

    def check(self) -> None:
        """Assert every invariant."""
        self._state.check()
        self._sessions.check()


def refusal(refused: Refused) -> Decided:
    """The answer to a heartbeat that changes nothing."""
    return [], ShareGroupHeartbeatReply(
        error_code=refused.error_code, error_message=refused.message
    )


def _subscribed(members: Mapping[str, ShareMember], topics: Topics) -> SubscribedTopics:
    return subscribed_topics((member.subscription for member in members.values()), topics)


def _answer(
    request: ShareGroupHeartbeat, before: ShareMember, after: ShareMember, interval_ms: int
) -> ShareGroupHeartbeatReply:
    """Return the reply: with the assignment when it changed, or when the member may lack it because
    it joins, repeats its subscription after a failure, or missed the last response.
    """
    may_lack_it = (
        request.member_epoch in (JOINS, before.previous_epoch)
        or request.subscribed_topic_names is not None
    )
    wants_assignment = may_lack_it or after.assigned != before.assigned
    return ShareGroupHeartbeatReply(
        error_code=ErrorCode.NONE,
        member_id=after.member_id,
        member_epoch=after.member_epoch,
        heartbeat_interval_ms=interval_ms,
        assignment=listed(after.assigned) if wants_assignment else None,
    )
