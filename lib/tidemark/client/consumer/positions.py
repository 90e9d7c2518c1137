"""Position of a consumer in each partition, and the records fetched ahead of it. Pure.

                 position            fetch_position
    returned    |  fetched, buffered |  next fetch starts here

Every seek raises the partition's ``generation``, so that responses to earlier fetches are detected
and dropped.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from enum import IntEnum
from typing import Final, NamedTuple

from tidemark.client.consumer.read_ahead import ReadAhead
from tidemark.client.errors import ClientError, CorruptBatchError, MessageTooLargeError
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


class OffsetSpec(IntEnum):
    """Ends of a log, as in ListOffsets; numbers from 0 are timestamps in ms."""

    LATEST = -1
    EARLIEST = -2
    MAX_TIMESTAMP = -3
    EARLIEST_LOCAL = -4


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
        for _, header in _whole_batches(view, partition):
            self.end = header.last_offset + 1

    def next_batch(self) -> tuple[BatchHeader, list[ConsumerRecord]] | None:
        """Return the next batch's header and visible records; None at the end.

        Raises CorruptBatchError.
        """
        batch = self._peek()
        if batch is None:
            return None
        header, view = batch
        records = [] if view is None else _records(self._partition, view, header)
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
        batch = next(_whole_batches(self._view[self._position :], self._partition), None)
        if batch is None:
            return None
        view, header = batch
        if self._options.check_crcs and not crc_matches(view, header):
            raise _corrupt(self._partition, header, "its checksum does not match")
        try:
            visible = self._is_visible(view, header)
        except RecordsError as problem:
            raise _corrupt(self._partition, header, str(problem)) from None
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


def _records(
    partition: TopicPartition, view: memoryview, header: BatchHeader
) -> list[ConsumerRecord]:
    prefix = tuple(partition)
    try:
        return [_make_record(prefix + record) for record in read_records(view, header)]
    except RecordsError as problem:
        raise _corrupt(partition, header, str(problem)) from None


def _corrupt(partition: TopicPartition, header: BatchHeader, what: str) -> CorruptBatchError:
    return CorruptBatchError(
        ErrorCode.CORRUPT_MESSAGE,
        f"the batch of offsets {header.base_offset} to {header.last_offset} of"
        f" {partition} cannot be read: {what}",
        hint=f"seek to {header.last_offset + 1} to continue after it",
    )


def _too_large(outcome: FetchOutcome) -> MessageTooLargeError:
    return MessageTooLargeError(
        ErrorCode.RECORD_LIST_TOO_LARGE,
        f"the batch at offset {outcome.fetch_offset} of {outcome.partition} does not fit",
        hint="raise max_partition_fetch_bytes and fetch_max_bytes",
    )


def _whole_batches(
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


class PartitionState:
    """State of one assigned partition.

    Invariant: position <= fetch_position; both are None until the position is looked up.
    """

    __slots__ = (
        "_ahead",
        "_ahead_from",
        "_chunks",
        "_ready",
        "_ready_at",
        "_ready_end",
        "buffered_bytes",
        "error",
        "failures",
        "fetch_position",
        "fetching",
        "generation",
        "high_watermark",
        "last_stable",
        "log_start",
        "partition",
        "paused",
        "position",
        "reset",
        "resume_at",
        "unknown_since",
        "waits_for_commit",
    )

    def __init__(self, partition: TopicPartition, reset: int | None) -> None:
        self.partition = partition
        self.generation = 0
        self.position: int | None = None
        self.fetch_position: int | None = None
        self.reset = reset
        """Timestamp or OffsetSpec to look up; None if not needed, or without a reset policy."""
        self.paused = False
        self.fetching = False
        self.high_watermark = self.last_stable = self.log_start = -1
        self.error: ClientError | None = None
        self.failures = 0
        self.resume_at = 0.0
        self.unknown_since: float | None = None
        self.waits_for_commit = False
        """True while the group's committed offset is requested as the position."""
        self.buffered_bytes = 0
        self._ahead: ReadAhead | None = None
        self._ahead_from = 0
        self._chunks: deque[FetchedChunk] = deque()
        self._ready: list[ConsumerRecord] = []
        self._ready_at = 0
        self._ready_end = -1

    def seek(self, offset: int) -> None:
        """Set the position.

        Buffered records are kept if they continue there, and dropped otherwise.
        """
        self.generation += 1
        self.position = self.fetch_position = offset
        self.reset = None
        self.error = None
        self.waits_for_commit = False
        self._drop_buffered()

    def seek_by(self, reset: int) -> None:
        """Set the position to the result of a lookup, by an end of the log or a timestamp."""
        self.generation += 1
        self.position = self.fetch_position = None
        self.reset = reset
        self.error = None
        self.waits_for_commit = False
        self._drop_buffered()

    def begin_at(self, committed: int | None, reset: int | None) -> None:
        """Set the position to the committed offset, or else by ``reset`` (None: require a seek)."""
        assert self.waits_for_commit, "not asked"
        self.waits_for_commit = False
        if committed is not None:
            self.seek(committed)
        else:
            self.reset = reset

    def on_looked_up(self, generation: int, offset: int) -> None:
        """Apply a lookup's result, unless a later seek has replaced it."""
        if generation == self.generation:
            self.position = self.fetch_position = offset
            self.reset = None
            self.failures = 0

    def wants_fetch(self, now: float, bytes_ahead_max: int) -> bool:
        """True if a fetch is due and there is room for its records."""
        return (
            self.fetch_position is not None
            and not (self.fetching or self.paused)
            and self.error is None
            and now >= self.resume_at
            and self.buffered_bytes < bytes_ahead_max
        )

    def wants_lookup(self, now: float) -> bool:
        """True if the position must be looked up."""
        return self.reset is not None and self.error is None and now >= self.resume_at

    def on_fetched(self, generation: int, outcome: FetchOutcome, options: ReadOptions) -> None:
        """Buffer the batches of a fetch, unless a seek has replaced it.

        Raises CorruptBatchError.
        """
        if generation != self.generation or outcome.fetch_offset != self.fetch_position:
            return
        self.failures = 0
        self.high_watermark = outcome.high_watermark
        self.last_stable, self.log_start = outcome.last_stable, outcome.log_start
        if self._ahead is not None:
            self._on_ahead(self._ahead, outcome, options)
            return
        if not outcome.records:
            self._maybe_go_ahead(options)
            return
        chunk = FetchedChunk(self.partition, outcome.records, options, outcome.aborted)
        if chunk.end < 0:
            raise _too_large(outcome)
        self._chunks.append(chunk)
        self.buffered_bytes += chunk.size_bytes
        self.fetch_position = max(chunk.end, outcome.fetch_offset)
        self._maybe_go_ahead(options)

    @property
    def is_ahead(self) -> bool:
        """True if the next fetch reads beyond the last stable offset, as read_uncommitted does."""
        return self._ahead is not None

    @property
    def is_held_up(self) -> bool:
        """True if buffered records wait for the end of a transaction."""
        ahead = self._ahead
        return ahead is not None and ahead.is_blocked and not self._chunks

    def stop_ahead(self) -> None:
        """Fetch up to the last stable offset only until it advances: no room to hold back more."""
        assert self._ahead is not None, "not ahead"
        self._ahead_from = self.last_stable + 1
        self._leave_ahead()

    @property
    def has_records(self) -> bool:
        """True if ``take`` may return records."""
        return not self.paused and self.holds_records

    @property
    def holds_records(self) -> bool:
        """True if there are fetched records to return, now or after ``resume``."""
        ahead = self._ahead is not None and self._ahead.is_ready
        return bool(self._chunks or self._ready_at < len(self._ready)) or ahead

    def take(self, records_max: int) -> list[ConsumerRecord]:
        """Return buffered records in order and advance the position.

        Raises CorruptBatchError; records before the damaged batch are returned first.
        """
        taken: list[ConsumerRecord] = []
        while len(taken) < records_max and (
            self._ready_at < len(self._ready) or self._decode_next(raises=not taken)
        ):
            start = self._ready_at
            stop = min(len(self._ready), start + records_max - len(taken))
            taken += self._ready[start:stop] if start or stop < len(self._ready) else self._ready
            self._ready_at = stop
            whole = stop == len(self._ready)
            self.position = self._ready_end if whole else self._ready[stop].offset
        return taken

    def check(self) -> None:
        """Assert the invariants."""
        assert (self.position is None) == (self.fetch_position is None)
        if self.position is not None and self.fetch_position is not None:
            assert self.position <= self.fetch_position, (self.position, self.fetch_position)
        held = 0
        if self._ahead is not None:
            self._ahead.check()
            held = self._ahead.size_bytes
        assert self.buffered_bytes == held + sum(chunk.size_bytes for chunk in self._chunks)

    def _decode_next(self, *, raises: bool) -> bool:
        """Decode the next batch; return False if nothing is buffered, or all is held back, or for
        a damaged batch unless ``raises``: it stays buffered.
        """
        while (batch := self._next_batch(raises=raises)) is not None:
            header, records = batch
            position = self.position
            assert position is not None, "buffered without a position"
            if header.base_offset < position:
                records = [record for record in records if record.offset >= position]
            self._ready, self._ready_at = records, 0
            self._ready_end = max(position, header.last_offset + 1)
            if not records:
                self.position = self._ready_end
                continue
            return True
        return False

    def _next_batch(self, *, raises: bool) -> tuple[BatchHeader, list[ConsumerRecord]] | None:
        try:
            while self._chunks:
                batch = self._chunks[0].next_batch()
                if batch is not None:
                    return batch
                self.buffered_bytes -= self._chunks.popleft().size_bytes
            return None if self._ahead is None else self._from_ahead(self._ahead)
        except CorruptBatchError:
            if raises:
                raise
            return None

    def _from_ahead(self, ahead: ReadAhead) -> tuple[BatchHeader, list[ConsumerRecord]] | None:
        ready = ahead.first()
        if ready is None:
            return None
        view, header, visible = ready
        records = _records(self.partition, view, header) if visible else []
        ahead.take()
        self.buffered_bytes -= header.size_bytes
        return header, records

    def _maybe_go_ahead(self, options: ReadOptions) -> None:
        """Start to fetch beyond the last stable offset once everything below was fetched."""
        assert self.fetch_position is not None, "fetched without a position"
        at_last_stable = self._ahead_from <= self.last_stable <= self.fetch_position
        if options.ahead_bytes_max and at_last_stable and self.high_watermark > self.last_stable:
            self._ahead = ReadAhead()

    def _on_ahead(self, ahead: ReadAhead, outcome: FetchOutcome, options: ReadOptions) -> None:
        for view, header in _whole_batches(outcome.records, self.partition):
            if options.check_crcs and not crc_matches(view, header):
                raise _corrupt(self.partition, header, "its checksum does not match")
            try:
                ahead.add(view, header)
            except RecordsError as problem:
                raise _corrupt(self.partition, header, str(problem)) from None
            self.buffered_bytes += header.size_bytes
            self.fetch_position = header.last_offset + 1
        assert self.fetch_position is not None, "fetched without a position"
        if outcome.records and self.fetch_position == outcome.fetch_offset:
            raise _too_large(outcome)
        if ahead.is_blocked and ahead.size_bytes >= options.ahead_bytes_max:
            self.stop_ahead()
        elif self.last_stable >= self.fetch_position and (ahead.is_blocked or not ahead):
            # The transaction has ended, whatever is held: a marker not seen was compacted away, and
            # the leader's index of aborted transactions has the outcome.
            self._leave_ahead()

    def _leave_ahead(self) -> None:
        """Drop records held back, to fetch them again under read_committed."""
        assert self._ahead is not None, "not ahead"
        held, self._ahead = self._ahead, None
        self.buffered_bytes -= held.size_bytes
        if held:
            self.generation += 1
            self.fetch_position = self._chunks[-1].end if self._chunks else self._next_to_decode

    @property
    def _next_to_decode(self) -> int:
        """Offset behind the decoded records."""
        assert self.position is not None, "buffered without a position"
        return self._ready_end if self._ready_at < len(self._ready) else self.position

    def _drop_buffered(self) -> None:
        self._chunks.clear()
        self._ahead = None
        self._ahead_from = 0
        self.buffered_bytes = 0
        self._ready, self._ready_at = [], 0
