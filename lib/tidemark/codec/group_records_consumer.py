"""Records of groups of the consumer protocol (KIP-848) in ``__consumer_offsets``: Kafka's
ConsumerGroup* keys 3 to 8 and 16, all values of version 0 and flexible.

A record whose value is None is a tombstone: it deletes the object that its key names.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from tidemark.codec.coordinator_fields import FieldReader, FieldWriter, read_version
from tidemark.model.assignment import TopicIdPartitions
from tidemark.model.ids import TopicId

GROUP_METADATA_KEY: Final = 3
PARTITION_METADATA_KEY: Final = 4
MEMBER_METADATA_KEY: Final = 5
TARGET_ASSIGNMENT_METADATA_KEY: Final = 6
TARGET_ASSIGNMENT_MEMBER_KEY: Final = 7
CURRENT_MEMBER_ASSIGNMENT_KEY: Final = 8
REGULAR_EXPRESSION_KEY: Final = 16

_VERSION: Final = 0
_METADATA_HASH_TAG: Final = 0
_CLASSIC_MEMBER_TAG: Final = 0


@dataclass(frozen=True, slots=True)
class ConsumerGroupMetadataValue:
    """Epoch of the group, raised whenever its members or their topics change."""

    epoch: int
    metadata_hash: int = 0
    """Hash of the subscribed topics (KIP-1101); a change requires a rebalance."""


@dataclass(frozen=True, slots=True)
class ConsumerGroupMetadataRecord:
    """Record with key 3."""

    group_id: str
    value: ConsumerGroupMetadataValue | None


class TopicMetadata(NamedTuple):
    """Subscribed topic as of the group's last check of the metadata."""

    topic_id: TopicId
    topic_name: str
    partition_count: int


@dataclass(frozen=True, slots=True)
class ConsumerGroupPartitionMetadataRecord:
    """Record with key 4, written by Kafka before 4.1; racks of partitions are skipped."""

    group_id: str
    value: tuple[TopicMetadata, ...] | None


class ClassicProtocol(NamedTuple):
    """Assignment protocol that a member supports, as in JoinGroup."""

    name: str
    metadata: bytes


class ClassicMemberMetadata(NamedTuple):
    """Metadata of a member of a consumer group that uses the classic protocol."""

    session_timeout_ms: int
    supported_protocols: tuple[ClassicProtocol, ...]


@dataclass(frozen=True, slots=True)
class ConsumerGroupMemberMetadataValue:
    """Metadata that a member has sent."""

    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    subscribed_topic_names: tuple[str, ...]
    subscribed_topic_regex: str | None
    rebalance_timeout_ms: int = -1
    server_assignor: str | None = None
    classic_member_metadata: ClassicMemberMetadata | None = None


@dataclass(frozen=True, slots=True)
class ConsumerGroupMemberMetadataRecord:
    """Record with key 5."""

    group_id: str
    member_id: str
    value: ConsumerGroupMemberMetadataValue | None


@dataclass(frozen=True, slots=True)
class ConsumerGroupTargetAssignmentMetadataRecord:
    """Record with key 6; its value is the epoch of the target assignment."""

    group_id: str
    value: int | None


@dataclass(frozen=True, slots=True)
class ConsumerGroupTargetAssignmentMemberRecord:
    """Record with key 7: target assignment of a member."""

    group_id: str
    member_id: str
    value: tuple[TopicIdPartitions, ...] | None


@dataclass(frozen=True, slots=True)
class ConsumerGroupCurrentMemberAssignmentValue:
    """Current assignment of a member, and partitions that it must revoke before it gets others."""

    member_epoch: int
    previous_member_epoch: int
    state: int
    """Kafka's MemberState: 0 stable, 1 unrevoked partitions, 2 unreleased partitions, 127 unknown.
    """
    assigned_partitions: tuple[TopicIdPartitions, ...]
    partitions_pending_revocation: tuple[TopicIdPartitions, ...] = ()


@dataclass(frozen=True, slots=True)
class ConsumerGroupCurrentMemberAssignmentRecord:
    """Record with key 8."""

    group_id: str
    member_id: str
    value: ConsumerGroupCurrentMemberAssignmentValue | None


class RegularExpressionValue(NamedTuple):
    """Topics that a regular expression matched at a version of the metadata, and the time."""

    topics: tuple[str, ...]
    version: int
    timestamp: int


@dataclass(frozen=True, slots=True)
class ConsumerGroupRegularExpressionRecord:
    """Record with key 16."""

    group_id: str
    regular_expression: str
    value: RegularExpressionValue | None


ConsumerRecord = (
    ConsumerGroupMetadataRecord
    | ConsumerGroupPartitionMetadataRecord
    | ConsumerGroupMemberMetadataRecord
    | ConsumerGroupTargetAssignmentMetadataRecord
    | ConsumerGroupTargetAssignmentMemberRecord
    | ConsumerGroupCurrentMemberAssignmentRecord
    | ConsumerGroupRegularExpressionRecord
)


# -- writing


def _key(key_type: int, *names: str) -> bytes:
    writer = FieldWriter(key_type)
    for name in names:
        writer.string(name)
    return writer.done()


def _value(write: Callable[[FieldWriter], Mapping[int, bytes] | None]) -> bytes:
    writer = FieldWriter(_VERSION, flexible=True)
    writer.tags(write(writer))
    return writer.done()


def write_topics(writer: FieldWriter, topics: tuple[TopicIdPartitions, ...]) -> None:
    """Write partitions by topic id."""

    def write_one(topic: TopicIdPartitions) -> None:
        writer.uuid(topic.topic_id)
        writer.array(topic.partitions, writer.int32)
        writer.tags()

    writer.array(topics, write_one)


def _write_group_metadata(
    writer: FieldWriter, value: ConsumerGroupMetadataValue
) -> Mapping[int, bytes] | None:
    writer.int32(value.epoch)
    if not value.metadata_hash:
        return None
    tagged = FieldWriter(_VERSION)
    tagged.int64(value.metadata_hash)
    return {_METADATA_HASH_TAG: tagged.done_without_version()}


def _write_partition_metadata(writer: FieldWriter, value: tuple[TopicMetadata, ...]) -> None:
    def write_one(topic: TopicMetadata) -> None:
        writer.uuid(topic.topic_id)
        writer.string(topic.topic_name)
        writer.int32(topic.partition_count)
        writer.array((), writer.string)
        writer.tags()

    writer.array(value, write_one)


def _write_member_metadata(
    writer: FieldWriter, value: ConsumerGroupMemberMetadataValue
) -> Mapping[int, bytes] | None:
    writer.string(value.instance_id)
    writer.string(value.rack_id)
    writer.string(value.client_id)
    writer.string(value.client_host)
    writer.array(value.subscribed_topic_names, writer.string)
    writer.string(value.subscribed_topic_regex)
    writer.int32(value.rebalance_timeout_ms)
    writer.string(value.server_assignor)
    if value.classic_member_metadata is None:
        return None
    return {_CLASSIC_MEMBER_TAG: _classic_member(value.classic_member_metadata)}


def _classic_member(member: ClassicMemberMetadata) -> bytes:
    writer = FieldWriter(_VERSION, flexible=True)

    def write_protocol(protocol: ClassicProtocol) -> None:
        writer.string(protocol.name)
        writer.octets(protocol.metadata)
        writer.tags()

    writer.int8(1)  # a nullable structure is preceded by a byte for its presence (KIP-893)
    writer.int32(member.session_timeout_ms)
    writer.array(member.supported_protocols, write_protocol)
    writer.tags()
    return writer.done_without_version()


def _write_current_assignment(
    writer: FieldWriter, value: ConsumerGroupCurrentMemberAssignmentValue
) -> None:
    writer.int32(value.member_epoch)
    writer.int32(value.previous_member_epoch)
    writer.int8(value.state)
    write_topics(writer, value.assigned_partitions)
    write_topics(writer, value.partitions_pending_revocation)


def _write_regular_expression(writer: FieldWriter, value: RegularExpressionValue) -> None:
    writer.array(value.topics, writer.string)
    writer.int64(value.version)
    writer.int64(value.timestamp)


_WRITERS: Final[Mapping[type, tuple[int, Callable[[FieldWriter, Any], Any]]]] = MappingProxyType(
    {
        ConsumerGroupMetadataRecord: (GROUP_METADATA_KEY, _write_group_metadata),
        ConsumerGroupPartitionMetadataRecord: (PARTITION_METADATA_KEY, _write_partition_metadata),
        ConsumerGroupMemberMetadataRecord: (MEMBER_METADATA_KEY, _write_member_metadata),
        ConsumerGroupTargetAssignmentMetadataRecord: (
            TARGET_ASSIGNMENT_METADATA_KEY,
            FieldWriter.int32,
        ),
        ConsumerGroupTargetAssignmentMemberRecord: (TARGET_ASSIGNMENT_MEMBER_KEY, write_topics),
        ConsumerGroupCurrentMemberAssignmentRecord: (
            CURRENT_MEMBER_ASSIGNMENT_KEY,
            _write_current_assignment,
        ),
        ConsumerGroupRegularExpressionRecord: (REGULAR_EXPRESSION_KEY, _write_regular_expression),
    }
)


def encode_consumer_record(record: ConsumerRecord) -> tuple[bytes, bytes | None]:
    """Return key and value; the value of a tombstone is None."""
    key_type, write = _WRITERS[type(record)]
    key = _key(key_type, *_names_of(record))
    if record.value is None:
        return key, None
    value = record.value
    return key, _value(lambda writer: write(writer, value))


def _names_of(record: ConsumerRecord) -> tuple[str, ...]:
    match record:
        case ConsumerGroupRegularExpressionRecord():
            return record.group_id, record.regular_expression
        case (
            ConsumerGroupMemberMetadataRecord()
            | ConsumerGroupTargetAssignmentMemberRecord()
            | ConsumerGroupCurrentMemberAssignmentRecord()
        ):
            return record.group_id, record.member_id
        case _:
            return (record.group_id,)


# -- reading


def read_topics(reader: FieldReader) -> tuple[TopicIdPartitions, ...]:
    """Read partitions by topic id."""

    def read_one() -> TopicIdPartitions:
        topic = TopicIdPartitions(TopicId(reader.uuid()), reader.array(reader.int32))
        reader.tags()
        return topic

    return reader.array(read_one)


def _read_group_metadata(reader: FieldReader) -> ConsumerGroupMetadataValue:
    epoch = reader.int32()
    hash_bytes = reader.tags().get(_METADATA_HASH_TAG)
    metadata_hash = FieldReader(hash_bytes).int64() if hash_bytes is not None else 0
    return ConsumerGroupMetadataValue(epoch, metadata_hash)


def _read_partition_metadata(reader: FieldReader) -> tuple[TopicMetadata, ...]:
    def read_partition() -> None:
        reader.int32()
        reader.array(reader.string)
        reader.tags()

    def read_one() -> TopicMetadata:
        topic = TopicMetadata(TopicId(reader.uuid()), reader.string(), reader.int32())
        reader.array(read_partition)
        reader.tags()
        return topic

    return reader.array(read_one)


def _read_member_metadata(reader: FieldReader) -> ConsumerGroupMemberMetadataValue:
    value = {
        "instance_id": reader.nullable_string(),
        "rack_id": reader.nullable_string(),
        "client_id": reader.string(),
        "client_host": reader.string(),
        "subscribed_topic_names": reader.array(reader.string),
        "subscribed_topic_regex": reader.nullable_string(),
        "rebalance_timeout_ms": reader.int32(),
        "server_assignor": reader.nullable_string(),
    }
    classic = reader.tags().get(_CLASSIC_MEMBER_TAG)
    return ConsumerGroupMemberMetadataValue(
        **value,  # type: ignore[arg-type]
        classic_member_metadata=_read_classic_member(classic) if classic is not None else None,
    )


def _read_classic_member(data: bytes) -> ClassicMemberMetadata | None:
    reader = FieldReader(data, flexible=True)

    def read_protocol() -> ClassicProtocol:
        protocol = ClassicProtocol(reader.string(), reader.octets())
        reader.tags()
        return protocol

    if reader.int8() < 0:
        return None
    return ClassicMemberMetadata(reader.int32(), reader.array(read_protocol))


def _read_current_assignment(reader: FieldReader) -> ConsumerGroupCurrentMemberAssignmentValue:
    return ConsumerGroupCurrentMemberAssignmentValue(
        reader.int32(), reader.int32(), reader.int8(), read_topics(reader), read_topics(reader)
    )


def _read_regular_expression(reader: FieldReader) -> RegularExpressionValue:
    return RegularExpressionValue(reader.array(reader.string), reader.int64(), reader.int64())


_READERS: Final[Mapping[int, tuple[Any, int, Callable[[FieldReader], Any]]]] = MappingProxyType(
    {
        GROUP_METADATA_KEY: (ConsumerGroupMetadataRecord, 1, _read_group_metadata),
        PARTITION_METADATA_KEY: (ConsumerGroupPartitionMetadataRecord, 1, _read_partition_metadata),
        MEMBER_METADATA_KEY: (ConsumerGroupMemberMetadataRecord, 2, _read_member_metadata),
        TARGET_ASSIGNMENT_METADATA_KEY: (
            ConsumerGroupTargetAssignmentMetadataRecord,
            1,
            FieldReader.int32,
        ),
        TARGET_ASSIGNMENT_MEMBER_KEY: (ConsumerGroupTargetAssignmentMemberRecord, 2, read_topics),
        CURRENT_MEMBER_ASSIGNMENT_KEY: (
            ConsumerGroupCurrentMemberAssignmentRecord,
            2,
            _read_current_assignment,
        ),
        REGULAR_EXPRESSION_KEY: (ConsumerGroupRegularExpressionRecord, 2, _read_regular_expression),
    }
)
"""By type of key: class of the record, number of names in the key, reader of the value."""


def decode_consumer_record(
    key_type: int, key: FieldReader, value: bytes | None
) -> ConsumerRecord | None:
    """Return the record whose key is read up to its type; None for any other type."""
    if key_type not in _READERS:
        return None
    make, name_count, read = _READERS[key_type]
    names = [key.string() for _ in range(name_count)]
    if value is None:
        tombstone: ConsumerRecord = make(*names, None)
        return tombstone
    reader = FieldReader(value)
    read_version(reader, newest=_VERSION, what=make.__name__)
    reader.become_flexible()
    record: ConsumerRecord = make(*names, read(reader))
    return record
