"""A share group as its log has it: members, targets, epochs, initialized share-partitions.

Only ``replay`` changes it. The log may begin anywhere, where its older part was deleted: a record
of a member whose other records are below the beginning is followed by a tombstone.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from tidemark.codec.share_group_records import (
    NamedTopicPartitions,
    ShareGroupCurrentMemberAssignmentRecord,
    ShareGroupMemberMetadataRecord,
    ShareGroupMetadataRecord,
    ShareGroupMetadataValue,
    ShareGroupRecord,
    ShareGroupStatePartitionMetadataRecord,
    ShareGroupStatePartitionMetadataValue,
    ShareGroupTargetAssignmentMemberRecord,
    ShareGroupTargetAssignmentMetadataRecord,
    ShareGroupTargetAssignmentMetadataValue,
)
from tidemark.model.assignment import NOTHING, Assignment, assignment_of, listed
from tidemark.model.ids import TopicId

from share_coordinator.core.member import ShareMember


class KnownTopic(NamedTuple):
    """A topic of which share-partitions are initialized."""

    name: str
    partitions: frozenset[int]


class ShareGroupState:
    """Invariant: the target's epoch is not after the group's."""

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.group_epoch = 0
        self.metadata_hash = 0
        self.assignment_epoch = 0
        self._assigned_at = 0
        self._members: dict[str, ShareMember] = {}
        self._targets: dict[str, Assignment] = {}
        self._topics: dict[TopicId, KnownTopic] = {}

    @property
    def members(self) -> Mapping[str, ShareMember]:
        """By member id."""
        return self._members

    @property
    def topics(self) -> Mapping[TopicId, KnownTopic]:
        """Topics of which share-partitions are initialized."""
        return self._topics

    @property
    def exists(self) -> bool:
        """True if the group was created and not deleted."""
        return self.group_epoch > 0

    @property
    def is_nothing(self) -> bool:
        """True if the log has no record of the group but tombstones."""
        return not (self.exists or self.assignment_epoch or self._members or self._targets) and (
            not self._topics
        )

    @property
    def title(self) -> str:
        """State as the APIs name it."""
        return "Stable" if self._members else "Empty"

    def target_of(self, member_id: str) -> Assignment:
        """Target assignment of a member."""
        return self._targets.get(member_id, NOTHING)

    # -------------------------------------------------------------------- the log

    def replay(self, record: ShareGroupRecord) -> None:
        """A record of this group."""
        assert record.group_id == self.group_id, record
        match record:
            case ShareGroupMetadataRecord():
                value = record.value or ShareGroupMetadataValue(0)
                self.group_epoch, self.metadata_hash = value.epoch, value.metadata_hash
            case ShareGroupTargetAssignmentMetadataRecord():
                target = record.value or ShareGroupTargetAssignmentMetadataValue(0)
                self.assignment_epoch = target.assignment_epoch
                self._assigned_at = target.assignment_timestamp
            case ShareGroupMemberMetadataRecord():
                self._replay_member(record)
            case ShareGroupTargetAssignmentMemberRecord():
                if record.value is None:
                    self._targets.pop(record.member_id, None)
                else:
                    self._targets[record.member_id] = assignment_of(record.value)
            case ShareGroupCurrentMemberAssignmentRecord():
                self._replay_current(record)
            case ShareGroupStatePartitionMetadataRecord():
                self._replay_topics(record)

    def _replay_member(self, record: ShareGroupMemberMetadataRecord) -> None:
        if record.value is None:
            self._members.pop(record.member_id, None)
            return
        member = self._members.get(record.member_id) or ShareMember(record.member_id)
        self._members[record.member_id] = replace(member, about=record.value)

    def _replay_current(self, record: ShareGroupCurrentMemberAssignmentRecord) -> None:
        member = self._members.get(record.member_id)
        if record.value is not None:
            member = member or ShareMember(record.member_id)
            self._members[record.member_id] = member.with_value(record.value)
        elif member is not None:
            self._members[record.member_id] = ShareMember(member.member_id, member.about)

    def _replay_topics(self, record: ShareGroupStatePartitionMetadataRecord) -> None:
        value = record.value or ShareGroupStatePartitionMetadataValue()
        self._topics = {
            topic_id: KnownTopic(name, frozenset(partitions))
            for topic_id, name, partitions in value.initialized
        }

    # -------------------------------------------------------------------- records

    def epoch_record(self, epoch: int, metadata_hash: int | None = None) -> ShareGroupRecord:
        """Record of the group's epoch."""
        metadata_hash = self.metadata_hash if metadata_hash is None else metadata_hash
        return ShareGroupMetadataRecord(
            self.group_id, ShareGroupMetadataValue(epoch, metadata_hash)
        )

    def member_record(self, member: ShareMember) -> ShareGroupRecord:
        """Record of a member's metadata."""
        return ShareGroupMemberMetadataRecord(self.group_id, member.member_id, member.about)

    def current_record(self, member: ShareMember) -> ShareGroupRecord:
        """Record of a member's assignment."""
        return ShareGroupCurrentMemberAssignmentRecord(
            self.group_id, member.member_id, member.as_value()
        )

    def target_record(self, member_id: str, target: Assignment) -> ShareGroupRecord:
        """Record of a member's target."""
        return ShareGroupTargetAssignmentMemberRecord(self.group_id, member_id, listed(target))

    def assigned_record(self, epoch: int, wall_ms: int) -> ShareGroupRecord:
        """Record of the target's epoch; it follows those of the targets."""
        return ShareGroupTargetAssignmentMetadataRecord(
            self.group_id, ShareGroupTargetAssignmentMetadataValue(epoch, wall_ms)
        )

    def topics_record(self, topics: Mapping[TopicId, KnownTopic]) -> ShareGroupRecord:
        """Record of the topics of which share-partitions are initialized."""
        initialized = tuple(
            NamedTopicPartitions(topic_id, topics[topic_id].name, tuple(sorted(partitions)))
            for topic_id in sorted(topics)
            if (partitions := topics[topic_id].partitions)
        )
        value = ShareGroupStatePartitionMetadataValue(initialized=initialized)
        return ShareGroupStatePartitionMetadataRecord(self.group_id, value if topics else None)

    def member_tombstones(self, member_id: str) -> list[ShareGroupRecord]:
        """Return the records that remove a member; its metadata last, as they keep its session."""
        return [
            ShareGroupCurrentMemberAssignmentRecord(self.group_id, member_id, None),
            ShareGroupTargetAssignmentMemberRecord(self.group_id, member_id, None),
            ShareGroupMemberMetadataRecord(self.group_id, member_id, None),
        ]

    def group_tombstones(self) -> list[ShareGroupRecord]:
        """Return the records that delete the group; its epoch last: until then it exists."""
        assert not self._members, "a group with members is not deleted"
        return [
            ShareGroupStatePartitionMetadataRecord(self.group_id, None),
            ShareGroupTargetAssignmentMetadataRecord(self.group_id, None),
            ShareGroupMetadataRecord(self.group_id, None),
        ]

    def record_of(self, kind: type[ShareGroupRecord], member_id: str) -> ShareGroupRecord | None:
        """Return a record that replaces the earlier one of its key; None: it was deleted."""
        if kind is ShareGroupMetadataRecord:
            return self.epoch_record(self.group_epoch) if self.exists else None
        if kind is ShareGroupTargetAssignmentMetadataRecord:
            epoch = self.assignment_epoch
            return self.assigned_record(epoch, self._assigned_at) if epoch else None
        if kind is ShareGroupStatePartitionMetadataRecord:
            return self.topics_record(self._topics) if self._topics else None
        if kind is ShareGroupTargetAssignmentMemberRecord:
            target = self._targets.get(member_id)
            return self.target_record(member_id, target) if target is not None else None
        member = self._members.get(member_id)
        if member is None:
            return None
        if kind is ShareGroupMemberMetadataRecord:
            return self.member_record(member)
        assert kind is ShareGroupCurrentMemberAssignmentRecord, kind
        return self.current_record(member)

    def check(self) -> None:
        """Assert the invariant."""
        assert self.assignment_epoch <= self.group_epoch, self.group_id
        for topic_id, topic in self._topics.items():
            assert topic.partitions, (self.group_id, topic_id)

    def __eq__(self, other: object) -> bool:
        """Compare the states that the logs of both lead to."""
        if not isinstance(other, ShareGroupState):
            return NotImplemented
        return self._facts() == other._facts()

    __hash__ = None  # type: ignore[assignment]

    def _facts(self) -> tuple[object, ...]:
        return (
            self.group_id,
            self.group_epoch,
            self.metadata_hash,
            self.assignment_epoch,
            self._assigned_at,
            self._members,
            self._targets,
            self._topics,
        )
