"""Records of ``__transaction_state``: Kafka's, byte for byte, and Tidemark's own for multi-writer
transactions.

key    Transaction   version int16 (0) · transactional id
       Handle        version int16 (0x5400) · transactional id
       Writer        version int16 (0x5401) · transactional id · slot int32
value  Transaction   Kafka's TransactionLogValue, versions 0 and 1 (flexible); 1 is written
       Handle        version int16 (0; 1 for a sink), flexible: the open transaction and the
                     outcomes of the last ones; from 1: the state of the sink. Tag 0: id of the
                     request that began it
       Writer        version int16 (0), flexible: the writer of the slot and its partitions

The version of a key is its type. Tidemark's types start at 0x5400, far from Kafka's. So does the
one tagged field that Tidemark adds to Kafka's value, and which Kafka skips: the session's previous
epoch. Kafka keeps that epoch in memory only, so it refuses a repeated InitProducerId or EndTxn once
the coordinator has moved.
"""

import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple, TypeVar

from tidemark.codec.coordinator_fields import (
    DamagedRecordError,
    FieldReader,
    FieldWriter,
    NewerRecordError,
    read_version,
)
from tidemark.codec.sink_state import SinkState, read_sink, write_sink
from tidemark.model.topics import TopicPartition

__all__ = [
    "DamagedRecordError",
    "EndKind",
    "HandleRecord",
    "HandleTombstone",
    "NewerRecordError",
    "Outcome",
    "TransactionRecord",
    "TransactionState",
    "TransactionTombstone",
    "TxnRecord",
    "WriterRecord",
    "WriterTombstone",
    "decode",
    "encode",
    "encoded_bytes",
]

T = TypeVar("T")

_TRANSACTION_KEY: Final = 0
_HANDLE_KEY: Final = 0x5400
_WRITER_KEY: Final = 0x5401

_VALUE_VERSION: Final = 1
_FLEXIBLE_FROM: Final = 1
_OUR_VALUE_VERSION: Final = 0
_SINK_VALUE_VERSION: Final = 1
"""Version of a sink's handle. A release without sinks must not take it over: it would lose the last
committed batch.
"""

_PREVIOUS_PRODUCER_ID_TAG: Final = 0
_NEXT_PRODUCER_ID_TAG: Final = 1
_CLIENT_VERSION_TAG: Final = 2
_LAST_EPOCH_TAG: Final = 0x5400
_ATTEMPT_TAG: Final = 0
"""Tag of a handle, which earlier releases skip."""

_INT16: Final = struct.Struct(">h")
_INT64: Final = struct.Struct(">q")
_NULL_COUNT: Final = b"\xff\xff\xff\xff"


class TransactionState(IntEnum):
    """States of a transactional id, with the numbers of Kafka's records."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def title(self) -> str:
        """Kafka's name in DescribeTransactions and ListTransactions: ``PrepareCommit``."""
        return self.name.title().replace("_", "")


class EndKind(IntEnum):
    """Kind of end of a multi-writer transaction."""

    COMMITTED = 0
    ABORTED = 1
    """Aborted by a request."""
    TIMED_OUT = 2
    SUPERSEDED = 3
    """Aborted for a newer session or transaction of its transactional id."""


@dataclass(frozen=True, slots=True)
class TransactionRecord:
    """A producer of Kafka's API and its transaction: Kafka's TransactionLogValue."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: TransactionState
    updated_at: int
    """Wall time in ms. It increases with each record of an id, so that it identifies the record."""
    started_at: int = -1
    """Wall time in ms of the first partition; -1 if there was none in this session."""
    partitions: frozenset[TopicPartition] = frozenset()
    previous_producer_id: int = -1
    """Producer id of the previous record."""
    next_producer_id: int = -1
    """Producer id after this transaction, if the epochs of ``producer_id`` are exhausted."""
    client_version: int = 0
    """2 if the transaction ends by the rules of transactions v2 (KIP-890)."""
    last_producer_epoch: int = -1
    """Previous epoch of the session. A repeated request with this epoch is of the same session."""


@dataclass(frozen=True, slots=True)
class TransactionTombstone:
    """Removal of a producer's record: the id has expired."""

    transactional_id: str


class Outcome(NamedTuple):
    """Outcome of the transaction ``number`` of an id."""

    number: int
    kind: EndKind
    winners_crc: int
    """CRC (uint32) of the writers in a commit; 0 for aborts."""


@dataclass(frozen=True, slots=True)
class HandleRecord:
    """The open multi-writer transaction of an id, or its last one."""

    transactional_id: str
    number: int
    """Number of the transaction within the id, from 1."""
    created_at: int
    """Wall time in ms of the first transaction. An id that expired counts from 1 again."""
    timeout_ms: int
    state: TransactionState
    updated_at: int
    """Wall time in ms; it increases with each record of an id."""
    started_at: int
    winners: tuple[int, ...] = ()
    """Slots whose partitions are committed, ascending, once decided; all others abort."""
    outcomes: tuple[Outcome, ...] = ()
    """Outcomes of the last decided transactions, oldest first."""
    sink: SinkState | None = None
    """State of the sink, if the id's transactions are batches of a query."""
    attempt_id: bytes = b""
    """Id of the request that began the transaction, from its caller; empty: it had none."""


@dataclass(frozen=True, slots=True)
class HandleTombstone:
    """Removal of a handle's record: the id has expired."""

    transactional_id: str


@dataclass(frozen=True, slots=True)
class WriterRecord:
    """Assignment of one slot to a writer in transaction ``number``."""

    transactional_id: str
    slot: int
    number: int
    writer: str
    """Name with which the writer was enlisted."""
    producer_id: int
    producer_epoch: int
    superseded: bool = False
    """True if the name was enlisted again and has another slot."""
    partitions: frozenset[TopicPartition] = frozenset()


@dataclass(frozen=True, slots=True)
class WriterTombstone:
    """Removal of a slot, together with its transactional id."""

    transactional_id: str
    slot: int


TxnRecord = (
    TransactionRecord
    | TransactionTombstone
    | HandleRecord
    | HandleTombstone
    | WriterRecord
    | WriterTombstone
)


def encode(record: TxnRecord) -> tuple[bytes, bytes | None]:
    """Return key and value; the value of a tombstone is None."""
    match record:
        case TransactionRecord():
            return _key(_TRANSACTION_KEY, record.transactional_id), _transaction_value(record)
        case TransactionTombstone():
            return _key(_TRANSACTION_KEY, record.transactional_id), None
        case HandleRecord():
            return _key(_HANDLE_KEY, record.transactional_id), _handle_value(record)
        case HandleTombstone():
            return _key(_HANDLE_KEY, record.transactional_id), None
        case WriterRecord():
            return _writer_key(record), _writer_value(record)
        case WriterTombstone():
            return _writer_key(record), None


def decode(key: bytes, value: bytes | None) -> TxnRecord | None:
    """Return the record. None is for kinds of records to ignore, of which there are none yet.

    Raises NewerRecordError for an unknown type or version, and DamagedRecordError for bytes that
    are not a record.
    """
    reader = FieldReader(key)
    key_type = reader.int16()
    if key_type not in (_TRANSACTION_KEY, _HANDLE_KEY, _WRITER_KEY):
        raise NewerRecordError(f"a record of type {key_type}, which this release does not know")
    transactional_id = reader.string()
    if key_type == _TRANSACTION_KEY:
        if value is None:
            return TransactionTombstone(transactional_id)
        return _read_transaction(transactional_id, value)
    if key_type == _HANDLE_KEY:
        return _read_handle(transactional_id, value)
    return _read_writer(transactional_id, reader.int32(), value)


def encoded_bytes(record: TxnRecord) -> int:
    """Return the size of key and value together, as counted for a batch."""
    key, value = encode(record)
    return len(key) + len(value or b"")


class _Writer(FieldWriter):
    """Writer with the field types of transactions that groups lack."""

    def int16(self, value: int) -> None:
        """Write two bytes, big-endian."""
        high, low = _INT16.pack(value)
        self.int8(high - 256 if high > 127 else high)
        self.int8(low - 256 if low > 127 else low)

    def null_array(self) -> None:
        """Write a null array in the flexible encoding."""
        self.int8(0)


class _Reader(FieldReader):
    """Reader with the field types of transactions that groups lack."""

    def null_array(self) -> bool:
        """Read a null array if it comes next; return True if it did."""
        null = b"\x00" if self._flexible else _NULL_COUNT
        found = self._data[self._position : self._position + len(null)] == null
        if found:
            self._position += len(null)
        return found


def _key(key_type: int, transactional_id: str) -> bytes:
    writer = FieldWriter(key_type)
    writer.string(transactional_id)
    return writer.done()


def _writer_key(record: WriterRecord | WriterTombstone) -> bytes:
    writer = FieldWriter(_WRITER_KEY)
    writer.string(record.transactional_id)
    writer.int32(record.slot)
    return writer.done()


def _write_partitions(writer: _Writer, partitions: Iterable[TopicPartition]) -> None:
    """Write Kafka's PartitionsSchema: by topic, sorted so that equal records have equal bytes."""
    by_topic: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        by_topic.setdefault(topic, []).append(partition)

    def write_topic(topic: str) -> None:
        writer.string(topic)
        writer.array(by_topic[topic], writer.int32)
        writer.tags()

    writer.array(list(by_topic), write_topic)


def _read_partitions(reader: _Reader) -> frozenset[TopicPartition]:
    def read_topic() -> tuple[str, tuple[int, ...]]:
        topic, partitions = reader.string(), reader.array(reader.int32)
        reader.tags()
        return topic, partitions

    if reader.null_array():
        return frozenset()
    return frozenset(
        TopicPartition(topic, partition)
        for topic, partitions in reader.array(read_topic)
        for partition in partitions
    )


def _transaction_value(record: TransactionRecord) -> bytes:
    writer = _Writer(_VALUE_VERSION, flexible=True)
    writer.int64(record.producer_id)
    writer.int16(record.producer_epoch)
    writer.int32(record.timeout_ms)
    writer.int8(record.state)
    if record.state is TransactionState.EMPTY:
        writer.null_array()
    else:
        _write_partitions(writer, record.partitions)
    writer.int64(record.updated_at)
    writer.int64(record.started_at)
    writer.tags(_transaction_tags(record))
    return writer.done()


def _transaction_tags(record: TransactionRecord) -> dict[int, bytes]:
    """Return the tagged fields that differ from their defaults."""
    tags: dict[int, bytes] = {}
    if record.previous_producer_id != -1:
        tags[_PREVIOUS_PRODUCER_ID_TAG] = _INT64.pack(record.previous_producer_id)
    if record.next_producer_id != -1:
        tags[_NEXT_PRODUCER_ID_TAG] = _INT64.pack(record.next_producer_id)
    if record.client_version != 0:
        tags[_CLIENT_VERSION_TAG] = _INT16.pack(record.client_version)
    if record.last_producer_epoch != -1:
        tags[_LAST_EPOCH_TAG] = _INT16.pack(record.last_producer_epoch)
    return tags


def _read_transaction(transactional_id: str, value: bytes) -> TransactionRecord:
    reader = _Reader(value)
    version = read_version(reader, newest=_VALUE_VERSION, what="a transaction")
    if version >= _FLEXIBLE_FROM:
        reader.become_flexible()
    producer_id, producer_epoch = reader.int64(), reader.int16()
    timeout_ms, state = reader.int32(), _read_state(reader)
    partitions = _read_partitions(reader)
    updated_at, started_at = reader.int64(), reader.int64()
    tags = reader.tags()
    return TransactionRecord(
        transactional_id,
        producer_id,
        producer_epoch,
        timeout_ms,
        state,
        updated_at,
        started_at,
        partitions,
        previous_producer_id=_tag(tags, _PREVIOUS_PRODUCER_ID_TAG, FieldReader.int64, -1),
        next_producer_id=_tag(tags, _NEXT_PRODUCER_ID_TAG, FieldReader.int64, -1),
        client_version=_tag(tags, _CLIENT_VERSION_TAG, FieldReader.int16, 0),
        last_producer_epoch=_tag(tags, _LAST_EPOCH_TAG, FieldReader.int16, -1),
    )


def _tag(
    tags: Mapping[int, bytes], tag: int, read: Callable[[FieldReader], int], default: int
) -> int:
    return read(FieldReader(tags[tag])) if tag in tags else default


def _read_state(reader: FieldReader) -> TransactionState:
    number = reader.int8()
    try:
        return TransactionState(number)
    except ValueError:
        raise DamagedRecordError(f"a transaction in state {number}") from None


def _handle_value(record: HandleRecord) -> bytes:
    version = _OUR_VALUE_VERSION if record.sink is None else _SINK_VALUE_VERSION
    writer = _Writer(version, flexible=True)
    writer.int64(record.number)
    writer.int64(record.created_at)
    writer.int32(record.timeout_ms)
    writer.int8(record.state)
    writer.int64(record.updated_at)
    writer.int64(record.started_at)
    writer.array(record.winners, writer.int32)

    def write_outcome(outcome: Outcome) -> None:
        writer.int64(outcome.number)
        writer.int8(outcome.kind)
        writer.int64(outcome.winners_crc)
        writer.tags()

    writer.array(record.outcomes, write_outcome)
    if record.sink is not None:
        write_sink(writer, record.sink)
    writer.tags({_ATTEMPT_TAG: record.attempt_id} if record.attempt_id else None)
    return writer.done()


def _read_handle(transactional_id: str, value: bytes | None) -> HandleRecord | HandleTombstone:
    if value is None:
        return HandleTombstone(transactional_id)
    reader = _Reader(value, flexible=True)
    version = read_version(reader, newest=_SINK_VALUE_VERSION, what="a handle")

    def read_outcome() -> Outcome:
        outcome = Outcome(reader.int64(), _read_end_kind(reader), reader.int64())
        reader.tags()
        return outcome

    return HandleRecord(
        transactional_id,
        number=reader.int64(),
        created_at=reader.int64(),
        timeout_ms=reader.int32(),
        state=_read_state(reader),
        updated_at=reader.int64(),
        started_at=reader.int64(),
        winners=reader.array(reader.int32),
        outcomes=reader.array(read_outcome),
        sink=read_sink(reader) if version >= _SINK_VALUE_VERSION else None,
        attempt_id=reader.tags().get(_ATTEMPT_TAG, b""),
    )


def _read_end_kind(reader: FieldReader) -> EndKind:
    number = reader.int8()
    try:
        return EndKind(number)
    except ValueError:
        raise DamagedRecordError(f"a transaction that ended as {number}") from None


def _writer_value(record: WriterRecord) -> bytes:
    writer = _Writer(_OUR_VALUE_VERSION, flexible=True)
    writer.int64(record.number)
    writer.string(record.writer)
    writer.int64(record.producer_id)
    writer.int16(record.producer_epoch)
    writer.int8(int(record.superseded))
    _write_partitions(writer, record.partitions)
    writer.tags()
    return writer.done()


def _read_writer(
    transactional_id: str, slot: int, value: bytes | None
) -> WriterRecord | WriterTombstone:
    if value is None:
        return WriterTombstone(transactional_id, slot)
    reader = _Reader(value, flexible=True)
    read_version(reader, newest=_OUR_VALUE_VERSION, what="a writer")
    record = WriterRecord(
        transactional_id,
        slot,
        number=reader.int64(),
        writer=reader.string(),
        producer_id=reader.int64(),
        producer_epoch=reader.int16(),
        superseded=bool(reader.int8()),
        partitions=_read_partitions(reader),
    )
    reader.tags()
    return record
