"""Logged state of one KIP-848 group: replayed records, and values derived from them alone."""

from collections.abc import Collection, Iterator, Mapping, Set
from dataclasses import replace
from enum import StrEnum

from tidemark.codec.group_records_consumer import (
    ConsumerGroupCurrentMemberAssignmentRecord,
    ConsumerGroupMemberMetadataRecord,
    ConsumerGroupMetadataRecord,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataRecord,
    ConsumerGroupRegularExpressionRecord,
    ConsumerGroupTargetAssignmentMemberRecord,
    ConsumerGroupTargetAssignmentMetadataRecord,
    ConsumerRecord,
    RegularExpressionValue,
    TopicMetadata,
)
from tidemark.model.assignment import NOTHING, Assignment, assignment_of, listed, pairs
from tidemark.model.ids import TopicId, WallMs

from broker.core.groups.consumer.member import ConsumerMember
from broker.core.groups.subscriptions.resolver import Matches


class GroupState(StrEnum):
    """State of a group, with Kafka's names. A group that does not exist is Dead."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    """The target is older than the members or topics."""
    RECONCILING = "Reconciling"
    """Some member has not reached its target."""
    STABLE = "Stable"
    DEAD = "Dead"


class ConsumerGroupState:
    """Logged state of one group; changes by ``replay`` alone. Records of a compacted log come in
    the order in which they were last written, so a member may appear in parts.

    Invariants: a partition has one owner; ``assignment_epoch <= group_epoch``.
    """

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.group_epoch = 0
        self.assignment_epoch = 0
        self.topics: tuple[TopicMetadata, ...] = ()
        """Subscribed topics at the last rise of the group epoch because of them."""
        self._matches: dict[str, frozenset[str]] = {}
        self._members: dict[str, ConsumerMember] = {}
        self._targets: dict[str, Assignment] = {}
        self._owners: dict[tuple[TopicId, int], str] = {}
        self._static: dict[str, str] = {}
        self._classic: set[str] = set()

    @property
    def members(self) -> Mapping[str, ConsumerMember]:
        """Members by id."""
        return self._members

    @property
    def matches(self) -> Matches:
        """Topics of each pattern, as of its last match."""
        return self._matches

    @property
    def is_all_classic(self) -> bool:
        """True if the group has members, all of the classic protocol."""
        return 0 < len(self._classic) == len(self._members)

    @property
    def classic_ids(self) -> Set[str]:
        """Ids of the members of the classic protocol."""
        return self._classic

    @property
    def target_ids(self) -> Set[str]:
        """Ids of the members that have a target. A log that was cut may lack their details."""
        return self._targets.keys()

    @property
    def exists(self) -> bool:
        """True if the log has records of the group."""
        return self.group_epoch > 0 or bool(self._members or self._targets)

    @property
    def state(self) -> GroupState:
        """State as shown by Kafka's tools."""
        if not self.exists:
            return GroupState.DEAD
        if not self._members:
            return GroupState.EMPTY
        if self.group_epoch > self.assignment_epoch:
            return GroupState.ASSIGNING
        epoch = self.assignment_epoch
        if all(member.is_reconciled_to(epoch) for member in self._members.values()):
            return GroupState.STABLE
        return GroupState.RECONCILING

    def target_of(self, member_id: str) -> Assignment:
        """Return a member's target."""
        return self._targets.get(member_id, NOTHING)

    def owner_of(self, topic_id: TopicId, partition: int) -> str | None:
        """Return the member that has a partition, or has not confirmed its revocation yet."""
        return self._owners.get((topic_id, partition))

    def static_member(self, instance_id: str) -> ConsumerMember | None:
        """Return the member with this instance id."""
        return self._members.get(self._static.get(instance_id, ""))

    def replay(self, record: ConsumerRecord) -> None:
        """Apply a record of this group."""
        assert record.group_id == self.group_id, record
        match record:
            case ConsumerGroupMetadataRecord():
                self.group_epoch = record.value.epoch if record.value is not None else 0
            case ConsumerGroupPartitionMetadataRecord():
                self.topics = record.value or ()
            case ConsumerGroupMemberMetadataRecord():
                self._replay_member(record)
            case ConsumerGroupTargetAssignmentMetadataRecord():
                self.assignment_epoch = record.value or 0
            case ConsumerGroupTargetAssignmentMemberRecord():
                self._replay_target(record)
            case ConsumerGroupCurrentMemberAssignmentRecord():
                self._replay_current(record)
            case ConsumerGroupRegularExpressionRecord():
                self._replay_matches(record)

    def _replay_matches(self, record: ConsumerGroupRegularExpressionRecord) -> None:
        if record.value is None:
            self._matches.pop(record.regular_expression, None)
        else:
            self._matches[record.regular_expression] = frozenset(record.value.topics)

    def _replay_member(self, record: ConsumerGroupMemberMetadataRecord) -> None:
        before = self._members.get(record.member_id)
        self._classic.discard(record.member_id)
        if before is not None and before.about.instance_id is not None:
            self._forget_instance(before.about.instance_id, record.member_id)
        if record.value is None:
            if before is not None:
                self._release(before)
                del self._members[record.member_id]
            return
        member = before or ConsumerMember(record.member_id)
        self._members[record.member_id] = replace(member, about=record.value)
        if record.value.classic_member_metadata is not None:
            self._classic.add(record.member_id)
        if record.value.instance_id is not None:
            self._static[record.value.instance_id] = record.member_id

    def _replay_target(self, record: ConsumerGroupTargetAssignmentMemberRecord) -> None:
        if record.value is None:
            self._targets.pop(record.member_id, None)
        else:
            self._targets[record.member_id] = assignment_of(record.value)

    def _replay_current(self, record: ConsumerGroupCurrentMemberAssignmentRecord) -> None:
        before = self._members.get(record.member_id)
        if record.value is None:
            if before is not None:
                self._release(before)
                # Reset to the state before the first assignment: compaction may leave it so.
                self._members[record.member_id] = ConsumerMember(before.member_id, before.about)
            return
        member = before or ConsumerMember(record.member_id)
        self._release(member)
        after = member.with_value(record.value)
        self._members[record.member_id] = after
        for one in _owned(after):
            self._owners[one] = record.member_id

    def _release(self, member: ConsumerMember) -> None:
        for one in _owned(member):
            if self._owners.get(one) == member.member_id:
                del self._owners[one]

    def _forget_instance(self, instance_id: str, member_id: str) -> None:
        if self._static.get(instance_id) == member_id:
            del self._static[instance_id]

    def as_records(self) -> list[ConsumerRecord]:
        """Return records whose replay gives this state, as compaction leaves them."""
        group_id = self.group_id
        records: list[ConsumerRecord] = [
            _matches_record(group_id, regex, names, RegularExpressionValue((), 0, 0))
            for regex, names in self._matches.items()
        ]
        for member in self._members.values():
            records.append(metadata_record(group_id, member))
            records.append(current_record(group_id, member))
        for member_id in self._targets:
            records.append(target_record(group_id, member_id, self._targets[member_id]))
        records.append(ConsumerGroupPartitionMetadataRecord(group_id, self.topics))
        records.append(epoch_record(group_id, self.group_epoch))
        records.append(ConsumerGroupTargetAssignmentMetadataRecord(group_id, self.assignment_epoch))
        return records

    def check(self) -> None:
        """Assert every invariant."""
        assert self.assignment_epoch <= self.group_epoch
        owned = [one for member in self._members.values() for one in _owned(member)]
        assert len(owned) == len(set(owned)), "a partition has two owners"
        assert len(owned) == len(self._owners), "owners are the members' partitions"
        for member in self._members.values():
            for one in _owned(member):
                assert self._owners[one] == member.member_id, one
        classic = {one.member_id for one in self._members.values() if one.classic is not None}
        assert classic == self._classic
        for instance_id, member_id in self._static.items():
            assert self._members[member_id].about.instance_id == instance_id

    def __eq__(self, other: object) -> bool:
        """True if both groups have the same logged state."""
        if not isinstance(other, ConsumerGroupState):
            return NotImplemented
        return self._facts() == other._facts()

    __hash__ = None  # type: ignore[assignment]

    def _facts(self) -> tuple[object, ...]:
        return (
            self.group_id,
            self.group_epoch,
            self.assignment_epoch,
            self.topics,
            self._matches,
            self._members,
            self._targets,
            self._owners,
            self._static,
        )


def metadata_record(group_id: str, member: ConsumerMember) -> ConsumerGroupMemberMetadataRecord:
    """Return the record of a member's details."""
    return ConsumerGroupMemberMetadataRecord(group_id, member.member_id, member.about)


def current_record(
    group_id: str, member: ConsumerMember
) -> ConsumerGroupCurrentMemberAssignmentRecord:
    """Return the record of a member's current assignment."""
    return ConsumerGroupCurrentMemberAssignmentRecord(group_id, member.member_id, member.as_value())


def target_record(
    group_id: str, member_id: str, target: Assignment
) -> ConsumerGroupTargetAssignmentMemberRecord:
    """Return the record of a member's target."""
    return ConsumerGroupTargetAssignmentMemberRecord(group_id, member_id, listed(target))


def epoch_record(group_id: str, epoch: int) -> ConsumerGroupMetadataRecord:
    """Return the record of the group's epoch."""
    return ConsumerGroupMetadataRecord(group_id, ConsumerGroupMetadataValue(epoch))


def matches_records(
    state: ConsumerGroupState, matches: Matches, position: int, now: WallMs
) -> list[ConsumerRecord]:
    """Return the records of the patterns whose topics are others than those logged, and tombstones
    of patterns without a member; ``matches`` are those of all members.
    """
    changed = sorted(one for one in matches if state.matches.get(one) != matches[one])
    seen = RegularExpressionValue((), position, now)
    return [
        *_unmatched(state.group_id, state.matches.keys() - matches.keys()),
        *(_matches_record(state.group_id, regex, matches[regex], seen) for regex in changed),
    ]


def matches_tombstones(state: ConsumerGroupState, leaving: Collection[str]) -> list[ConsumerRecord]:
    """Return the tombstones of the patterns that no member has once these members have left."""
    staying = {
        member.subscription.regex
        for member_id, member in state.members.items()
        if member_id not in leaving
    }
    return _unmatched(state.group_id, state.matches.keys() - staying)


def _unmatched(group_id: str, regexes: Set[str]) -> list[ConsumerRecord]:
    return [
        ConsumerGroupRegularExpressionRecord(group_id, regex, None) for regex in sorted(regexes)
    ]


def _matches_record(
    group_id: str, regex: str, names: frozenset[str], seen: RegularExpressionValue
) -> ConsumerGroupRegularExpressionRecord:
    value = seen._replace(topics=tuple(sorted(names)))
    return ConsumerGroupRegularExpressionRecord(group_id, regex, value)


def member_tombstones(group_id: str, member_id: str) -> list[ConsumerRecord]:
    """Return the tombstones of a member; its metadata, which keeps a session, goes last."""
    return [
        ConsumerGroupCurrentMemberAssignmentRecord(group_id, member_id, None),
        ConsumerGroupTargetAssignmentMemberRecord(group_id, member_id, None),
        ConsumerGroupMemberMetadataRecord(group_id, member_id, None),
    ]


def group_tombstones(state: ConsumerGroupState) -> list[ConsumerRecord]:
    """Return the tombstones of a group."""
    records = [
        record
        for member_id in sorted(state.members.keys() | state.target_ids)
        for record in member_tombstones(state.group_id, member_id)
    ]
    return [
        *_unmatched(state.group_id, state.matches.keys()),
        *records,
        ConsumerGroupTargetAssignmentMetadataRecord(state.group_id, None),
        ConsumerGroupPartitionMetadataRecord(state.group_id, None),
        ConsumerGroupMetadataRecord(state.group_id, None),
    ]


def _owned(member: ConsumerMember) -> Iterator[tuple[TopicId, int]]:
    yield from pairs(member.assigned)
    yield from pairs(member.pending_revocation)
