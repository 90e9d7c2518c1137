"""JoinGroup: admission of members, their ids, and the rebalance that a join starts."""

from dataclasses import replace

from tidemark.model.errors import ErrorCode
from tidemark.protocol.shard import Moment

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
    """Decides JoinGroup requests; `Rebalance` moves the group."""

    def __init__(self, settings: GroupSettings, rebalance: Rebalance) -> None:
        self._settings = settings
        self._rebalance = rebalance

    def refusal(self, request: JoinGroup) -> ErrorCode | None:
        """Return the error of a request that is invalid for any group, or None."""
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
        """Decide one request; its reply may come with a later decision."""
        request = _once_each(request)
        if not self._has_room(group, request.member_id):
            self._reject_for_size(group, request.member_id, now, out)
            refuse(out, request_id, ErrorCode.GROUP_MAX_SIZE_REACHED)
        elif not group.supports(request.protocol_type, request.protocols):
            refuse(out, request_id, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, request.member_id)
        elif request.member_id == UNKNOWN_MEMBER:
            self._join_without_id(group, request_id, request, now, out)
        elif request.member_id in group.pending and request.group_instance_id is None:
            self._add(group, request.member_id, request_id, request, now, out)
        else:
            self._join_again(group, request_id, request, now, out)

    def _has_room(self, group: ClassicGroup, member_id: str) -> bool:
        """True if the group may take this member.

        Members are counted for the next generation. While it forms, those that have joined count,
        so that a group that is too large keeps the first ones to join.
        """
        size_max = self._settings.group_max_size
        if group.is_empty:
            return True
        if group.state is GroupState.PREPARING_REBALANCE:
            return group.has_joined(member_id) or group.joined_count < size_max
        return member_id in group.members or len(group.members) < size_max

    def _reject_for_size(
        self, group: ClassicGroup, member_id: str, now: Moment, out: Outcome
    ) -> None:
        member = group.members.get(member_id)
        if member is not None:
            self._rebalance.remove_member(group, member, out)
        elif member_id in group.pending:
            group.remove(member_id)
            self._rebalance.forget(group, member_id)
        self._rebalance.maybe_complete_join(group, now, out)

    def _join_without_id(
        self, group: ClassicGroup, request_id: int, request: JoinGroup, now: Moment, out: Outcome
    ) -> None:
        """Handle a member without an id, or a static one that restarted without it."""
        new_id = request.new_member_id
        if request.group_instance_id is not None:
            holder = group.static_member(request.group_instance_id)
            if holder is not None:
                self._replace(group, holder, request_id, request, now, out)
                return
        elif request.member_id_required:
            # The reply may get lost and the request be sent again. As the id is sent first, the
            # retry does not add a second member (KIP-394).
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
        self._rebalance.await_first_generation(group, member, now)
        self._await_join(group, member, request_id, now, out)

    def _await_join(
        self, group: ClassicGroup, member: Member, request_id: int, now: Moment, out: Outcome
    ) -> None:
        """Let the request wait for the next generation, and begin to form it if need be."""
        if group.state is not GroupState.PREPARING_REBALANCE:
            self._await_and_prepare(group, member, request_id, now, out)
            return
        group.await_join(member, request_id)
        self._rebalance.maybe_complete_join(group, now, out)

    def _await_and_prepare(
        self, group: ClassicGroup, member: Member, request_id: int, now: Moment, out: Outcome
    ) -> None:
        # Its own waiting SyncGroup is answered like all others when the rebalance begins.
        self._rebalance.begin(group, now, out)
        group.await_join(member, request_id)
        self._rebalance.arm(group, now, out)

    def _join_again(
        self, group: ClassicGroup, request_id: int, request: JoinGroup, now: Moment, out: Outcome
    ) -> None:
        """Handle a member with an id."""
        member = group.identify(request.member_id, request.group_instance_id)
        if isinstance(member, ErrorCode):
            refuse(out, request_id, member, request.member_id)
            return
        if group.state is GroupState.PREPARING_REBALANCE:
            # The client gave up on an earlier request that still waits; answer that one first.
            self._rebalance.answer_waiting(
                group,
                member,
                out,
                ErrorCode.REBALANCE_IN_PROGRESS,
                member_id=member.member_id,
            )
        elif not self._changes_generation(group, member, request):
            # The reply to its last JoinGroup may have been lost: repeat it.
            out.answer(request_id, group.join_reply(member))
            return
        group.update(member, request)
        self._await_join(group, member, request_id, now, out)

    @staticmethod
    def _changes_generation(group: ClassicGroup, member: Member, request: JoinGroup) -> bool:
        """True if a member's JoinGroup starts a new generation.

        In a stable group the leader's always does: it joins again when it sees a change, such as a
        new number of partitions.
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
        """Give a static member's place to its new member id; the old id is fenced."""
        old_leader, old_id = group.leader, member.member_id
        self._rebalance.answer_waiting(
            group, member, out, ErrorCode.FENCED_INSTANCE_ID, member_id=member.member_id
        )
        self._rebalance.forget(group, old_id)
        group.rename(member, request.new_member_id)
        member.is_new = False
        group.update(member, request)
        self._rebalance.renew_session(group, member, now)
        assignments = {key: one.assignment for key, one in group.members.items()}
        if (
            group.state is not GroupState.STABLE
            or group.elect_protocol() != group.protocol
            or group.record_bytes(assignments) > RECORD_BYTES_MAX
        ):
            self._await_join(group, member, request_id, now, out)
            return
        # No other member is affected: the assignment is kept without a rebalance.
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
            # An old client that learns that it leads would send new assignments, which are ignored.
            # It gets the leader's former id instead. A newer one leads and skips the assignment
            # (KIP-814).
            leader=(group.leader if skips else old_leader) or "",
            skip_assignment=skips and is_leader,
            members=group.joined_members() if skips and is_leader else (),
        )


def _once_each(request: JoinGroup) -> JoinGroup:
    """Remove repeated protocol names; votes are counted by name."""
    named: dict[str, JoinProtocol] = {}
    for one in request.protocols:
        named.setdefault(one.name, one)
    if len(named) == len(request.protocols):
        return request
    return replace(request, protocols=tuple(named.values()))


def refuse(
    out: Outcome, request_id: int, error_code: ErrorCode, member_id: str = UNKNOWN_MEMBER
) -> None:
    """Answer a JoinGroup with an error."""
    out.answer(request_id, JoinGroupReply(error_code=error_code, member_id=member_id))
