"""Batches of one fetch, and the records in them that a consumer sees. Pure."""

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from tidemark.client.errors import CorruptBatchError, MessageTooLargeError
from tidemark.client.wire.transport import FetchOutcome
from tidemark.codec.control_record import EndTxnMarker, read_control
from tidemark.codec.record_batch import (
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    MAGIC_V2,
    BatchHeader,
    crc_matches,
    read_header,
)
from tidemark.codec.records import RecordsError, read_records
from tidemark.model.errors import ErrorCode
from tidemark.model.topics import TopicPartition


class ConsumerRecord(NamedTuple):
    """Record as it was read; ``timestamp_ms`` is the producer's or broker's, as the topic sets."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


class ReadOptions(NamedTuple):
    """Options for reading records of fetched bytes."""

    check_crcs: bool = True
    read_committed: bool = False
    ahead_bytes_max: int = 0
    """Bytes to fetch beyond the last stable offset; 0 disables it."""


_make_record: Final = ConsumerRecord._make


class FetchedChunk:
    """Batches of one fetch, decoded one by one as records are taken."""

    __slots__ = (
        "_aborted",
        "_aborted_now",
        "_options",
        "_partition",
        "_position",
        "_view",
        "end",
        "epoch",
        "size_bytes",
    )

    def __init__(
        self,
        partition: TopicPartition,
        view: memoryview,
        options: ReadOptions,
        aborted: Iterable[tuple[int, int]] = (),
    ) -> None:
        self._partition = partition
        self._view = view
        self._options = options
        self._position = 0
        self._aborted = deque(sorted(aborted, key=lambda entry: entry[1]))
        self._aborted_now: set[int] = set()
        self.size_bytes = len(view)
        self.end = -1
        """End of the last whole batch; -1 if there is none."""
        self.epoch = -1
        """Leader epoch of that batch."""
        for _, header in whole_batches(view, partition):
            self.end, self.epoch = header.last_offset + 1, header.partition_leader_epoch

    def next_batch(self) -> tuple[BatchHeader, list[ConsumerRecord]] | None:
        """Return the next batch's header and visible records; None at the end.

        Raises CorruptBatchError.
        """
        batch = self._peek()
        if batch is None:
            return None
        header, view = batch
        records = [] if view is None else records_of(self._partition, view, header)
        self._position += header.size_bytes
        return header, records

    def next_raw(self) -> tuple[BatchHeader, memoryview | None] | None:
        """Return the next batch as stored, None in its place if it is not visible; None at the end.

        Raises CorruptBatchError.
        """
        batch = self._peek()
        if batch is not None:
            self._position += batch[0].size_bytes
        return batch

    def _peek(self) -> tuple[BatchHeader, memoryview | None] | None:
        batch = next(whole_batches(self._view[self._position :], self._partition), None)
        if batch is None:
            return None
        view, header = batch
        if self._options.check_crcs and not crc_matches(view, header):
            raise corrupt(self._partition, header, "its checksum does not match")
        try:
            visible = self._is_visible(view, header)
        except RecordsError as problem:
            raise corrupt(self._partition, header, str(problem)) from None
        return header, view if visible else None

    def _is_visible(self, view: memoryview, header: BatchHeader) -> bool:
        """Return False for control batches, and under read_committed for aborted ones."""
        while self._aborted and self._aborted[0][1] <= header.last_offset:
            self._aborted_now.add(self._aborted.popleft()[0])
        if header.is_control:
            marker = read_control(view, header)
            if isinstance(marker, EndTxnMarker) and not marker.commits:
                self._aborted_now.discard(header.producer_id)
            return False
        hidden = header.is_transactional and header.producer_id in self._aborted_now
        return not (self._options.read_committed and hidden)


def records_of(
    partition: TopicPartition, view: memoryview, header: BatchHeader
) -> list[ConsumerRecord]:
    """Return the records of one batch. Raises CorruptBatchError."""
    prefix = tuple(partition)
    try:
        return [_make_record(prefix + record) for record in read_records(view, header)]
    except RecordsError as problem:
        raise corrupt(partition, header, str(problem)) from None


def corrupt(partition: TopicPartition, header: BatchHeader, what: str) -> CorruptBatchError:
    """Return the error for a batch that cannot be read."""
    return CorruptBatchError(
        ErrorCode.CORRUPT_MESSAGE,
        f"the batch of offsets {header.base_offset} to {header.last_offset} of"
        f" {partition} cannot be read: {what}",
        hint=f"seek to {header.last_offset + 1} to continue after it",
    )


def too_large(outcome: FetchOutcome) -> MessageTooLargeError:
    """Return the error for a batch that no fetch returns whole."""
    return MessageTooLargeError(
        ErrorCode.RECORD_LIST_TOO_LARGE,
        f"the batch at offset {outcome.fetch_offset} of {outcome.partition} does not fit",
        hint="raise max_partition_fetch_bytes and fetch_max_bytes",
    )


def whole_batches(
    view: memoryview, partition: TopicPartition
) -> Iterator[tuple[memoryview, BatchHeader]]:
    """Yield whole batches; a partial one at the end is fetched again. Raises CorruptBatchError."""
    position, end = 0, len(view)
    while position + HEADER_BYTES <= end:
        header = read_header(view, position)
        too_short = header.batch_length < HEADER_BYTES - LENGTH_PREFIX_BYTES
        if header.magic != MAGIC_V2 or too_short:
            raise CorruptBatchError(
                ErrorCode.CORRUPT_MESSAGE,
                f"bytes of {partition} after offset {header.base_offset} are not a record batch",
            )
        if position + header.size_bytes > end:
            return
        yield view[position : position + header.size_bytes], header
        position += header.size_bytes
