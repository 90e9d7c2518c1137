"""Rebalance: how a group of the classic protocol comes from one generation to the next.

    Empty --join--> PreparingRebalance --all joined, or the time is up--> CompletingRebalance
          --the leader's SyncGroup is in the log--> Stable --join, leave, silence--> Preparing...

Everybody's JoinGroup waits for the end of the first phase, everybody's SyncGroup for the end of the
second. What is due is kept in `Deadlines`.
"""

from typing import Final

from tidemark.machine.shard import Moment
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import InstantMs

from broker.core.groups.classic.deadlines import Deadlines, Key, Kind
from broker.core.groups.classic.group import ClassicGroup
from broker.core.groups.classic.member import NO_ASSIGNMENT, Member
from broker.core.groups.classic.states import Cause, GroupState
from broker.core.groups.effects import Outcome
from broker.core.groups.requests import GroupSettings, JoinGroupReply, SyncGroupReply

NEW_MEMBER_JOIN_TIMEOUT_MS: Final = 300_000
"""A new member cannot send heartbeats before its first JoinGroup is answered, and who retries that
request becomes yet another member: none is waited for longer than this. Kafka's figure.
"""

RECORD_BYTES_MAX: Final = 1_000_000
"""A generation is one record, and no record is larger than the offsets topic's max.message.bytes (1
MiB as Kafka has it). Its members are told what Kafka tells them.
"""


class Rebalance:
    """The moves of all groups of a shard; it has no state of its own but what is due."""

    def __init__(self, settings: GroupSettings, deadlines: Deadlines) -> None:
        self._settings = settings
        self._deadlines = deadlines

    # -- sessions

    def heard_of(self, group: ClassicGroup, member: Member, now: Moment) -> None:
        """The member's session begins anew."""
        self._expire_at(group, member.member_id, now.instant + member.session_timeout_ms)

    def expect_join(
        self, group: ClassicGroup, member_id: str, session_timeout_ms: int, now: Moment
    ) -> None:
        """Whoever was told this id should join with it before long."""
        group.pending.add(member_id)
        self._expire_at(group, member_id, now.instant + session_timeout_ms)

    def hold_new(self, group: ClassicGroup, member: Member, now: Moment) -> None:
        """A new member waits for its first generation."""
        self._expire_at(group, member.member_id, now.instant + NEW_MEMBER_JOIN_TIMEOUT_MS)

    def forget(self, group: ClassicGroup, member_id: str) -> None:
        """No session of this name any more."""
        self._deadlines.cancel(Key(Kind.SESSION, group.group_id, member_id))

    def forget_group(self, group: ClassicGroup) -> None:
        """Nothing of this group is due any more."""
        for member_id in [*group.members, *group.pending]:
            self.forget(group, member_id)
        self._deadlines.cancel(Key(Kind.JOIN, group.group_id))
        self._deadlines.cancel(Key(Kind.SYNC, group.group_id))

    def _expire_at(self, group: ClassicGroup, member_id: str, at: int) -> None:
        self._deadlines.set(Key(Kind.SESSION, group.group_id, member_id), InstantMs(at))

    def session_expired(
        self, group: ClassicGroup, member_id: str, now: Moment, out: Outcome
    ) -> None:
        """Nothing was heard of a member, or of one that was given an id, for too long."""
        if member_id in group.pending:
            group.remove(member_id)
            self.maybe_complete_join(group, now, out)
            return
        member = group.members.get(member_id)
        if member is None or member.is_held:
            return  # while we owe it an answer it cannot speak; its session begins with the answer
        self.remove_member(group, member, out)
        self.disturb(group, now, out)

    # -- members

    def remove_member(
        self,
        group: ClassicGroup,
        member: Member,
        out: Outcome,
        error_code: ErrorCode = ErrorCode.UNKNOWN_MEMBER_ID,
    ) -> None:
        """A member goes; what waits of it is answered."""
        self.dismiss(group, member, out, error_code, member_id="")
        group.remove(member.member_id)
        self.forget(group, member.member_id)

    def dismiss(
        self,
        group: ClassicGroup,
        member: Member,
        out: Outcome,
        error_code: ErrorCode,
        *,
        member_id: str,
    ) -> None:
        """Answer what waits of a member with an error: its owner is gone, fenced, or asked anew."""
        join, sync = group.stop_awaiting_join(member), member.awaiting_sync
        member.awaiting_sync = None
        if join is not None:
            out.answer(join, JoinGroupReply(error_code=error_code, member_id=member_id))
        if sync is not None:
            out.answer(sync, SyncGroupReply(error_code=error_code))

    # -- the first phase: who is in the next generation

    def disturb(self, group: ClassicGroup, now: Moment, out: Outcome) -> None:
        """Members came, went or changed: a rebalance begins, or the one under way may end."""
        if group.state is GroupState.PREPARING_REBALANCE:
            self.maybe_complete_join(group, now, out)
        else:
            self.prepare(group, now, out)

    def prepare(self, group: ClassicGroup, now: Moment, out: Outcome) -> None:
        """Begin to wait for members."""
        self.begin(group, now, out)
        self.arm(group, now, out)

    def begin(self, group: ClassicGroup, now: Moment, out: Outcome) -> None:
        """Leave the generation there is: who waits for its assignment joins again instead."""
        for member in group.members.values():
            if member.awaiting_sync is not None:
                self._answer_sync(group, member, ErrorCode.REBALANCE_IN_PROGRESS, now, out)
        group.unsynced.clear()
        self._deadlines.cancel(Key(Kind.SYNC, group.group_id))
        group.was_empty, group.gained_member = group.is_empty, False
        group.move(Cause.DISTURBED)

    def arm(self, group: ClassicGroup, now: Moment, out: Outcome) -> None:
        """Wait as long as members want to be waited for; in a group that was empty, a delay in
        which more of them may come.
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
        """End the first phase if nobody is missing; what was empty waits its delay in any case."""
        if (
            group.state is GroupState.PREPARING_REBALANCE
            and not group.was_empty
            and group.all_joined
        ):
            self._complete_join(group, now, out)

    def join_due(self, group: ClassicGroup, now: Moment, out: Outcome) -> None:
        """The time to join is up, unless new members are still coming in at the beginning."""
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
        """Whoever did not join is out; static members keep their place until the sync deadline."""
        missing = [
            one for one in group.members.values() if not one.is_static and one.awaiting_join is None
        ]
        for member in missing:
            self.remove_member(group, member, out)
        if group.members and not self._elect_leader(group):
            self._join_by(group, group.rebalance_timeout_ms, now)  # only static ones, none back yet
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
            self.heard_of(group, member, now)
        sync_by = InstantMs(now.instant + group.rebalance_timeout_ms)
        self._deadlines.set(Key(Kind.SYNC, group.group_id), sync_by)

    @staticmethod
    def _elect_leader(group: ClassicGroup) -> bool:
        """The leader stays if it joined, else the first who did leads; False: nobody did."""
        if group.leader is None or not group.has_joined(group.leader):
            joined = (key for key in group.members if group.has_joined(key))
            leader = next(joined, None)
            if leader is None:
                return False
            group.leader = leader
        return True

    # -- the second phase: who gets what

    def synced(self, group: ClassicGroup, member: Member) -> None:
        """The member asked for its assignment."""
        group.unsynced.discard(member.member_id)
        if not group.unsynced:
            self._deadlines.cancel(Key(Kind.SYNC, group.group_id))

    def assign(
        self, group: ClassicGroup, assignments: dict[str, bytes], now: Moment, out: Outcome
    ) -> None:
        """The leader's word: into the log, and from there to everybody who asked."""
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
        """Members that did not ask for their assignments in time are taken for dead."""
        for member_id in [key for key in group.members if key in group.unsynced]:
            self.remove_member(group, group.members[member_id], out)
        self.prepare(group, now, out)

    def _answer_sync(
        self, group: ClassicGroup, member: Member, error_code: ErrorCode, now: Moment, out: Outcome
    ) -> None:
        assert member.awaiting_sync is not None
        out.answer(member.awaiting_sync, sync_reply(group, member, error_code))
        member.awaiting_sync = None
        self.heard_of(group, member, now)


def sync_reply(group: ClassicGroup, member: Member, error_code: ErrorCode) -> SyncGroupReply:
    """The member's assignment, or why there is none."""
    if error_code is not ErrorCode.NONE:
        return SyncGroupReply(error_code=error_code)
    return SyncGroupReply(
        error_code=error_code,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol,
        assignment=member.assignment,
    )
