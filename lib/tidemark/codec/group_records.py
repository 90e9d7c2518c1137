"""Records of ``__consumer_offsets``, byte for byte as Kafka writes them: committed offsets, groups
of the classic protocol, (group_records_consumer) groups of KIP-848, and the ids of share groups.

key    OffsetCommit    version int16 (0, 1) · group · topic · partition int32
       GroupMetadata   version int16 (2) · group
       ShareGroupMetadata  version int16 (11) · group: the id is reserved for a share group
value  OffsetCommit    versions 0 to 4: 1 has an expiry time, 3 the leader epoch, 4 the topic id
       GroupMetadata   versions 0 to 4: 1 has rebalance timeouts, 2 the time of the last change of
                       state, 3 instance ids; 4 is flexible

The version of a key is its type. A record whose value is None is a tombstone.
"""

from dataclasses import dataclass
from typing import Final, NamedTuple

from tidemark.codec.coordinator_fields import (
    DamagedRecordError,
    FieldReader,
    FieldWriter,
    NewerRecordError,
    read_version,
)
from tidemark.codec.group_records_consumer import (
    ConsumerRecord,
    decode_consumer_record,
    encode_consumer_record,
)
from tidemark.codec.share_group_records import (
    GROUP_METADATA_KEY as _SHARE_GROUP_KEY,
)
from tidemark.codec.share_group_records import (
    ShareGroupMetadataRecord,
    ShareGroupMetadataValue,
    decode_share_group_record,
    encode_share_group_record,
)
from tidemark.model.ids import NO_TOPIC_ID, TopicId

__all__ = [
    "CoordinatorRecord",
    "DamagedRecordError",
    "GroupMetadataRecord",
    "GroupMetadataValue",
    "GroupRecord",
    "MemberMetadata",
    "NewerRecordError",
    "OffsetCommitRecord",
    "OffsetCommitValue",
    "ShareGroupMetadataRecord",
    "ShareGroupMetadataValue",
    "decode",
    "encode",
]

_OFFSET_COMMIT_KEYS: Final = (0, 1)
_OFFSET_COMMIT_KEY: Final = 1
_GROUP_METADATA_KEY: Final = 2
_KEY_TYPE_KNOWN_MAX: Final = 24
"""Highest known type. Of Kafka's types for share and streams groups only one is kept here."""

_VALUE_VERSION_MAX: Final = 4
_FLEXIBLE_FROM: Final = 4
_WITH_EXPIRY: Final = 1
_WITH_EPOCH: Final = 3
_WITH_TOPIC_ID: Final = 4
_TOPIC_ID_TAG: Final = 0
_GROUP_METADATA_VERSION: Final = 3
"""Version that is written: the newest inflexible one, as in Kafka."""


class OffsetCommitValue(NamedTuple):
    """A committed offset. ``expire_timestamp`` is -1 unless the client set a retention time."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp: int
    expire_timestamp: int = -1
    topic_id: TopicId = NO_TOPIC_ID


@dataclass(frozen=True, slots=True)
class OffsetCommitRecord:
    """Committed offset of one group in one partition."""

    group_id: str
    topic: str
    partition: int
    value: OffsetCommitValue | None


class MemberMetadata(NamedTuple):
    """Member of a generation; subscription and assignment are opaque bytes of the clients."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True)
class GroupMetadataValue:
    """Generation of a group. Without members ``protocol`` and ``leader`` are None."""

    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    current_state_timestamp: int
    members: tuple[MemberMetadata, ...] = ()


@dataclass(frozen=True, slots=True)
class GroupMetadataRecord:
    """One group of the classic protocol."""

    group_id: str
    value: GroupMetadataValue | None


GroupRecord = OffsetCommitRecord | GroupMetadataRecord | ConsumerRecord
CoordinatorRecord = GroupRecord | ShareGroupMetadataRecord
"""Records of the group coordinator. Share groups have only their ids here; their state is in
``__share_group_state``.
"""


def encode(record: CoordinatorRecord) -> tuple[bytes, bytes | None]:
    """Return key and value; the value of a tombstone is None."""
    match record:
        case ShareGroupMetadataRecord():
            return encode_share_group_record(record)
        case OffsetCommitRecord():
            return _offset_commit_key(record), _offset_commit_value(record.value)
        case GroupMetadataRecord():
            writer = FieldWriter(_GROUP_METADATA_KEY)
            writer.string(record.group_id)
            return writer.done(), _group_metadata_value(record.value)
        case _:
            return encode_consumer_record(record)


def decode(key: bytes, value: bytes | None) -> CoordinatorRecord | None:
    """Return the record; None for one of Kafka's kinds that Tidemark does not use.

    Raises NewerRecordError for an unknown type or version, and DamagedRecordError for bytes that
    are not a record.
    """
    reader = FieldReader(key)
    key_type = reader.int16()
    if key_type in _OFFSET_COMMIT_KEYS:
        group_id, topic, partition = reader.string(), reader.string(), reader.int32()
        return OffsetCommitRecord(group_id, topic, partition, _read_offset_commit(value))
    if key_type == _GROUP_METADATA_KEY:
        return GroupMetadataRecord(reader.string(), _read_group_metadata(value))
    if not 0 <= key_type <= _KEY_TYPE_KNOWN_MAX:
        raise NewerRecordError(
            f"a record of type {key_type}; this release knows up to {_KEY_TYPE_KNOWN_MAX}"
        )
    if key_type == _SHARE_GROUP_KEY:
        shared = decode_share_group_record(key_type, reader, value)
        assert isinstance(shared, ShareGroupMetadataRecord), "the key has one record"
        return shared
    return decode_consumer_record(key_type, reader, value)


def _offset_commit_key(record: OffsetCommitRecord) -> bytes:
    writer = FieldWriter(_OFFSET_COMMIT_KEY)
    writer.string(record.group_id)
    writer.string(record.topic)
    writer.int32(record.partition)
    return writer.done()


def _offset_commit_version(value: OffsetCommitValue) -> int:
    """Return the version to write. Only version 1 has an expiry time, but no leader epoch or id."""
    if value.expire_timestamp >= 0:
        return _WITH_EXPIRY
    return _WITH_EPOCH if value.topic_id == NO_TOPIC_ID else _WITH_TOPIC_ID


def _offset_commit_value(value: OffsetCommitValue | None) -> bytes | None:
    if value is None:
        return None
    version = _offset_commit_version(value)
    writer = FieldWriter(version, flexible=version >= _FLEXIBLE_FROM)
    writer.int64(value.offset)
    if version >= _WITH_EPOCH:
        writer.int32(value.leader_epoch)
    writer.string(value.metadata)
    writer.int64(value.commit_timestamp)
    if version == _WITH_EXPIRY:
        writer.int64(value.expire_timestamp)
    if version >= _WITH_TOPIC_ID:
        writer.tags({_TOPIC_ID_TAG: value.topic_id})
    return writer.done()


def _read_offset_commit(value: bytes | None) -> OffsetCommitValue | None:
    if value is None:
        return None
    reader = FieldReader(value)
    version = read_version(reader, newest=_VALUE_VERSION_MAX, what="OffsetCommit")
    if version >= _FLEXIBLE_FROM:
        reader.become_flexible()
    offset = reader.int64()
    leader_epoch = reader.int32() if version >= _WITH_EPOCH else -1
    metadata, commit_timestamp = reader.string(), reader.int64()
    expire_timestamp = reader.int64() if version == _WITH_EXPIRY else -1
    topic_id = TopicId(reader.tags().get(_TOPIC_ID_TAG, NO_TOPIC_ID))
    if len(topic_id) != len(NO_TOPIC_ID):
        raise DamagedRecordError(f"a topic id of {len(topic_id)} bytes")
    return OffsetCommitValue(
        offset, leader_epoch, metadata, commit_timestamp, expire_timestamp, topic_id
    )


def _group_metadata_value(value: GroupMetadataValue | None) -> bytes | None:
    if value is None:
        return None
    writer = FieldWriter(_GROUP_METADATA_VERSION)
    writer.string(value.protocol_type)
    writer.int32(value.generation)
    writer.string(value.protocol)
    writer.string(value.leader)
    writer.int64(value.current_state_timestamp)

    def write_member(member: MemberMetadata) -> None:
        writer.string(member.member_id)
        writer.string(member.group_instance_id)
        writer.string(member.client_id)
        writer.string(member.client_host)
        writer.int32(member.rebalance_timeout_ms)
        writer.int32(member.session_timeout_ms)
        writer.octets(member.subscription)
        writer.octets(member.assignment)

    writer.array(value.members, write_member)
    return writer.done()


def _read_group_metadata(value: bytes | None) -> GroupMetadataValue | None:
    if value is None:
        return None
    reader = FieldReader(value)
    version = read_version(reader, newest=_VALUE_VERSION_MAX, what="GroupMetadata")
    if version >= _FLEXIBLE_FROM:
        reader.become_flexible()
    return GroupMetadataValue(
        reader.string(),
        reader.int32(),
        reader.nullable_string(),
        reader.nullable_string(),
        reader.int64() if version >= 2 else -1,
        reader.array(lambda: _read_member(reader, version)),
    )


def _read_member(reader: FieldReader, version: int) -> MemberMetadata:
    member_id = reader.string()
    group_instance_id = reader.nullable_string() if version >= 3 else None
    client_id, client_host = reader.string(), reader.string()
    rebalance_timeout_ms = reader.int32() if version >= 1 else -1
    session_timeout_ms = reader.int32()
    subscription, assignment = reader.octets(), reader.octets()
    reader.tags()
    if rebalance_timeout_ms < 0:
        rebalance_timeout_ms = session_timeout_ms  # version 0 has only one of them
    return MemberMetadata(
        member_id,
        group_instance_id,
        client_id,
        client_host,
        rebalance_timeout_ms,
        session_timeout_ms,
        subscription,
        assignment,
    )
