"""Copies of dead letters for the queue (KIP-1191), made in a worker process."""

from collections.abc import Container, Iterator, Sequence
from typing import Final, NamedTuple

from tidemark.codec.record_batch import (
    COMPRESSION_MASK,
    HEADER_BYTES,
    TRANSACTIONAL_BIT,
    BatchHeader,
    read_header,
)
from tidemark.codec.records import (
    BatchBuilder,
    Record,
    RecordsError,
    encode_record,
    payload_chunks,
    read_records,
    record_bytes_max,
    scan_chunks,
)
from tidemark.model.ids import Offset
from tidemark.model.share_state import TransactionKey
from tidemark.model.topics import TopicPartition

TRANSACTIONAL_IDS: Final = "__share_dead_letters-"
"""Begin of the ids of the transactions in which letters are copied."""
TOPIC: Final = "__dlq.errors.topic"
PARTITION: Final = "__dlq.errors.partition"
OFFSET: Final = "__dlq.errors.offset"
GROUP: Final = "__dlq.errors.group"
DELIVERY_COUNT: Final = "__dlq.errors.delivery.count"
MESSAGE: Final = "__dlq.errors.message"
EXHAUSTED: Final = "Delivery count limit reached."
REJECTED: Final = "Offset rejected by client."
COPIES_BYTES_MAX: Final = 64 * 1024 * 1024
"""Bound of what one transaction copies: letters of small compressed batches may be large."""
_NOTHING: Final = encode_record(0, 0, None, None)

Letters = Sequence[tuple[Offset, Offset, int]]
"""First and last offset, and the delivery count of the records."""


class CopyOrder(NamedTuple):
    """Letters of one transaction, and how they are copied."""

    source: TopicPartition
    group_id: str
    letters: Letters
    deliveries_max: int
    has_record: bool
    """False: copies have headers only."""
    producer: TransactionKey
    timestamp: int
    batch_bytes_max: int
    """Largest batch that the queue takes."""


class Copies(NamedTuple):
    """Batches for the queue, in order, without records that cannot be copied."""

    batches: tuple[bytes, ...]
    records: int
    too_large: tuple[Offset, ...]
    """Records that are larger than the queue allows."""
    unreadable: tuple[Offset, ...]
    """Letters of damaged batches."""
    end: Offset | None = None
    """First letter that is left to the next transaction; None if there is none."""


class _Letter(NamedTuple):
    """A letter, and the record to copy; None if it is too large."""

    offset: Offset
    deliveries: int
    record: Record | None


def copies(stored: Sequence[bytes], order: CopyOrder) -> Copies:
    """Return the copies of the letters in these batches of the log, at most COPIES_BYTES_MAX unless
    the first is larger.
    """
    batches: list[bytes] = []
    too_large: list[Offset] = []
    unreadable: list[Offset] = []
    builder, written, bytes_left = BatchBuilder(), 0, COPIES_BYTES_MAX
    end: Offset | None = None

    def close() -> None:
        nonlocal builder, written
        if builder.count:
            batches.append(
                builder.build(
                    producer_id=order.producer.producer_id,
                    producer_epoch=order.producer.producer_epoch,
                    base_sequence=written,
                    attributes_extra=TRANSACTIONAL_BIT,
                )
            )
            written += builder.count
            builder = BatchBuilder()

    for letter in _letters(stored, order, unreadable):
        record = letter.record
        if record is None:
            too_large.append(letter.offset)
            continue
        headers = _headers(letter, record, order)
        size = record_bytes_max(record.key, record.value, headers)
        if HEADER_BYTES + size > order.batch_bytes_max:
            too_large.append(letter.offset)
            continue
        if size > bytes_left and (written or builder.count):
            end = letter.offset
            break
        bytes_left -= size
        if builder.size_bytes + size > order.batch_bytes_max:
            close()
        builder.append(order.timestamp, record.key, record.value, headers)
    close()
    return Copies(tuple(batches), written, tuple(too_large), tuple(unreadable), end)


def _letters(
    stored: Sequence[bytes], order: CopyOrder, unreadable: list[Offset]
) -> Iterator[_Letter]:
    """Yield letters; add those that are damaged to ``unreadable``."""
    deliveries = {
        Offset(number): count
        for first, last, count in order.letters
        for number in range(first, last + 1)
    }
    for batch in stored:
        header = read_header(batch)
        try:
            places = _places(batch, header, deliveries)
        except RecordsError:
            span = range(header.base_offset, header.last_offset + 1)
            unreadable += [Offset(number) for number in span if Offset(number) in deliveries]
            continue
        for place, encoded in _cut(batch, header, places, order):
            try:
                record = None if encoded is None else _read(encoded, header)
            except RecordsError:
                unreadable.append(place.offset)
            else:
                yield _Letter(place.offset, deliveries[place.offset], record)


class _Place(NamedTuple):
    """Position of a record in the decompressed records of its batch."""

    offset: Offset
    start: int
    end: int


def _places(batch: bytes, header: BatchHeader, wanted: Container[Offset]) -> list[_Place]:
    """Find records of a batch by their offsets. Raises RecordsError.

    The batch is walked in pieces: unfolded as a whole, a small one may exceed a worker's memory.
    """
    found = []
    before = -1
    for span in scan_chunks(payload_chunks(batch, header), header.record_count):
        if not before < span.offset_delta <= header.last_offset_delta:
            raise RecordsError(f"offset delta {span.offset_delta} follows {before}")
        before = span.offset_delta
        offset = Offset(header.base_offset + span.offset_delta)
        if offset in wanted:
            found.append(_Place(offset, span.start, span.end))
    return found


def _cut(
    batch: bytes, header: BatchHeader, places: Sequence[_Place], order: CopyOrder
) -> Iterator[tuple[_Place, bytes | None]]:
    """Yield the encoded records at these places; None for one that is too large. Where copies have
    headers only, nothing of a record is needed but its place.
    """
    if not order.has_record:
        yield from ((place, _NOTHING) for place in places)
        return
    chunks = payload_chunks(batch, header)
    held, origin = bytearray(), 0  # held[0] is byte ``origin`` of the whole
    for place in places:
        if place.end - place.start > order.batch_bytes_max:
            yield place, None  # its copy, which has more headers, is no smaller
            continue
        while origin + len(held) < place.end:
            behind = min(max(0, place.start - origin), len(held))
            del held[:behind]
            origin += behind
            held += next(chunks)
        yield place, bytes(held[place.start - origin : place.end - origin])


def _read(encoded: bytes, header: BatchHeader) -> Record:
    """Read one record, as a batch of its own that is not compressed. Raises RecordsError."""
    alone = header._replace(attributes=header.attributes & ~COMPRESSION_MASK, record_count=1)
    (record,) = read_records(bytes(HEADER_BYTES) + encoded, alone)
    return record


def _headers(
    letter: _Letter, record: Record, order: CopyOrder
) -> tuple[tuple[str, bytes | None], ...]:
    message = EXHAUSTED if letter.deliveries >= order.deliveries_max else REJECTED
    facts = (
        (TOPIC, order.source.topic),
        (PARTITION, str(order.source.partition)),
        (OFFSET, str(letter.offset)),
        (GROUP, order.group_id),
        (DELIVERY_COUNT, str(letter.deliveries)),
        (MESSAGE, message),
    )
    return (*record.headers, *((name, text.encode()) for name, text in facts))
