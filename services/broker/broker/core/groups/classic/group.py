"""ClassicGroup: members and generation of one group of the classic protocol.

A group keeps its state consistent. Decisions about time are in ``rebalance``. The logged part (the
last stable or empty generation) changes by ``replay`` alone. Joining members and waiting requests
are in memory, and are lost with it.
"""

from collections import Counter
from collections.abc import Mapping, Set
from typing import Final

from tidemark.codec.coordinator_fields import DamagedRecordError, FieldReader
from tidemark.codec.group_records import GroupMetadataRecord, GroupMetadataValue
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import WallMs

from broker.core.groups.classic.member import NO_ASSIGNMENT, Member, logged_member
from broker.core.groups.classic.states import NEXT_STATE, Cause, GroupState
from broker.core.groups.requests import (
    DescribeGroupReply,
    JoinedMember,
    JoinGroup,
    JoinGroupReply,
    JoinProtocol,
    ListedGroup,
)

CONSUMER_PROTOCOL_TYPE: Final = "consumer"
_HEAD_BYTES: Final = 24
_MEMBER_BYTES: Final = 24
"""Sizes of a record's fixed fields, of the group and of each member."""


class ClassicGroup:
    """One group; ``check`` asserts its invariants."""

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.state = GroupState.EMPTY
        self.generation = 0
        self.protocol_type: str | None = None
        """None: no member ever joined; the consumers assign partitions themselves."""
        self.protocol: str | None = None
        self.leader: str | None = None
        self.members: dict[str, Member] = {}
        """Members by id, in the order in which they joined."""
        self.pending: set[str] = set()
        """Ids sent to new members that have not joined with them yet (KIP-394)."""
        self.unsynced: set[str] = set()
        """Members that have not sent SyncGroup in this generation."""
        self.is_logged = False
        """True if the group's last record in the log is not a tombstone."""
        self.must_join_again = False
        """True if the group was loaded without a leader: it was a consumer group until then."""
        self.state_changed_at: WallMs | None = None
        """Time of the logged state; None if unknown."""
        self.was_empty = False
        """While preparing a rebalance: the group was empty before, so more members may follow."""
        self.gained_member = False
        """While preparing a rebalance of an empty group: a member joined since the last deadline.
        """
        self.delay_ms = self.delay_left_ms = 0
        """While preparing a rebalance of an empty group: the current delay, and the rest after
        it.
        """
        self._instances: dict[str, str] = {}
        self._joined: set[str] = set()
        self._supporters: Counter[str] = Counter()

    # -- state

    def move(self, cause: Cause) -> None:
        """Move to the next state in the table; any other move is a bug."""
        moved = (self.state, cause)
        assert moved in NEXT_STATE, f"{self.group_id}: {moved}"
        self.state = NEXT_STATE[moved]

    @property
    def is_empty(self) -> bool:
        """True if no generation has members, though ids may have been sent to new members."""
        return self.state is GroupState.EMPTY

    @property
    def is_disposable(self) -> bool:
        """True if removing the group from memory loses nothing."""
        return self.is_empty and not self.is_logged and not self.pending

    @property
    def all_joined(self) -> bool:
        """True if every member has joined the next generation, and every id sent has been used."""
        return len(self._joined) == len(self.members) and not self.pending

    @property
    def joined_count(self) -> int:
        """Number of members that wait for the next generation."""
        return len(self._joined)

    @property
    def rebalance_timeout_ms(self) -> int:
        """Longest rebalance timeout of any member."""
        return max((one.rebalance_timeout_ms for one in self.members.values()), default=0)

    def has_joined(self, member_id: str) -> bool:
        """True if this member waits for the next generation."""
        return member_id in self._joined

    # -- members

    def add(self, member: Member, protocol_type: str) -> None:
        """Add a new member; its request is registered by ``await_join``."""
        assert member.member_id not in self.members
        if member.group_instance_id is not None:
            assert member.group_instance_id not in self._instances
            self._instances[member.group_instance_id] = member.member_id
        if not self.members:
            self.protocol_type = protocol_type
        assert self.protocol_type == protocol_type
        if self.leader is None:
            self.leader = member.member_id
        self.members[member.member_id] = member
        self._supporters.update(one.name for one in member.protocols)
        self.pending.discard(member.member_id)

    def remove(self, member_id: str) -> Member | None:
        """Remove a member or a pending id. The caller answers the member's waiting requests."""
        self.pending.discard(member_id)
        self.unsynced.discard(member_id)
        self._joined.discard(member_id)
        member = self.members.pop(member_id, None)
        if member is None:
            return None
        self._supporters.subtract(one.name for one in member.protocols)
        if member.group_instance_id is not None:
            del self._instances[member.group_instance_id]
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)
        return member

    def update(self, member: Member, request: JoinGroup) -> None:
        """Take over a member's new protocols, timeouts and client details when it joins again."""
        self._supporters.subtract(one.name for one in member.protocols)
        member.protocols = request.protocols
        self._supporters.update(one.name for one in member.protocols)
        member.rebalance_timeout_ms = request.rebalance_timeout_ms
        member.session_timeout_ms = request.session_timeout_ms
        member.client_id, member.client_host = request.client_id, request.client_host

    def rename(self, member: Member, new_member_id: str) -> None:
        """Give a static member's place to its new member id (KIP-345)."""
        assert member.group_instance_id is not None
        assert member.awaiting_join is None
        assert member.awaiting_sync is None
        old = member.member_id
        if old in self.unsynced:
            self.unsynced = self.unsynced - {old} | {new_member_id}
        del self.members[old]
        member.member_id = new_member_id
        self.members[new_member_id] = member
        self._instances[member.group_instance_id] = new_member_id
        if self.leader == old:
            self.leader = new_member_id

    def await_join(self, member: Member, request_id: int) -> None:
        """Register a JoinGroup that waits for the next generation."""
        assert member.awaiting_join is None
        member.awaiting_join = request_id
        self._joined.add(member.member_id)

    def stop_awaiting_join(self, member: Member) -> int | None:
        """Return the member's waiting JoinGroup, if there is one, to be answered now."""
        request_id, member.awaiting_join = member.awaiting_join, None
        self._joined.discard(member.member_id)
        return request_id

    def static_member(self, group_instance_id: str | None) -> Member | None:
        """Return the member that holds a static member's place."""
        member_id = self._instances.get(group_instance_id or "")
        return self.members[member_id] if member_id is not None else None

    def identify(self, member_id: str, group_instance_id: str | None) -> Member | ErrorCode:
        """Return the sender of a request. A static member whose place another holds is fenced."""
        if group_instance_id is not None:
            holder = self.static_member(group_instance_id)
            if holder is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if holder.member_id != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return self.members.get(member_id, ErrorCode.UNKNOWN_MEMBER_ID)

    # -- protocols

    def supports(self, protocol_type: str, protocols: tuple[JoinProtocol, ...]) -> bool:
        """True if a member with these protocols can join: all members support one of them."""
        if self.is_empty:
            return bool(protocol_type) and bool(protocols)
        return self.protocol_type == protocol_type and any(
            self._supporters[one.name] == len(self.members) for one in protocols
        )

    def elect_protocol(self) -> str:
        """Return the protocol with most votes, among those that every member supports."""
        candidates = {
            name for name, count in self._supporters.items() if count == len(self.members)
        }
        votes = Counter(member.vote(candidates) for member in self.members.values())
        return max(votes, key=lambda name: votes[name])

    def subscribed_topics(self) -> Set[str] | None:
        """Return the topics that the members read, or None if that is unknown.

        Known only in the consumers' own protocol, of which every version begins as version 0 does.
        """
        if self.protocol_type != CONSUMER_PROTOCOL_TYPE:
            return None
        topics: set[str] = set()
        for member in self.members.values():
            reader = FieldReader(member.metadata(self.protocol))
            try:
                reader.int16()
                topics.update(reader.array(reader.string))
            except DamagedRecordError:
                return None
        return topics

    def is_subscribed_to(self, topic: str) -> bool:
        """True if a member may read this topic; its offsets must then not be deleted."""
        topics = self.subscribed_topics()
        if topics is None:
            return self.protocol_type == CONSUMER_PROTOCOL_TYPE
        return topic in topics

    # -- generations

    def begin_generation(self) -> None:
        """Begin a generation with the current members."""
        self.generation += 1
        self.unsynced = set(self.members)
        self.was_empty = self.gained_member = False
        if self.members:
            self.protocol = self.elect_protocol()
            self.move(Cause.JOINED)
        else:
            self.protocol = None
            self.move(Cause.NO_MEMBERS)

    def join_reply(self, member: Member) -> JoinGroupReply:
        """Return the JoinGroup reply for a member of this generation."""
        return JoinGroupReply(
            error_code=ErrorCode.NONE,
            member_id=member.member_id,
            generation_id=self.generation,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol,
            leader=self.leader or "",
            members=self.joined_members() if member.member_id == self.leader else (),
        )

    def joined_members(self) -> tuple[JoinedMember, ...]:
        """Return all members as the leader's JoinGroup reply lists them."""
        return tuple(
            JoinedMember(one.member_id, one.group_instance_id, one.metadata(self.protocol))
            for one in self.members.values()
        )

    def record(self, now: WallMs, assignments: Mapping[str, bytes]) -> GroupMetadataRecord:
        """Return the record of this generation; without an assignment a member gets an empty
        one.
        """
        protocol = self.protocol or ""
        members = tuple(
            member.record(protocol, assignments.get(member_id, NO_ASSIGNMENT))
            for member_id, member in self.members.items()
        )
        value = GroupMetadataValue(
            protocol_type=self.protocol_type or "",
            generation=self.generation,
            protocol=self.protocol,
            leader=self.leader,
            current_state_timestamp=now,
            members=members,
        )
        return GroupMetadataRecord(self.group_id, value)

    def record_bytes(self, assignments: Mapping[str, bytes]) -> int:
        """Return an upper bound of the size of that record."""
        names = [self.protocol_type, self.protocol, self.leader]
        octets = 0
        for member_id, one in self.members.items():
            names += [member_id, one.group_instance_id, one.client_id, one.client_host]
            octets += len(one.metadata(self.protocol)) + _MEMBER_BYTES
            octets += len(assignments.get(member_id, NO_ASSIGNMENT))
        return _HEAD_BYTES + octets + sum(len(name.encode()) for name in names if name)

    def replay(self, value: GroupMetadataValue) -> None:
        """Apply a generation from the log. Live, it is the one in memory, and only the assignments
        are new. While loading it replaces the previous one.
        """
        if not self._is_in_memory(value):
            self._load(value)
        for record in value.members:
            self.members[record.member_id].assignment = record.assignment
        if self.state is GroupState.COMPLETING_REBALANCE:
            self.move(Cause.ASSIGNED)
        self.is_logged = True
        self.state_changed_at = (
            WallMs(value.current_state_timestamp) if value.current_state_timestamp >= 0 else None
        )

    def _is_in_memory(self, value: GroupMetadataValue) -> bool:
        return self.generation == value.generation and self.members.keys() == {
            record.member_id for record in value.members
        }

    def _load(self, value: GroupMetadataValue) -> None:
        assert not self._joined, f"{self.group_id}: loaded over members that wait"
        self.members = {}
        self._instances, self._supporters = {}, Counter()
        self.unsynced, self.leader = set(), None
        for record in value.members:
            self.add(logged_member(record, value.protocol), value.protocol_type)
        self.generation = value.generation
        self.protocol_type = value.protocol_type or None
        self.protocol = value.protocol
        self.leader = (
            value.leader if value.leader in self.members else next(iter(self.members), None)
        )
        self.must_join_again = value.leader is None and bool(self.members)
        self.state = GroupState.STABLE if self.members else GroupState.EMPTY

    # -- descriptions

    def listed(self) -> ListedGroup:
        """Return the group's entry in a ListGroups reply."""
        return ListedGroup(self.group_id, self.protocol_type or "", self.state.value, "classic")

    def describe(self) -> DescribeGroupReply:
        """Return the reply to DescribeGroups; it has subscriptions and assignments if stable."""
        shown = self.protocol if self.state is GroupState.STABLE else None
        return DescribeGroupReply(
            error_code=ErrorCode.NONE,
            group_id=self.group_id,
            state=self.state.value,
            protocol_type=self.protocol_type or "",
            protocol_name=shown or "",
            members=tuple(member.described(shown) for member in self.members.values()),
        )

    def check(self) -> None:
        """Assert every invariant."""
        self._check_members()
        waiting = {key for key, one in self.members.items() if one.awaiting_join is not None}
        assert waiting == self._joined
        assert not self._joined or self.state is GroupState.PREPARING_REBALANCE
        syncing = [one for one in self.members.values() if one.awaiting_sync is not None]
        assert not syncing or self.state is GroupState.COMPLETING_REBALANCE
        assert self.unsynced <= self.members.keys()
        assert not self.unsynced.intersection(one.member_id for one in syncing)
        if self.state is GroupState.COMPLETING_REBALANCE:
            assert self.leader in self.unsynced, "the leader's assignment ends this state at once"
        if self.state in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE):
            assert self.protocol is not None
            assert self.members
        if self.state is GroupState.STABLE:
            assert self.is_logged

    def _check_members(self) -> None:
        assert self.pending.isdisjoint(self.members)
        assert (self.leader in self.members) if self.members else self.leader is None
        assert not (self.is_empty and self.members)
        static = {
            one.group_instance_id: key
            for key, one in self.members.items()
            if one.group_instance_id is not None
        }
        assert static == self._instances
        counted = Counter(one.name for member in self.members.values() for one in member.protocols)
        assert counted == +self._supporters
        for member_id, member in self.members.items():
            assert member.member_id == member_id
