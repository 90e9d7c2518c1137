"""JoinGroup: who may come in, under which name, and what it sets in motion."""

from dataclasses import replace

from tidemark.machine.shard import Moment
from tidemark.model.errors import ErrorCode

from broker.core.groups.classic.group import ClassicGroup
from broker.core.groups.classic.member import Member, joining_member
from broker.core.groups.classic.rebalance import RECORD_BYTES_MAX, Rebalance
from broker.core.groups.classic.states import GroupState
from broker.core.groups.effects import Outcome
from broker.core.groups.requests import (
    UNKNOWN_MEMBER,
    GroupSettings,
    JoinGroup,
    JoinGroupReply,
    JoinProtocol,
)


class Joins:
    """Judges JoinGroup requests; the moves are `Rebalance`'s."""

    def __init__(self, settings: GroupSettings, rebalance: Rebalance) -> None:
        self._settings = settings
        self._rebalance = rebalance

    def refusal(self, request: JoinGroup) -> ErrorCode | None:
        """What is wrong with a request, whatever the group."""
        if not request.group_id:
            return ErrorCode.INVALID_GROUP_ID
        shortest = self._settings.group_min_session_timeout_ms
        longest = self._settings.group_max_session_timeout_ms
        if not shortest <= request.session_timeout_ms <= longest:
            return ErrorCode.INVALID_SESSION_TIMEOUT
        return None

    def join(
        self, group: ClassicGroup, request_id: int, request: JoinGroup, now: Moment, out: Outcome
    ) -> None:
        """Judge one request; its answer may come with a later decision."""
        request = _once_each(request)
        if not self._has_room(group, request.member_id):
            self._turn_away(group, request.member_id, now, out)
            refuse(out, request_id, ErrorCode.GROUP_MAX_SIZE_REACHED)
        elif not group.supports(request.protocol_type, request.protocols):
            refuse(out, request_id, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, request.member_id)
        elif request.member_id == UNKNOWN_MEMBER:
            self._join_anew(group, request_id, request, now, out)
        elif request.member_id in group.pending and request.group_instance_id is None:
            self._add(group, request.member_id, request_id, request, now, out)
        else:
            self._join_again(group, request_id, request, now, out)

    def _has_room(self, group: ClassicGroup, member_id: str) -> bool:
        """Members are counted as the next generation will have them: while it forms, those who
        joined, so that of a group that is too large the last to come stay out.
        """
        size_max = self._settings.group_max_size
        if group.is_empty:
            return True
        if group.state is GroupState.PREPARING_REBALANCE:
            return group.has_joined(member_id) or group.joined_count < size_max
        return member_id in group.members or len(group.members) < size_max

    def _turn_away(self, group: ClassicGroup, member_id: str, now: Moment, out: Outcome) -> None:
        member = group.members.get(member_id)
        if member is not None:
            self._rebalance.remove_member(group, member, out)
        elif member_id in group.pending:
            group.remove(member_id)
            self._rebalance.forget(group, member_id)
        self._rebalance.maybe_complete_join(group, now, out)

    def _join_anew(
        self, group: ClassicGroup, request_id: int, request: JoinGroup, now: Moment, out: Outcome
    ) -> None:
        """A member that has no id yet, or a static one that forgot it."""
        new_id = request.new_member_id
        if request.group_instance_id is not None:
            holder = group.static_member(request.group_instance_id)
            if holder is not None:
                self._replace(group, holder, request_id, request, now, out)
                return
        elif request.member_id_required:
            # The answer may get lost and the request be sent again: with the name told first, who
            # retries is no second member (KIP-394).
            self._rebalance.expect_join(group, new_id, request.session_timeout_ms, now)
            refuse(out, request_id, ErrorCode.MEMBER_ID_REQUIRED, new_id)
            return
        self._add(group, new_id, request_id, request, now, out)

    def _add(
        self,
        group: ClassicGroup,
        member_id: str,
        request_id: int,
        request: JoinGroup,
        now: Moment,
        out: Outcome,
    ) -> None:
        member = joining_member(member_id, request)
        if group.state is GroupState.PREPARING_REBALANCE and group.was_empty:
            group.gained_member = True
        group.add(member, request.protocol_type)
        self._rebalance.hold_new(group, member, now)
        self._await_join(group, member, request_id, now, out)

    def _await_join(
        self, group: ClassicGroup, member: Member, request_id: int, now: Moment, out: Outcome
    ) -> None:
        """The request waits for the next generation, which begins to form if it does not yet."""
        if group.state is not GroupState.PREPARING_REBALANCE:
            self._note_and_prepare(group, member, request_id, now, out)
            return
        group.await_join(member, request_id)
        self._rebalance.maybe_complete_join(group, now, out)

    def _note_and_prepare(
        self, group: ClassicGroup, member: Member, request_id: int, now: Moment, out: Outcome
    ) -> None:
        # Its own SyncGroup, if one waits, is answered as everybody's is when the rebalance begins.
        self._rebalance.begin(group, now, out)
        group.await_join(member, request_id)
        self._rebalance.arm(group, now, out)

    def _join_again(
        self, group: ClassicGroup, request_id: int, request: JoinGroup, now: Moment, out: Outcome
    ) -> None:
        """A member that is known by its id."""
        member = group.identify(request.member_id, request.group_instance_id)
        if isinstance(member, ErrorCode):
            refuse(out, request_id, member, request.member_id)
            return
        if group.state is GroupState.PREPARING_REBALANCE:
            # The client gave up on a request that still waited; that one is answered first.
            self._rebalance.dismiss(
                group,
                member,
                out,
                ErrorCode.REBALANCE_IN_PROGRESS,
                member_id=member.member_id,
            )
        elif not self._changes_generation(group, member, request):
            # It may have missed the answer to its last JoinGroup: here it is again.
            out.answer(request_id, group.join_reply(member))
            return
        group.update(member, request)
        self._await_join(group, member, request_id, now, out)

    @staticmethod
    def _changes_generation(group: ClassicGroup, member: Member, request: JoinGroup) -> bool:
        """Whether a member's JoinGroup asks for a new generation. The leader's does once all is
        settled: something that only it sees has changed, such as the number of partitions.
        """
        if group.state is GroupState.STABLE and group.leader == member.member_id:
            return True
        return member.protocols != request.protocols

    def _replace(
        self,
        group: ClassicGroup,
        member: Member,
        request_id: int,
        request: JoinGroup,
        now: Moment,
        out: Outcome,
    ) -> None:
        """A static member came back under a new id; who still uses the old one is fenced."""
        old_leader, old_id = group.leader, member.member_id
        self._rebalance.dismiss(
            group, member, out, ErrorCode.FENCED_INSTANCE_ID, member_id=member.member_id
        )
        self._rebalance.forget(group, old_id)
        group.rename(member, request.new_member_id)
        member.is_new = False
        group.update(member, request)
        self._rebalance.heard_of(group, member, now)
        assignments = {key: one.assignment for key, one in group.members.items()}
        if (
            group.state is not GroupState.STABLE
            or group.elect_protocol() != group.protocol
            or group.record_bytes(assignments) > RECORD_BYTES_MAX
        ):
            self._await_join(group, member, request_id, now, out)
            return
        # Nothing changes for the others: the place and its assignment are kept without a rebalance.
        out.records.append(group.record(now.wall, assignments))
        out.answer(request_id, self._kept_place(group, member, old_leader, request))

    @staticmethod
    def _kept_place(
        group: ClassicGroup, member: Member, old_leader: str | None, request: JoinGroup
    ) -> JoinGroupReply:
        is_leader = group.leader == member.member_id
        skips = request.can_skip_assignment
        return JoinGroupReply(
            error_code=ErrorCode.NONE,
            member_id=member.member_id,
            generation_id=group.generation,
            protocol_type=group.protocol_type,
            protocol_name=group.protocol,
            # An old client that hears that it leads would assign anew, and be ignored: it is told
            # the leader's former id instead. A newer one leads, and skips the assignment (KIP-814).
            leader=(group.leader if skips else old_leader) or "",
            skip_assignment=skips and is_leader,
            members=group.joined_members() if skips and is_leader else (),
        )


def _once_each(request: JoinGroup) -> JoinGroup:
    """A protocol that is named twice is known once: votes are counted by name."""
    named: dict[str, JoinProtocol] = {}
    for one in request.protocols:
        named.setdefault(one.name, one)
    if len(named) == len(request.protocols):
        return request
    return replace(request, protocols=tuple(named.values()))


def refuse(
    out: Outcome, request_id: int, error_code: ErrorCode, member_id: str = UNKNOWN_MEMBER
) -> None:
    """Answer a JoinGroup at once."""
    out.answer(request_id, JoinGroupReply(error_code=error_code, member_id=member_id))
