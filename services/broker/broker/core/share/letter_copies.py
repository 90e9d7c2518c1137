"""Copies of dead letters for the queue (KIP-1191), made in a worker process."""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from tidemark.codec.record_batch import HEADER_BYTES, TRANSACTIONAL_BIT, read_header
from tidemark.codec.records import (
    BatchBuilder,
    Record,
    RecordsError,
    read_records,
    record_bytes_max,
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


def copies(stored: Sequence[bytes], order: CopyOrder) -> Copies:
    """Return the copies of the letters in these batches of the log."""
    batches: list[bytes] = []
    too_large: list[Offset] = []
    unreadable: list[Offset] = []
    builder, written = BatchBuilder(), 0

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

    for record, count in _letters(stored, order.letters, unreadable):
        key, value = (record.key, record.value) if order.has_record else (None, None)
        headers = _headers(record, count, order)
        size = record_bytes_max(key, value, headers)
        if HEADER_BYTES + size > order.batch_bytes_max:
            too_large.append(Offset(record.offset))
            continue
        if builder.size_bytes + size > order.batch_bytes_max:
            close()
        builder.append(order.timestamp, key, value, headers)
    close()
    return Copies(tuple(batches), written, tuple(too_large), tuple(unreadable))


def _letters(
    stored: Sequence[bytes], letters: Letters, unreadable: list[Offset]
) -> Iterator[tuple[Record, int]]:
    """Yield letters with their delivery counts; add those of damaged batches to ``unreadable``."""
    counts = {number: count for first, last, count in letters for number in range(first, last + 1)}
    for batch in stored:
        header = read_header(batch)
        try:
            records = read_records(batch, header)
        except RecordsError:
            span = range(header.base_offset, header.last_offset + 1)
            unreadable += [Offset(number) for number in span if Offset(number) in counts]
            continue
        for record in records:
            count = counts.get(Offset(record.offset))
            if count is not None:
                yield record, count


def _headers(record: Record, count: int, order: CopyOrder) -> tuple[tuple[str, bytes | None], ...]:
    message = EXHAUSTED if count >= order.deliveries_max else REJECTED
    facts = (
        (TOPIC, order.source.topic),
        (PARTITION, str(order.source.partition)),
        (OFFSET, str(record.offset)),
        (GROUP, order.group_id),
        (DELIVERY_COUNT, str(count)),
        (MESSAGE, message),
    )
    own = record.headers if order.has_record else ()
    return (*own, *((name, text.encode()) for name, text in facts))
