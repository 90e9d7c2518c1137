"""Rebalance: moves a group of the classic protocol from one generation to the next.

    Empty --join--> PreparingRebalance --all joined, or the time is up--> CompletingRebalance
          --the leader's SyncGroup is in the log--> Stable --join, leave, expiry--> Preparing...

Each member's JoinGroup waits for the end of the first phase, its SyncGroup for the end of the
second. Deadlines are kept in `Deadlines`.
"""

from typing import Final

from tidemark.model.errors import ErrorCode
from tidemark.model.ids import InstantMs
from tidemark.protocol.shard import Moment

from broker.core.groups.classic.deadlines import Deadlines, Key, Kind
from broker.core.groups.classic.group import ClassicGroup
from broker.core.groups.classic.member import NO_ASSIGNMENT, Member
from broker.core.groups.classic.states import Cause, GroupState
from broker.core.groups.effects import Membership, Outcome
from broker.core.groups.requests import GroupSettings, JoinGroupReply, SyncGroupReply

NEW_MEMBER_JOIN_TIMEOUT_MS: Final = 300_000
"""Longest wait for a new member. It cannot send heartbeats before its first JoinGroup is answered,
and a retry of that request adds yet another member. Kafka's value.
"""

ABSENT_WAIT_MS_MIN: Final = 1_000
"""Shortest wait for static members of which none is back. A member chooses its rebalance timeout, 0
among others, and a group that waits for no time would keep its coordinator busy.
"""

RECORD_BYTES_MAX: Final = 1_000_000
"""Largest record of a generation. A generation is one record, and no record may exceed the offsets
topic's max.message.bytes (1 MiB as in Kafka). Its members receive the same error as from Kafka.
"""


class Rebalance:
    """Rebalances of all groups of a shard; its only state of its own is the deadlines."""

    def __init__(self, settings: GroupSettings, deadlines: Deadlines) -> None:
        self._settings = settings
        self._deadlines = deadlines

    # -- sessions

    def renew_session(self, group: ClassicGroup, member: Member, now: Moment) -> None:
        """Restart the member's session."""
        self._expire_at(group, member.member_id, now.instant + member.session_timeout_ms)

    def expect_join(
        self, group: ClassicGroup, member_id: str, session_timeout_ms: int, now: Moment
    ) -> None:
        """Wait for a new member to join with the id that it was sent."""
        group.pending.add(member_id)
        self._expire_at(group, member_id, now.instant + session_timeout_ms)

    def await_first_generation(self, group: ClassicGroup, member: Member, now: Moment) -> None:
        """Start the session of a new member that waits for its first generation."""
        self._expire_at(group, member.member_id, now.instant + NEW_MEMBER_JOIN_TIMEOUT_MS)

    def forget(self, group: ClassicGroup, member_id: str) -> None:
        """End the session of a member or of a pending id."""
        self._deadlines.cancel(Key(Kind.SESSION, group.group_id, member_id))

    def forget_group(self, group: ClassicGroup) -> None:
        """Remove all deadlines of a group."""
        for member_id in [*group.members, *group.pending]:
            self.forget(group, member_id)
        self._deadlines.cancel(Key(Kind.JOIN, group.group_id))
        self._deadlines.cancel(Key(Kind.SYNC, group.group_id))

    def _expire_at(self, group: ClassicGroup, member_id: str, at: int) -> None:
        self._deadlines.set(Key(Kind.SESSION, group.group_id, member_id), InstantMs(at))

    def session_expired(
        self, group: ClassicGroup, member_id: str, now: Moment, out: Outcome
    ) -> None:
        """Remove a member whose session timed out, or an id that never joined."""
        if member_id in group.pending:
            group.remove(member_id)
            self.maybe_complete_join(group, now, out)
            return
        member = group.members.get(member_id)
        if member is None or member.awaits_reply:
            return  # it cannot send heartbeats while it waits; its session starts with the reply
        self.remove_member(group, member, out)
        self.members_changed(group, now, out)

    # -- members

    def remove_member(
        self,
        group: ClassicGroup,
        member: Member,
        out: Outcome,
        error_code: ErrorCode = ErrorCode.UNKNOWN_MEMBER_ID,
    ) -> None:
        """Remove a member, and answer its waiting requests."""
        self.answer_waiting(group, member, out, error_code, member_id="")
        group.remove(member.member_id)
        self.forget(group, member.member_id)

    def answer_waiting(
        self,
        group: ClassicGroup,
        member: Member,
        out: Outcome,
        error_code: ErrorCode,
        *,
        member_id: str,
    ) -> None:
        """Answer a member's waiting requests with an error: it left, is fenced, or retried."""
        join, sync = group.stop_awaiting_join(member), member.awaiting_sync
        member.awaiting_sync = None
        if join is not None:
            out.answer(join, JoinGroupReply(error_code=error_code, member_id=member_id))
        if sync is not None:
            out.answer(sync, SyncGroupReply(error_code=error_code))

    # -- the first phase: members join the next generation

    def members_changed(self, group: ClassicGroup, now: Moment, out: Outcome) -> None:
        """Begin a rebalance after a change of members, or complete the one under way."""
        if group.state is GroupState.PREPARING_REBALANCE:
            self.maybe_complete_join(group, now, out)
        else:
            self.prepare(group, now, out)

    def prepare(self, group: ClassicGroup, now: Moment, out: Outcome) -> None:
        """Begin a rebalance, and wait for members to join."""
        self.begin(group, now, out)
        self.arm(group, now, out)

    def begin(self, group: ClassicGroup, now: Moment, out: Outcome) -> None:
        """Leave the current generation; members that wait for their assignment join again."""
        for member in group.members.values():
            if member.awaiting_sync is not None:
                self._answer_sync(group, member, ErrorCode.REBALANCE_IN_PROGRESS, now, out)
        group.unsynced.clear()
        self._deadlines.cancel(Key(Kind.SYNC, group.group_id))
        group.was_empty, group.gained_member = group.is_empty, False
        group.move(Cause.MEMBERS_CHANGED)

    def arm(self, group: ClassicGroup, now: Moment, out: Outcome) -> None:
        """Wait up to the longest rebalance timeout. A group that was empty waits the initial delay
        instead, in which more members may join.
        """
        if group.was_empty:
            delay_ms = self._settings.group_initial_rebalance_delay_ms
            group.delay_ms = delay_ms
            group.delay_left_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
            self._join_by(group, delay_ms, now)
        elif group.all_joined:
            self._complete_join(group, now, out)
        else:
            self._join_by(group, group.rebalance_timeout_ms, now)

    def maybe_complete_join(self, group: ClassicGroup, now: Moment, out: Outcome) -> None:
        """End the first phase if all have joined, unless a group that was empty waits for its
        delay.
        """
        if (
            group.state is GroupState.PREPARING_REBALANCE
            and not group.was_empty
            and group.all_joined
        ):
            self._complete_join(group, now, out)

    def join_due(self, group: ClassicGroup, now: Moment, out: Outcome) -> None:
        """End the first phase at its deadline, or extend it while members join an empty group."""
        assert group.state is GroupState.PREPARING_REBALANCE
        if group.was_empty and group.gained_member and group.delay_left_ms:
            group.gained_member = False
            delay_ms = min(self._settings.group_initial_rebalance_delay_ms, group.delay_left_ms)
            group.delay_left_ms = max(group.delay_left_ms - group.delay_ms, 0)
            group.delay_ms = delay_ms
            self._join_by(group, delay_ms, now)
            return
        self._complete_join(group, now, out)

    def _join_by(self, group: ClassicGroup, wait_ms: int, now: Moment) -> None:
        self._deadlines.set(Key(Kind.JOIN, group.group_id), InstantMs(now.instant + wait_ms))

    def _complete_join(self, group: ClassicGroup, now: Moment, out: Outcome) -> None:
        """End the first phase. Members that did not join are removed; static ones keep their place
        until the sync deadline.
        """
        missing = [
            member
            for member in group.members.values()
            if not member.is_static and member.awaiting_join is None
        ]
        for member in missing:
            self.remove_member(group, member, out)
        if group.members and not self._elect_leader(group):
            # Only static ones are left, and none is back yet.
            wait_ms = max(group.rebalance_timeout_ms, ABSENT_WAIT_MS_MIN)
            self._join_by(group, wait_ms, now)
            return
        self._deadlines.cancel(Key(Kind.JOIN, group.group_id))
        group.begin_generation()
        if group.is_empty:
            out.records.append(group.record(now.wall, {}))
            return
        for member in group.members.values():
            join = group.stop_awaiting_join(member)
            if join is not None:
                out.answer(join, group.join_reply(member))
            member.is_new = False
            self.renew_session(group, member, now)
        sync_by = InstantMs(now.instant + group.rebalance_timeout_ms)
        self._deadlines.set(Key(Kind.SYNC, group.group_id), sync_by)

    @staticmethod
    def _elect_leader(group: ClassicGroup) -> bool:
        """Keep the leader if it joined, else elect the first member that did. False if none did."""
        if group.leader is None or not group.has_joined(group.leader):
            joined = (key for key in group.members if group.has_joined(key))
            leader = next(joined, None)
            if leader is None:
                return False
            group.leader = leader
        return True

    # -- the second phase: assignments

    def synced(self, group: ClassicGroup, member: Member) -> None:
        """Register the member's SyncGroup."""
        group.unsynced.discard(member.member_id)
        if not group.unsynced:
            self._deadlines.cancel(Key(Kind.SYNC, group.group_id))

    def assign(
        self, group: ClassicGroup, assignments: dict[str, bytes], now: Moment, out: Outcome
    ) -> None:
        """Append the leader's assignments to the log, and answer the waiting members after that."""
        assert group.state is GroupState.COMPLETING_REBALANCE
        if group.record_bytes(assignments) > RECORD_BYTES_MAX:
            self._refuse_assignments(group, now, out)
            return
        out.records.append(group.record(now.wall, assignments))
        for member in group.members.values():
            if member.awaiting_sync is not None:
                member.assignment = assignments.get(member.member_id, NO_ASSIGNMENT)
                self._answer_sync(group, member, ErrorCode.NONE, now, out)

    def _refuse_assignments(self, group: ClassicGroup, now: Moment, out: Outcome) -> None:
        for member in group.members.values():
            if member.awaiting_sync is not None:
                self._answer_sync(group, member, ErrorCode.UNKNOWN_SERVER_ERROR, now, out)
        self.prepare(group, now, out)

    def sync_due(self, group: ClassicGroup, now: Moment, out: Outcome) -> None:
        """Remove members that did not send SyncGroup in time."""
        for member_id in [key for key in group.members if key in group.unsynced]:
            self.remove_member(group, group.members[member_id], out)
        self.prepare(group, now, out)

    def _answer_sync(
        self, group: ClassicGroup, member: Member, error_code: ErrorCode, now: Moment, out: Outcome
    ) -> None:
        assert member.awaiting_sync is not None
        if error_code is ErrorCode.NONE:
            answer_assigned(group, member, member.awaiting_sync, out)
        else:
            out.answer(member.awaiting_sync, SyncGroupReply(error_code=error_code))
        member.awaiting_sync = None
        self.renew_session(group, member, now)


def answer_assigned(group: ClassicGroup, member: Member, request_id: int, out: Outcome) -> None:
    """Answer a SyncGroup with the member's assignment."""
    reply = SyncGroupReply(
        error_code=ErrorCode.NONE,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol,
        assignment=member.assignment,
    )
    membership = Membership(group.group_id, member.member_id, group.generation)
    out.answer(request_id, reply, membership)
