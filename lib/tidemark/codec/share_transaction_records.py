"""Transactional acknowledgements in ``__share_group_state``, which Kafka does not have: pending
batches, a tagged field of ShareSnapshot and ShareUpdate, and the ends of transactions, a record of
its own.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from tidemark.codec.coordinator_fields import (
    DamagedRecordError,
    FieldReader,
    FieldWriter,
    read_version,
)
from tidemark.model.ids import Offset, ProducerEpoch, ProducerId, TopicId
from tidemark.model.share_state import (
    PERSISTED_STATES,
    DeliveryState,
    PendingBatch,
    SharePartitionKey,
    TransactionKey,
)

TRANSACTION_END_KEY: Final = 1_000
"""Type of the record's key. Kafka counts its types up from 0."""
PENDING_TAG: Final = 1_000
_BEFORE_TAG: Final = 0
"""State of a pending batch until its transaction ends; missing where that is ACQUIRED."""
_EARLIER_TAG: Final = 0
"""Earlier ends in the record of an end; missing where there are none."""
_VERSION: Final = 0
_OUTCOMES: Final = frozenset(map(int, PERSISTED_STATES - {DeliveryState.AVAILABLE}))
_DEAD_LETTERS: Final[Mapping[int, bytes]] = {_BEFORE_TAG: bytes([DeliveryState.ARCHIVING])}
_ACQUIRED: Final[Mapping[int, bytes]] = {}


class EndNotice(NamedTuple):
    """End of one transaction, of which the leaders of these share-partitions are notified."""

    producer_epoch: ProducerEpoch
    commits: bool
    ended_at: int
    """Wall ms."""
    held: tuple[SharePartitionKey, ...]
    """Share-partitions whose records the transaction held."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionEndValue:
    """Transactions of the producer with an epoch below ``open_from`` have ended."""

    open_from: int
    """Lowest producer epoch whose transaction may be open; above int16 once no epoch is left."""
    commits: bool
    """Outcome of the last one. Earlier ones have ended before."""
    ended_at: int
    """Wall ms."""
    held: tuple[SharePartitionKey, ...] = ()
    """Share-partitions whose records the transaction of the last of these epochs held."""
    earlier: tuple[EndNotice, ...] = ()
    """Transactions that ended before or with it, of which leaders may not know; in log order."""


@dataclass(frozen=True, slots=True)
class TransactionEndRecord:
    """End of a transaction for all share-partitions of a shard. A tombstone forgets it, long after
    the last write that may belong to the transaction.
    """

    producer_id: ProducerId
    value: TransactionEndValue | None


def encode_transaction_end(record: TransactionEndRecord) -> tuple[bytes, bytes | None]:
    """Key and value; the value of a tombstone is None."""
    key = FieldWriter(TRANSACTION_END_KEY)
    key.int64(record.producer_id)
    if record.value is None:
        return key.done(), None
    value = FieldWriter(_VERSION, flexible=True)
    value.int32(record.value.open_from)
    value.int8(int(record.value.commits))
    value.int64(record.value.ended_at)
    _write_held(value, record.value.held)
    earlier = record.value.earlier
    value.tags({_EARLIER_TAG: _encode_notices(earlier)} if earlier else None)
    return key.done(), value.done()


def _write_held(writer: FieldWriter, held: Sequence[SharePartitionKey]) -> None:
    def write_one(key: SharePartitionKey) -> None:
        writer.string(key.group_id)
        writer.uuid(key.topic_id)
        writer.int32(key.partition)
        writer.tags()

    writer.array(held, write_one)


def _encode_notices(notices: Sequence[EndNotice]) -> bytes:
    writer = FieldWriter(_VERSION, flexible=True)

    def write_one(notice: EndNotice) -> None:
        writer.int16(notice.producer_epoch)
        writer.int8(int(notice.commits))
        writer.int64(notice.ended_at)
        _write_held(writer, notice.held)
        writer.tags()

    writer.array(notices, write_one)
    return writer.done_without_version()


def decode_transaction_end(key: FieldReader, value: bytes | None) -> TransactionEndRecord:
    """Return the record. Raises NewerRecordError and DamagedRecordError."""
    producer_id = ProducerId(key.int64())
    if value is None:
        return TransactionEndRecord(producer_id, None)
    reader = FieldReader(value)
    read_version(reader, newest=_VERSION, what="ShareTransactionEnd")
    reader.become_flexible()
    end = TransactionEndValue(
        open_from=reader.int32(),
        commits=bool(reader.int8()),
        ended_at=reader.int64(),
        held=_read_held(reader),
        earlier=_decode_notices(reader.tags().get(_EARLIER_TAG)),
    )
    return TransactionEndRecord(producer_id, end)


def _read_held(reader: FieldReader) -> tuple[SharePartitionKey, ...]:
    def read_one() -> SharePartitionKey:
        held = SharePartitionKey(reader.string(), TopicId(reader.uuid()), reader.int32())
        reader.tags()
        return held

    return reader.array(read_one)


def _decode_notices(content: bytes | None) -> tuple[EndNotice, ...]:
    if content is None:
        return ()
    reader = FieldReader(content, flexible=True)

    def read_one() -> EndNotice:
        epoch, commits = ProducerEpoch(reader.int16()), bool(reader.int8())
        notice = EndNotice(epoch, commits, reader.int64(), _read_held(reader))
        reader.tags()
        return notice

    return reader.array(read_one)


def encode_pending(pending: Sequence[PendingBatch]) -> bytes:
    """Content of the tagged field."""
    writer = FieldWriter(_VERSION, flexible=True)

    def write_one(batch: PendingBatch) -> None:
        writer.int64(batch.first_offset)
        writer.int64(batch.last_offset)
        writer.int8(batch.outcome)
        writer.int16(batch.delivery_count)
        writer.int64(batch.transaction.producer_id)
        writer.int16(batch.transaction.producer_epoch)
        writer.tags(_DEAD_LETTERS if batch.before is DeliveryState.ARCHIVING else _ACQUIRED)

    writer.array(pending, write_one)
    return writer.done_without_version()


def decode_pending(content: bytes | None) -> tuple[PendingBatch, ...]:
    """Return the pending batches of a tagged field; None: the field is missing."""
    if content is None:
        return ()
    reader = FieldReader(content, flexible=True)

    def read_one() -> PendingBatch:
        first, last, outcome = Offset(reader.int64()), Offset(reader.int64()), reader.int8()
        if outcome not in _OUTCOMES:
            raise DamagedRecordError(f"offsets {first} to {last} pending for state {outcome}")
        count = reader.int16()
        transaction = TransactionKey(ProducerId(reader.int64()), ProducerEpoch(reader.int16()))
        before = _read_before(reader.tags().get(_BEFORE_TAG))
        return PendingBatch(first, last, DeliveryState(outcome), count, transaction, before)

    return reader.array(read_one)


def _read_before(content: bytes | None) -> DeliveryState:
    if content is None:
        return DeliveryState.ACQUIRED
    if content != _DEAD_LETTERS[_BEFORE_TAG]:
        raise DamagedRecordError(f"a pending state from state {content.hex()}")
    return DeliveryState.ARCHIVING
