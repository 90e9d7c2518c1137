"""Records of ``__share_group_state``: the durable state of share-partitions in Kafka's
ShareSnapshot and ShareUpdate (keys 0 and 1), the records of share groups, and ends of transactions.

A snapshot has the whole state of a share-partition, an update the changes since the snapshot whose
epoch it names. The tombstone of a snapshot deletes the state.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tidemark.codec.coordinator_fields import (
    DamagedRecordError,
    FieldReader,
    FieldWriter,
    NewerRecordError,
    read_version,
)
from tidemark.codec.share_group_records import (
    STATE_PARTITION_METADATA_KEY,
    ShareGroupRecord,
    decode_share_group_record,
    encode_share_group_record,
)
from tidemark.codec.share_transaction_records import (
    PENDING_TAG,
    TRANSACTION_END_KEY,
    TransactionEndRecord,
    decode_pending,
    decode_transaction_end,
    encode_pending,
    encode_transaction_end,
)
from tidemark.model.ids import NO_EPOCH, LeaderEpoch, Offset, TopicId
from tidemark.model.share_state import (
    PERSISTED_STATES,
    UNKNOWN_COUNT,
    DeliveryState,
    PendingBatch,
    SharePartitionKey,
    StateBatch,
    StateEpoch,
)

SNAPSHOT_KEY: Final = 0
UPDATE_KEY: Final = 1
_KEY_TYPE_KNOWN_MAX: Final = STATE_PARTITION_METADATA_KEY
_VERSION: Final = 0
_COMPLETE_COUNT_TAG: Final = 0
_LOG_EPOCH_TAG: Final = 1_001
_INT32_BYTES: Final = 4
_PERSISTED: Final = frozenset(map(int, PERSISTED_STATES))


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareSnapshotValue:
    """Whole state of a share-partition."""

    snapshot_epoch: int
    """Raised by every snapshot."""
    state_epoch: StateEpoch
    leader_epoch: LeaderEpoch
    start_offset: Offset
    delivery_complete_count: int = UNKNOWN_COUNT
    create_timestamp: int
    """Wall ms at which the state began."""
    write_timestamp: int
    """Wall ms of this snapshot."""
    batches: tuple[StateBatch, ...] = ()
    """Ascending, without overlap."""
    pending: tuple[PendingBatch, ...] = ()
    """Acknowledgements of open transactions, ascending, without overlap. Their offsets may be in
    batches too: with the state before.
    """
    log_epoch: LeaderEpoch = NO_EPOCH
    """Leader epoch in whose log the offsets are records; NO_EPOCH: unknown."""


@dataclass(frozen=True, slots=True)
class ShareSnapshotRecord:
    """Key 0."""

    key: SharePartitionKey
    value: ShareSnapshotValue | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareUpdateValue:
    """Changes since the snapshot."""

    snapshot_epoch: int
    leader_epoch: LeaderEpoch
    start_offset: Offset
    """``UNKNOWN_START``: as before."""
    delivery_complete_count: int = UNKNOWN_COUNT
    batches: tuple[StateBatch, ...] = ()
    pending: tuple[PendingBatch, ...] = ()
    log_epoch: LeaderEpoch = NO_EPOCH
    """As in a snapshot. NO_EPOCH: as before, or unknown if the leader is a later one."""


@dataclass(frozen=True, slots=True)
class ShareUpdateRecord:
    """Key 1."""

    key: SharePartitionKey
    value: ShareUpdateValue | None


ShareStateRecord = ShareSnapshotRecord | ShareUpdateRecord
ShareRecord = ShareStateRecord | ShareGroupRecord | TransactionEndRecord


def encode(record: ShareRecord) -> tuple[bytes, bytes | None]:
    """Key and value; the value of a tombstone is None."""
    match record:
        case ShareSnapshotRecord():
            return _key(SNAPSHOT_KEY, record.key), _snapshot(record.value)
        case ShareUpdateRecord():
            return _key(UPDATE_KEY, record.key), _update(record.value)
        case TransactionEndRecord():
            return encode_transaction_end(record)
        case _:
            return encode_share_group_record(record)


def decode(key: bytes, value: bytes | None) -> ShareRecord | None:
    """The record; None for a kind that Kafka has and this release does not use.

    Raises NewerRecordError for an unknown type or version and DamagedRecordError for bytes that are
    no record.
    """
    reader = FieldReader(key)
    key_type = reader.int16()
    if key_type == SNAPSHOT_KEY:
        return ShareSnapshotRecord(_read_key(reader), _read_snapshot(value))
    if key_type == UPDATE_KEY:
        return ShareUpdateRecord(_read_key(reader), _read_update(value))
    if key_type == TRANSACTION_END_KEY:
        return decode_transaction_end(reader, value)
    if not 0 <= key_type <= _KEY_TYPE_KNOWN_MAX:
        raise NewerRecordError(
            f"a record of type {key_type}; this release reads up to {_KEY_TYPE_KNOWN_MAX}"
        )
    return decode_share_group_record(key_type, reader, value)


# ---------------------------------------------------------------- writing


def _key(key_type: int, key: SharePartitionKey) -> bytes:
    writer = FieldWriter(key_type)
    writer.string(key.group_id)
    writer.uuid(key.topic_id)
    writer.int32(key.partition)
    return writer.done()


def _snapshot(value: ShareSnapshotValue | None) -> bytes | None:
    if value is None:
        return None
    writer = FieldWriter(_VERSION, flexible=True)
    writer.int32(value.snapshot_epoch)
    writer.int32(value.state_epoch)
    writer.int32(value.leader_epoch)
    writer.int64(value.start_offset)
    writer.int64(value.create_timestamp)
    writer.int64(value.write_timestamp)
    _write_batches(writer, value.batches)
    writer.tags(_tagged(value))
    return writer.done()


def _update(value: ShareUpdateValue | None) -> bytes | None:
    if value is None:
        return None
    writer = FieldWriter(_VERSION, flexible=True)
    writer.int32(value.snapshot_epoch)
    writer.int32(value.leader_epoch)
    writer.int64(value.start_offset)
    _write_batches(writer, value.batches)
    writer.tags(_tagged(value))
    return writer.done()


def _write_batches(writer: FieldWriter, batches: tuple[StateBatch, ...]) -> None:
    def write_one(batch: StateBatch) -> None:
        writer.int64(batch.first_offset)
        writer.int64(batch.last_offset)
        writer.int8(batch.delivery_state)
        writer.int16(batch.delivery_count)
        writer.tags()

    writer.array(batches, write_one)


def _tagged(value: ShareSnapshotValue | ShareUpdateValue) -> Mapping[int, bytes]:
    found: dict[int, bytes] = {}
    if value.delivery_complete_count != UNKNOWN_COUNT:
        count = FieldWriter(_VERSION)
        count.int32(value.delivery_complete_count)
        found[_COMPLETE_COUNT_TAG] = count.done_without_version()
    if value.pending:
        found[PENDING_TAG] = encode_pending(value.pending)
    if value.log_epoch != NO_EPOCH:
        epoch = FieldWriter(_VERSION)
        epoch.int32(value.log_epoch)
        found[_LOG_EPOCH_TAG] = epoch.done_without_version()
    return found


# ---------------------------------------------------------------- reading


def _read_key(reader: FieldReader) -> SharePartitionKey:
    return SharePartitionKey(reader.string(), TopicId(reader.uuid()), reader.int32())


def _read_snapshot(value: bytes | None) -> ShareSnapshotValue | None:
    if value is None:
        return None
    reader = FieldReader(value)
    read_version(reader, newest=_VERSION, what="ShareSnapshot")
    reader.become_flexible()
    snapshot_epoch, state_epoch = reader.int32(), StateEpoch(reader.int32())
    leader_epoch, start_offset = LeaderEpoch(reader.int32()), Offset(reader.int64())
    created_at, written_at = reader.int64(), reader.int64()
    batches, tagged = _read_batches(reader), reader.tags()
    return ShareSnapshotValue(
        snapshot_epoch=snapshot_epoch,
        state_epoch=state_epoch,
        leader_epoch=leader_epoch,
        start_offset=start_offset,
        create_timestamp=created_at,
        write_timestamp=written_at,
        batches=batches,
        delivery_complete_count=_read_complete_count(tagged),
        pending=decode_pending(tagged.get(PENDING_TAG)),
        log_epoch=_read_log_epoch(tagged),
    )


def _read_update(value: bytes | None) -> ShareUpdateValue | None:
    if value is None:
        return None
    reader = FieldReader(value)
    read_version(reader, newest=_VERSION, what="ShareUpdate")
    reader.become_flexible()
    snapshot_epoch, leader_epoch = reader.int32(), LeaderEpoch(reader.int32())
    start_offset, batches = Offset(reader.int64()), _read_batches(reader)
    tagged = reader.tags()
    return ShareUpdateValue(
        snapshot_epoch=snapshot_epoch,
        leader_epoch=leader_epoch,
        start_offset=start_offset,
        batches=batches,
        delivery_complete_count=_read_complete_count(tagged),
        pending=decode_pending(tagged.get(PENDING_TAG)),
        log_epoch=_read_log_epoch(tagged),
    )


def _read_batches(reader: FieldReader) -> tuple[StateBatch, ...]:
    def read_one() -> StateBatch:
        first, last, state = Offset(reader.int64()), Offset(reader.int64()), reader.int8()
        if state not in _PERSISTED:
            raise DamagedRecordError(f"offsets {first} to {last} in delivery state {state}")
        batch = StateBatch(first, last, DeliveryState(state), reader.int16())
        reader.tags()
        return batch

    return reader.array(read_one)


def _read_complete_count(tagged: Mapping[int, bytes]) -> int:
    return _read_tagged(tagged, _COMPLETE_COUNT_TAG, UNKNOWN_COUNT)


def _read_log_epoch(tagged: Mapping[int, bytes]) -> LeaderEpoch:
    return LeaderEpoch(_read_tagged(tagged, _LOG_EPOCH_TAG, NO_EPOCH))


def _read_tagged(tagged: Mapping[int, bytes], tag: int, otherwise: int) -> int:
    content = tagged.get(tag)
    if content is None:
        return otherwise
    if len(content) != _INT32_BYTES:
        raise DamagedRecordError(f"tag {tag} of {len(content)} bytes; it has {_INT32_BYTES}")
    return FieldReader(content).int32()
