"""Records of share groups: Kafka's ShareGroup* keys 10 to 15, all values of version 0 and flexible.

Kafka keeps them in ``__consumer_offsets``, here they are in ``__share_group_state``, where their
keys do not collide with those of ``share_records``. A record whose value is None is a tombstone.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from tidemark.codec.coordinator_fields import (
    DamagedRecordError,
    FieldReader,
    FieldWriter,
    read_version,
)
from tidemark.codec.group_records_consumer import read_topics, write_topics
from tidemark.model.assignment import TopicIdPartitions
from tidemark.model.ids import TopicId

MEMBER_METADATA_KEY: Final = 10
GROUP_METADATA_KEY: Final = 11
TARGET_ASSIGNMENT_METADATA_KEY: Final = 12
TARGET_ASSIGNMENT_MEMBER_KEY: Final = 13
CURRENT_MEMBER_ASSIGNMENT_KEY: Final = 14
STATE_PARTITION_METADATA_KEY: Final = 15

_VERSION: Final = 0
_ASSIGNMENT_TIMESTAMP_TAG: Final = 0
_INT64_BYTES: Final = 8


@dataclass(frozen=True, slots=True)
class ShareGroupMemberMetadataValue:
    """Identity and subscription of a member, as its heartbeats gave them."""

    rack_id: str | None
    client_id: str
    client_host: str
    subscribed_topic_names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ShareGroupMemberMetadataRecord:
    """Key 10."""

    group_id: str
    member_id: str
    value: ShareGroupMemberMetadataValue | None


@dataclass(frozen=True, slots=True)
class ShareGroupMetadataValue:
    """Epoch of the group, raised by every change of its members or of their topics."""

    epoch: int
    metadata_hash: int = 0
    """Hash of the subscribed topics: a different one means that the group must be rebalanced."""


@dataclass(frozen=True, slots=True)
class ShareGroupMetadataRecord:
    """Key 11."""

    group_id: str
    value: ShareGroupMetadataValue | None


@dataclass(frozen=True, slots=True)
class ShareGroupTargetAssignmentMetadataValue:
    """Epoch of the target assignment."""

    assignment_epoch: int
    assignment_timestamp: int = 0
    """Wall ms at which the target was computed (KIP-1263); 0: unknown."""


@dataclass(frozen=True, slots=True)
class ShareGroupTargetAssignmentMetadataRecord:
    """Key 12."""

    group_id: str
    value: ShareGroupTargetAssignmentMetadataValue | None


@dataclass(frozen=True, slots=True)
class ShareGroupTargetAssignmentMemberRecord:
    """Key 13: target assignment of one member."""

    group_id: str
    member_id: str
    value: tuple[TopicIdPartitions, ...] | None


@dataclass(frozen=True, slots=True)
class ShareGroupCurrentMemberAssignmentValue:
    """Current epoch and assignment of a member."""

    member_epoch: int
    previous_member_epoch: int
    state: int
    """Kafka's MemberState: 0 stable. Members of share groups have no other state."""
    assigned_partitions: tuple[TopicIdPartitions, ...]


@dataclass(frozen=True, slots=True)
class ShareGroupCurrentMemberAssignmentRecord:
    """Key 14."""

    group_id: str
    member_id: str
    value: ShareGroupCurrentMemberAssignmentValue | None


class NamedTopicPartitions(NamedTuple):
    """Some partitions of one topic, by its id and the name it had."""

    topic_id: TopicId
    topic_name: str
    partitions: tuple[int, ...]


class NamedTopic(NamedTuple):
    """A topic, by its id and the name it had."""

    topic_id: TopicId
    topic_name: str


@dataclass(frozen=True, slots=True)
class ShareGroupStatePartitionMetadataValue:
    """Share-partitions of the group, by how far their initialization is."""

    initializing: tuple[NamedTopicPartitions, ...] = ()
    initialized: tuple[NamedTopicPartitions, ...] = ()
    deleting: tuple[NamedTopic, ...] = ()


@dataclass(frozen=True, slots=True)
class ShareGroupStatePartitionMetadataRecord:
    """Key 15."""

    group_id: str
    value: ShareGroupStatePartitionMetadataValue | None


ShareGroupRecord = (
    ShareGroupMemberMetadataRecord
    | ShareGroupMetadataRecord
    | ShareGroupTargetAssignmentMetadataRecord
    | ShareGroupTargetAssignmentMemberRecord
    | ShareGroupCurrentMemberAssignmentRecord
    | ShareGroupStatePartitionMetadataRecord
)


# ---------------------------------------------------------------- writing


def _write_member_metadata(writer: FieldWriter, value: ShareGroupMemberMetadataValue) -> None:
    writer.string(value.rack_id)
    writer.string(value.client_id)
    writer.string(value.client_host)
    writer.array(value.subscribed_topic_names, writer.string)


def _write_group_metadata(writer: FieldWriter, value: ShareGroupMetadataValue) -> None:
    writer.int32(value.epoch)
    writer.int64(value.metadata_hash)


def _write_target_metadata(
    writer: FieldWriter, value: ShareGroupTargetAssignmentMetadataValue
) -> Mapping[int, bytes] | None:
    writer.int32(value.assignment_epoch)
    if not value.assignment_timestamp:
        return None
    tagged = FieldWriter(_VERSION)
    tagged.int64(value.assignment_timestamp)
    return {_ASSIGNMENT_TIMESTAMP_TAG: tagged.done_without_version()}


def _write_current_assignment(
    writer: FieldWriter, value: ShareGroupCurrentMemberAssignmentValue
) -> None:
    writer.int32(value.member_epoch)
    writer.int32(value.previous_member_epoch)
    writer.int8(value.state)
    write_topics(writer, value.assigned_partitions)


def _write_state_partitions(
    writer: FieldWriter, value: ShareGroupStatePartitionMetadataValue
) -> None:
    def write_partitions(topic: NamedTopicPartitions) -> None:
        writer.uuid(topic.topic_id)
        writer.string(topic.topic_name)
        writer.array(topic.partitions, writer.int32)
        writer.tags()

    def write_topic(topic: NamedTopic) -> None:
        writer.uuid(topic.topic_id)
        writer.string(topic.topic_name)
        writer.tags()

    writer.array(value.initializing, write_partitions)
    writer.array(value.initialized, write_partitions)
    writer.array(value.deleting, write_topic)


_WRITERS: Final[Mapping[type, tuple[int, Callable[[FieldWriter, Any], Any]]]] = MappingProxyType(
    {
        ShareGroupMemberMetadataRecord: (MEMBER_METADATA_KEY, _write_member_metadata),
        ShareGroupMetadataRecord: (GROUP_METADATA_KEY, _write_group_metadata),
        ShareGroupTargetAssignmentMetadataRecord: (
            TARGET_ASSIGNMENT_METADATA_KEY,
            _write_target_metadata,
        ),
        ShareGroupTargetAssignmentMemberRecord: (TARGET_ASSIGNMENT_MEMBER_KEY, write_topics),
        ShareGroupCurrentMemberAssignmentRecord: (
            CURRENT_MEMBER_ASSIGNMENT_KEY,
            _write_current_assignment,
        ),
        ShareGroupStatePartitionMetadataRecord: (
            STATE_PARTITION_METADATA_KEY,
            _write_state_partitions,
        ),
    }
)


def encode_share_group_record(record: ShareGroupRecord) -> tuple[bytes, bytes | None]:
    """Key and value; the value of a tombstone is None."""
    key_type, write = _WRITERS[type(record)]
    key = FieldWriter(key_type)
    key.string(record.group_id)
    member_id = getattr(record, "member_id", None)
    if member_id is not None:
        key.string(member_id)
    if record.value is None:
        return key.done(), None
    value = FieldWriter(_VERSION, flexible=True)
    value.tags(write(value, record.value))
    return key.done(), value.done()


# ---------------------------------------------------------------- reading


def _read_member_metadata(reader: FieldReader) -> ShareGroupMemberMetadataValue:
    return ShareGroupMemberMetadataValue(
        reader.nullable_string(), reader.string(), reader.string(), reader.array(reader.string)
    )


def _read_group_metadata(reader: FieldReader) -> ShareGroupMetadataValue:
    return ShareGroupMetadataValue(reader.int32(), reader.int64())


def _read_target_metadata(reader: FieldReader) -> ShareGroupTargetAssignmentMetadataValue:
    epoch = reader.int32()
    tagged = reader.tags().get(_ASSIGNMENT_TIMESTAMP_TAG)
    if tagged is None:
        return ShareGroupTargetAssignmentMetadataValue(epoch)
    if len(tagged) != _INT64_BYTES:
        raise DamagedRecordError(f"a time of {len(tagged)} bytes")
    return ShareGroupTargetAssignmentMetadataValue(epoch, FieldReader(tagged).int64())


def _read_current_assignment(reader: FieldReader) -> ShareGroupCurrentMemberAssignmentValue:
    return ShareGroupCurrentMemberAssignmentValue(
        reader.int32(), reader.int32(), reader.int8(), read_topics(reader)
    )


def _read_state_partitions(reader: FieldReader) -> ShareGroupStatePartitionMetadataValue:
    def read_partitions() -> NamedTopicPartitions:
        topic_id, name = TopicId(reader.uuid()), reader.string()
        topic = NamedTopicPartitions(topic_id, name, reader.array(reader.int32))
        reader.tags()
        return topic

    def read_topic() -> NamedTopic:
        topic = NamedTopic(TopicId(reader.uuid()), reader.string())
        reader.tags()
        return topic

    return ShareGroupStatePartitionMetadataValue(
        reader.array(read_partitions), reader.array(read_partitions), reader.array(read_topic)
    )


_READERS: Final[Mapping[int, tuple[Any, int, Callable[[FieldReader], Any]]]] = MappingProxyType(
    {
        MEMBER_METADATA_KEY: (ShareGroupMemberMetadataRecord, 2, _read_member_metadata),
        GROUP_METADATA_KEY: (ShareGroupMetadataRecord, 1, _read_group_metadata),
        TARGET_ASSIGNMENT_METADATA_KEY: (
            ShareGroupTargetAssignmentMetadataRecord,
            1,
            _read_target_metadata,
        ),
        TARGET_ASSIGNMENT_MEMBER_KEY: (ShareGroupTargetAssignmentMemberRecord, 2, read_topics),
        CURRENT_MEMBER_ASSIGNMENT_KEY: (
            ShareGroupCurrentMemberAssignmentRecord,
            2,
            _read_current_assignment,
        ),
        STATE_PARTITION_METADATA_KEY: (
            ShareGroupStatePartitionMetadataRecord,
            1,
            _read_state_partitions,
        ),
    }
)
"""By type of key: the record, number of names in the key, and the reader of the value."""


def decode_share_group_record(
    key_type: int, key: FieldReader, value: bytes | None
) -> ShareGroupRecord | None:
    """The record whose key is read up to its type; None for a type that is not of these."""
    if key_type not in _READERS:
        return None
    make, name_count, read = _READERS[key_type]
    names = [key.string() for _ in range(name_count)]
    if value is None:
        tombstone: ShareGroupRecord = make(*names, None)
        return tombstone
    reader = FieldReader(value)
    read_version(reader, newest=_VERSION, what=make.__name__)
    reader.become_flexible()
    record: ShareGroupRecord = make(*names, read(reader))
    return record
