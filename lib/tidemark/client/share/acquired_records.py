"""Records of one answer to ShareFetch: those of the acquired offsets, and offsets without one."""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from tidemark.client.consumer.fetched_chunk import ConsumerRecord, FetchedChunk, ReadOptions
from tidemark.client.errors import CorruptBatchError
from tidemark.client.share.deliveries import ShareRecord
from tidemark.client.share.share_requests import Acquired
from tidemark.model.errors import ErrorCode
from tidemark.model.topics import TopicPartition

OFFSETS_MAX: Final = 1_000_000
"""Bound on the acquired offsets of one answer; brokers acquire far fewer."""


class Read(NamedTuple):
    """Acquired offsets of one partition: records, and the rest."""

    records: list[ShareRecord]
    gaps: list[int]
    """Offsets without a record: control batches, or records that compaction has removed."""
    unread: list[int]
    """Offsets from the first batch on that cannot be read."""
    error: CorruptBatchError | None


def read_acquired(
    at: TopicPartition, view: memoryview, acquired: Sequence[Acquired], *, check_crcs: bool
) -> Read:
    """Read the records of the acquired offsets, in ascending order."""
    offset_count = sum(one.last_offset - one.first_offset + 1 for one in acquired)
    if offset_count > OFFSETS_MAX:
        message = f"{at}: the broker acquired {offset_count} offsets at once"
        return Read([], [], [], CorruptBatchError(ErrorCode.CORRUPT_MESSAGE, message))
    counts = {
        offset: one.delivery_count
        for one in acquired
        for offset in range(one.first_offset, one.last_offset + 1)
    }
    records: list[ShareRecord] = []
    error: CorruptBatchError | None = None
    try:
        for record in _records(at, view, check_crcs=check_crcs):
            count = counts.pop(record.offset, None)
            if count is not None:
                records.append(ShareRecord(*record, count))
    except CorruptBatchError as problem:
        error = problem
    if error is None:
        return Read(records, list(counts), [], None)
    read_up_to = records[-1].offset if records else -1
    gaps = [offset for offset in counts if offset < read_up_to]
    return Read(records, gaps, [offset for offset in counts if offset > read_up_to], error)


def _records(at: TopicPartition, view: memoryview, *, check_crcs: bool) -> Iterator[ConsumerRecord]:
    chunk = FetchedChunk(at, view, ReadOptions(check_crcs))
    while (batch := chunk.next_batch()) is not None:
        yield from batch[1]
