"""SegmentMap: the segments of one log in order, and lookups in them.

bases      0          100            250 (active)
           |--.log----|--.log--------|--.log-------|
offset         ^ the last segment whose base is not above it, or, in a gap that compaction left
                 at a segment's end, the first batch of the next one

A segment begins where the batches of the one before it end: so a rolled segment whose last batches
are missing is noticed, though it ends with a whole batch. Where compaction may have dropped batches
(below ``compacted_below``) this does not hold.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Generator, Sequence
from typing import Final, NamedTuple

from tidemark.codec.record_batch import BatchHeader
from tidemark.storage.batch_walk import FrameError
from tidemark.storage.disk import File

from broker.storage.directory import LogDirectory
from broker.storage.index_repairs import IndexMissingError
from broker.storage.segment import (
    LOG,
    NO_TIMESTAMP,
    NOT_LOOKED_UP,
    UNKNOWN_TIMESTAMP,
    Segment,
    SegmentView,
    early_end,
)
from broker.storage.time_search import SearchedTo, largest_from, next_at_or_after
from broker.storage.txn_index import AbortedTxn, aborted_between

RECENT_BATCHES: Final = 64
"""Number of batches whose position is cached, so that caught-up readers need not read the file."""


class LogSlice(NamedTuple):
    """Whole batches to send. It holds its file open; void once ``file.truncated_to`` cuts it."""

    file: File
    position: int
    length: int


class LogRead(NamedTuple):
    """Slices in order of their offsets, across segment boundaries."""

    slices: tuple[LogSlice, ...]
    length_bytes: int


EMPTY_READ: Final = LogRead((), 0)


class OffsetOutOfRangeError(Exception):
    """A requested offset that is not, or no longer, between log start and log end."""

    def __init__(self, offset: int, log_start: int, log_end: int) -> None:
        super().__init__(f"offset {offset} is not in [{log_start}, {log_end}]")
        self.offset = offset
        self.log_start = log_start
        self.log_end = log_end


class SegmentMap:
    """Segments of one log.

    Invariant: at least one segment; base offsets strictly increase; the last one is active.
    """

    __slots__ = ("_bases", "_shared", "active", "compacted_below", "recent", "segments")

    def __init__(
        self, shared: LogDirectory, segments: list[Segment], compacted_below: int = 0
    ) -> None:
        self._shared = shared
        self.compacted_below = compacted_below
        """Segments that begin below this offset may end before the next one begins."""
        self.recent: deque[tuple[int, int, int]] = deque(maxlen=RECENT_BATCHES)
        """(first, last, position) of the active segment's latest batches, without a gap."""
        self.active = segments[-1]
        self.replace(segments)

    def replace(self, segments: list[Segment]) -> None:
        """Replace all segments."""
        self.segments = segments
        self._bases = [segment.base_offset for segment in segments]
        if segments[-1] is not self.active:
            self.active = segments[-1]
            self.recent.clear()

    def add(self, segment: Segment) -> None:
        """Add a new active segment."""
        assert segment.base_offset > self.active.base_offset, segment.base_offset
        self.segments.append(segment)
        self._bases.append(segment.base_offset)
        self.active = segment
        self.recent.clear()

    def index_of(self, offset: int) -> int:
        """Return the index of the segment that contains an offset, or of the first one above it."""
        return max(bisect_right(self._bases, offset) - 1, 0)

    def note_warm(self) -> None:
        """Register segments that were opened without the pool."""
        for segment in self.segments:
            if segment.file is not None:
                self._shared.note_warm(segment)

    def views(self, log_end: int) -> tuple[SegmentView, ...]:
        """Return views of the segments, oldest first."""
        ends = [*self._bases[1:], log_end]
        return tuple(
            SegmentView(
                segment.base_offset,
                end,
                segment.size_bytes,
                segment.stem + LOG,
                self._shown_timestamp(segment),
                segment.created_ms,
                segment is self.active,
                segment.dirty,
                segment.base_offset < self.compacted_below,
            )
            for segment, end in zip(self.segments, ends, strict=True)
        )

    def sealed(self, bases: Sequence[int]) -> list[Segment]:
        """Return the segments with these base offsets; [] unless rolled neighbours."""
        at = self.index_of(bases[0])
        segments = self.segments[at : at + len(bases)]
        same = [segment.base_offset for segment in segments] == list(bases)
        return segments if same and segments[-1] is not self.active else []

    def swap(self, bases: Sequence[int], compacted: Segment) -> None:
        """Put a compacted segment in the place of the rolled ones with these base offsets."""
        at = self.index_of(bases[0])
        behind = self.segments[at + len(bases) :]
        self.compacted_below = max(self.compacted_below, behind[0].base_offset)
        self.replace([*self.segments[:at], compacted, *behind])

    # -- truncation

    def cut_point(self, segment: Segment, offset: int) -> tuple[int, int]:
        """Return the start of the batch that contains ``offset``, and the log end after a cut
        there: the end of the rest, if there is a gap before ``offset``.
        """
        self._shared.warm(segment)
        position = segment.locate(offset)
        return position, segment.end_before(position)

    def cut(self, segment: Segment, position: int, end: int, interval_bytes: int) -> None:
        """Cut a segment's file at offset ``end``; later readers get a new handle."""
        self._shared.warm(segment).truncate(position)
        segment.size_bytes = position
        segment.is_whole = False
        self.recent.clear()
        segment.reopen(self._shared.disk)
        segment.cut_indexes(position, end, interval_bytes)

    # -- transactions

    def index_aborted(self, newly: list[AbortedTxn]) -> None:
        """Add aborted transactions to the segments with their markers; ``newly`` is emptied. Raises
        DiskError: if the disk is only full, reads name them all the same, and
        ``Segment.write_indexes`` writes them.
        """
        changed: dict[Segment, None] = {}
        for txn in newly:
            segment = self.segments[self.index_of(txn.last_offset)]
            self._shared.warm_at_once(segment)
            segment.txns.add(txn)
            segment.aborted_from = NOT_LOOKED_UP
            changed[segment] = None
        newly.clear()
        for segment in changed:
            if segment.file is not None:  # else it was written when the file was closed
                segment.txns.write(self._shared.disk)

    def aborted_between(self, start: int, end: int) -> list[AbortedTxn]:
        """Return the aborted transactions with a record in [start, end), by marker. The marker may
        be in any later segment; only those are opened that have such a transaction.
        """
        overlapping: list[AbortedTxn] = []
        for segment in self.segments[self.index_of(start) :]:
            if segment.first_aborted(self._shared.disk) >= end:
                continue
            self._shared.warm(segment)
            aborted = segment.txns.aborted
            overlapping += aborted_between(aborted, start, end)
            if aborted and aborted[-1].last_stable >= end:
                break  # later markers end transactions that begin after it
        return overlapping

    def offset_bound(self, read: LogRead, end: int) -> int:
        """Return an offset not below any record that was read, and at most ``end``."""
        last = read.slices[-1]
        at = next(
            (at for at, one in enumerate(self.segments) if one.file is last.file),
            len(self.segments),
        )
        if at == len(self.segments):
            return end
        bound = self.segments[at].offset_bound(last.position + last.length)
        if bound is None:
            bound = self._bases[at + 1] if at + 1 < len(self._bases) else end
        return min(bound, end)

    # -- reads; FrameError if a batch on the way is damaged

    def read(self, offset: int, bytes_max: int, end: int, log_end: int) -> LogRead:
        """Return whole batches from the one that contains ``offset``, or the next, to ``end``."""
        active = self.active
        if offset >= active.base_offset:
            piece = self._piece(active, offset, bytes_max, end if end < log_end else -1)
            # A NamedTuple's own constructor takes twice as long.
            return tuple.__new__(LogRead, ((piece,), piece[2])) if piece[2] else EMPTY_READ
        return self._read_across(offset, bytes_max, end, log_end)

    def _read_across(self, offset: int, bytes_max: int, end: int, log_end: int) -> LogRead:
        slices: list[LogSlice] = []
        total, first = 0, self.index_of(offset)
        for at in range(first, len(self.segments)):
            segment = self.segments[at]
            segment_end = self._bases[at + 1] if segment is not self.active else log_end
            if segment.base_offset >= end:
                break
            if at > first and (problem := self._missing_behind(at - 1)) is not None:
                if slices:
                    break
                raise problem
            stop = end if end < segment_end else -1
            piece = self._piece(segment, offset, bytes_max - total, stop)
            if not piece.length:
                continue
            if slices and total + piece.length > bytes_max:
                break
            slices.append(piece)
            total += piece.length
            if total >= bytes_max or piece.position + piece.length < segment.size_bytes:
                break
        return LogRead(tuple(slices), total) if slices else EMPTY_READ

    def _missing_behind(self, at: int) -> FrameError | None:
        """Return the error if batches are missing at the end of a rolled segment, else None."""
        segment, expected = self.segments[at], self._bases[at + 1]
        if segment.is_whole or segment.base_offset < self.compacted_below:
            return None
        self._shared.warm(segment)
        try:
            end = segment.end_before(segment.size_bytes)
        except FrameError as problem:
            return problem
        segment.is_whole = end >= expected
        if segment.is_whole:
            return None
        return FrameError(segment.size_bytes, early_end(end, expected))

    def _piece(self, segment: Segment, offset: int, bytes_max: int, end: int) -> LogSlice:
        """Return the slice from ``offset`` to offset ``end`` (-1: the segment's end), maybe
        empty.
        """
        file = segment.file
        if file is None:
            file = self._shared.warm(segment)
        position = self._position(segment, offset)
        limit = segment.size_bytes if end < 0 else self._position(segment, end)
        length = limit - position
        if length > bytes_max:
            length = segment.fit(position, bytes_max, limit)
        return tuple.__new__(LogSlice, (file, position, length if length > 0 else 0))

    def _position(self, segment: Segment, offset: int) -> int:
        """Return the position of the first batch that ends at ``offset`` or later."""
        recent = self.recent
        if segment is self.active and recent and offset >= recent[0][0]:
            next_position = -1
            for first, last, position in reversed(recent):
                if last < offset:
                    return next_position if next_position >= 0 else segment.size_bytes
                if first <= offset:
                    return position
                next_position = position
        return segment.locate(offset)

    # -- timestamps

    def next_at_or_after(
        self, timestamp: int, start: int, end: int
    ) -> LogSlice | SearchedTo | None:
        """Return the first batch with a timestamp >= ``timestamp`` within [start, end), or how far
        one part of the search got.
        """
        for at in range(self.index_of(start), len(self.segments)):
            segment = self.segments[at]
            if segment.base_offset >= end:
                return None
            if self.max_timestamp_of(segment) < timestamp:
                continue
            file = self._shared.warm(segment)
            batch = next_at_or_after(segment, timestamp, start, end)
            if isinstance(batch, SearchedTo):
                return batch
            if batch is not None:
                position, header = batch
                return LogSlice(file, position, header.size_bytes)
        return None

    def max_timestamp_of(self, segment: Segment) -> int:
        """Return the largest timestamp of a segment in ms; -1 if no batch has one. Raises
        IndexMissingError.
        """
        if segment.max_timestamp == UNKNOWN_TIMESTAMP:
            shared = self._shared
            if segment in shared.index_repairs:
                shared.index_repairs.refuse(segment)
            newest = segment.load_max_timestamp(shared.disk)
            if segment.file is not None:
                if newest == UNKNOWN_TIMESTAMP:
                    shared.make_index(segment)
                shared.note_warm(segment)
        return segment.max_timestamp

    def _shown_timestamp(self, segment: Segment) -> int:
        """Return the same for a view: without a time index, as if no batch had a timestamp."""
        try:
            return self.max_timestamp_of(segment)
        except IndexMissingError:
            return NO_TIMESTAMP

    def max_timestamp_batch(self, start: int, end: int) -> Generator[None, None, LogSlice | None]:
        """Return the first batch with the largest timestamp of those in [start, end). Segments are
        opened by their largest timestamps: mostly the last one alone. Between parts of the search,
        which yield, the log may change.
        """
        within = [one for one in self.segments[self.index_of(start) :] if one.base_offset < end]
        best, found = (NO_TIMESTAMP, 0), None
        for segment in sorted(within, key=self.max_timestamp_of, reverse=True):  # else in order
            if (self.max_timestamp_of(segment), -segment.base_offset) <= best:
                continue
            rest: int | None = None
            while segment in self.segments:
                file = self._shared.warm(segment)
                batch, rest = (
                    self._largest_indexed(segment, start, end)
                    if rest is None
                    else largest_from(segment, rest, end)
                )
                if batch is not None:
                    position, header = batch
                    rank = header.max_timestamp, -header.base_offset
                    if rank > best:
                        best, found = rank, LogSlice(file, position, header.size_bytes)
                if rest is None:
                    break
                yield
        return found

    def _largest_indexed(
        self, segment: Segment, start: int, end: int
    ) -> tuple[tuple[int, BatchHeader] | None, int | None]:
        """Return the batch with a segment's largest timestamp, if it is in [start, end). If not,
        return the one up to the last index entry below ``end``, and the offset of that entry, from
        which on there may be a larger one; or None and ``start``.
        """
        if start <= segment.max_timestamp_offset < end:
            batch = next_at_or_after(segment, segment.max_timestamp, start, end)
            if batch is not None and not isinstance(batch, SearchedTo):
                return batch, None
        base = segment.base_offset
        segment.trusted_floor(end - 1 - base)
        relative, _ = segment.index.floor(end - 1 - base)
        timestamps = segment.times.timestamps
        at = bisect_right(segment.times.offsets, relative)
        if not at or base + segment.times.offsets[at - 1] < start:
            return None, start
        batch = next_at_or_after(segment, timestamps[at - 1], start, end)
        if batch is None or isinstance(batch, SearchedTo):
            return None, start
        if batch[1].base_offset > base + relative:
            return None, start
        return batch, base + relative
