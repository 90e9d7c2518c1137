"""Segment: one append-only file of batches, named by its base offset, with its indexes.

    <directory>/<base offset, 20 digits>.log  .index  .timeindex  .txnindex

A cold segment is a few numbers. A read or an append warms it: the file is open and the indexes are
in memory, until the pool closes it. Index entries are written after the log, and rarely.
"""

import contextlib
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from tidemark.codec.record_batch import (
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    MAGIC_V2,
    BatchHeader,
    read_header,
)
from tidemark.model.topic_configs import TopicConfig
from tidemark.storage.batch_walk import FrameError
from tidemark.storage.disk import Disk, File

from broker.core.batch_rules import AppendPlan
from broker.storage.offset_index import ENTRY_BYTES as OFFSET_ENTRY_BYTES
from broker.storage.offset_index import OffsetIndex
from broker.storage.time_index import ENTRY_BYTES as TIME_ENTRY_BYTES
from broker.storage.time_index import TimeIndex
from broker.storage.txn_index import TxnIndex

LOG: Final = ".log"
INDEX: Final = ".index"
TIME_INDEX: Final = ".timeindex"
TXN_INDEX: Final = ".txnindex"
SUFFIXES: Final = (LOG, INDEX, TIME_INDEX, TXN_INDEX)
DELETED: Final = ".deleted"
CLEANED: Final = ".cleaned"
SWAP: Final = ".swap"
UNKNOWN_TIMESTAMP: Final = -2
NO_TIMESTAMP: Final = -1
RELATIVE_OFFSET_MAX: Final = 2**31 - 1
NOT_LOOKED_UP: Final = -1
_PEEK_BYTES: Final = 4096
_WRONG_ENTRIES_MAX: Final = 16
"""A bit that flips makes one entry wrong. More mean that the file is another one's."""
_NEVER: Final = 2**63 - 1
_BATCH_LENGTH_MIN: Final = HEADER_BYTES - LENGTH_PREFIX_BYTES


class AppendInfo(NamedTuple):
    """One batch to append. Offsets are inclusive; ``max_timestamp`` is in ms, -1 for none."""

    first: int
    last: int
    max_timestamp: int
    leader_epoch: int
    size_bytes: int


AnyAppend = AppendInfo | AppendPlan
"""A plan begins with the fields of AppendInfo: making one more object costs 0.3 us a batch."""


class SegmentView(NamedTuple):
    """One segment as seen from outside. ``end_offset`` is exclusive: the next segment's base."""

    base_offset: int
    end_offset: int
    size_bytes: int
    path: str
    max_timestamp: int
    """Largest timestamp in ms; -1 if no batch has one."""
    created_ms: int
    """Wall time at which this process first saw the segment: the one before was rolled by then."""
    active: bool
    unsynced: bool = False
    """True if records, or the indexes of a roll, are written and not synced."""
    may_end_early: bool = False
    """True if compaction may have removed batches at its end."""


def stem(directory: str, base_offset: int) -> str:
    """Return the path of a segment's files without their suffix."""
    return f"{directory}/{base_offset:020d}"


def walk_headers(file: File, start: int, end: int) -> Iterator[tuple[int, BatchHeader]]:
    """Yield position and header of every batch in [start, end), by small reads that skip the
    bodies.

    ``start`` is a batch boundary. Raises FrameError where there is no valid batch.
    """
    position, chunk, chunk_start = start, b"", start
    while position < end:
        at = position - chunk_start
        if at + HEADER_BYTES > len(chunk):
            chunk = file.read_at(position, min(_PEEK_BYTES, end - position))
            chunk_start, at = position, 0
            if len(chunk) < HEADER_BYTES:
                raise FrameError(position, f"{len(chunk)} bytes are not a batch")
        header = read_header(chunk, at)
        problem = frame_problem(header, end - position)
        if problem is not None:
            raise FrameError(position, problem)
        yield position, header
        position += header.batch_length + LENGTH_PREFIX_BYTES


def frame_problem(header: BatchHeader, bytes_left: int) -> str | None:
    """Return why this cannot begin a batch of at most ``bytes_left`` bytes; None if it can."""
    if header.magic != MAGIC_V2:
        return f"magic {header.magic} is not {MAGIC_V2}"
    if header.batch_length < _BATCH_LENGTH_MIN or header.last_offset_delta < 0:
        return f"batch length {header.batch_length}, offset delta {header.last_offset_delta}"
    if header.size_bytes > bytes_left:
        return f"a batch of {header.size_bytes} bytes does not fit into {bytes_left}"
    return None


def early_end(end: int, expected: int) -> str:
    """Return the problem of a rolled segment whose batches end at ``end``."""
    return f"ends at offset {end}, the next segment begins at {expected}"


class Segment:
    """One segment. Bytes beyond ``size_bytes`` in the file are not part of the log."""

    __slots__ = (
        "aborted_from",
        "base_offset",
        "bytes_max",
        "created_ms",
        "directory",
        "dirty",
        "file",
        "first_timestamp",
        "index",
        "is_whole",
        "max_timestamp",
        "max_timestamp_offset",
        "roll_after_timestamp",
        "size_bytes",
        "times",
        "txns",
    )
    # Attributes of a compiled class are deleted only if it says so.
    __deletable__ = ("index", "times", "txns")

    file: File | None
    index: OffsetIndex
    times: TimeIndex
    txns: TxnIndex

    def __init__(self, directory: str, base_offset: int, size_bytes: int, created_ms: int) -> None:
        self.directory = directory
        self.base_offset = base_offset
        self.size_bytes = size_bytes
        self.created_ms = created_ms
        self.file = None
        self.max_timestamp = UNKNOWN_TIMESTAMP if size_bytes else NO_TIMESTAMP
        self.max_timestamp_offset = base_offset
        self.first_timestamp = NO_TIMESTAMP
        self.dirty = False
        """True if it has bytes that no sync covers yet."""
        self.is_whole = False
        """True if it is known to reach up to the next segment."""
        self.aborted_from = NOT_LOOKED_UP
        """Result of ``first_aborted``; to be looked up again after a change of ``txns``."""
        self.bytes_max = 0
        self.roll_after_timestamp = _NEVER
        """While active, once armed: a batch that would exceed these goes to a new segment."""

    @property
    def stem(self) -> str:
        """Path of its files without their suffix."""
        return stem(self.directory, self.base_offset)

    def moved_to(self, directory: str) -> None:
        """Note that the directory was renamed."""
        self.directory = directory
        if self.file is not None:
            self.txns.moved_to(self.stem + TXN_INDEX)

    # -- warm and cold

    def warm(self, disk: Disk, *, create: bool = False) -> File:
        """Open the file and load the indexes; missing or wrong index entries do no harm."""
        if self.file is not None:
            return self.file
        try:
            file = disk.open(self.stem + LOG, create=create)
        except FileNotFoundError:
            raise FrameError(0, f"{self.stem}{LOG} is missing") from None
        self.index = OffsetIndex.decode(self._read_index(disk, INDEX, create), self.size_bytes)
        self.times = TimeIndex.decode(
            self._read_index(disk, TIME_INDEX, create), RELATIVE_OFFSET_MAX
        )
        self.txns = TxnIndex(self.stem + TXN_INDEX, []) if create else self._load_txns(disk)
        self.file = file
        return file

    def _load_txns(self, disk: Disk) -> TxnIndex:
        try:
            return TxnIndex.load(disk, self.stem + TXN_INDEX)
        except ValueError as problem:
            raise FrameError(0, str(problem)) from problem

    def first_aborted(self, disk: Disk) -> int:
        """Return the lowest offset of the aborted transactions whose markers are here, one beyond
        all offsets if there are none. A cold segment stays cold. Raises FrameError.
        """
        if self.aborted_from == NOT_LOOKED_UP:
            txns = self._load_txns(disk) if self.file is None else self.txns
            firsts = (txn.first_offset for txn in txns.aborted)
            self.aborted_from = min(firsts, default=_NEVER)
        return self.aborted_from

    def _read_index(self, disk: Disk, suffix: str, create: bool) -> bytes:  # noqa: FBT001
        if create:
            return b""
        try:
            return disk.read_whole(self.stem + suffix)
        except FileNotFoundError:
            return b""

    def cool(self, disk: Disk) -> None:
        """Write missing index entries and release the file; readers that hold it keep it open."""
        if self.file is not None:
            self.write_indexes(disk)
            self.drop()

    def drop(self) -> None:
        """Release the file without a look at the indexes."""
        if self.file is not None:
            self.file = None
            del self.index, self.times, self.txns

    def reopen(self, disk: Disk) -> File:
        """Open a new handle after the file was cut, so that slices of the old one stay void."""
        self.file = disk.open(self.stem + LOG)
        return self.file

    def write_indexes(self, disk: Disk) -> None:
        """Append the entries that the index files lack. A cold segment has none."""
        if self.file is None:
            return
        _write_behind(disk, self.stem + INDEX, self.index, OFFSET_ENTRY_BYTES)
        _write_behind(disk, self.stem + TIME_INDEX, self.times, TIME_ENTRY_BYTES)
        self.txns.write(disk)

    def load_max_timestamp(self, disk: Disk) -> int:
        """Return the largest timestamp of a sealed segment: that of its time index's last entry.
        UNKNOWN_TIMESTAMP, with the segment open, if that file was lost.
        """
        if self.max_timestamp != UNKNOWN_TIMESTAMP:
            return self.max_timestamp
        last = b""
        if disk.exists(self.stem + TIME_INDEX):
            with contextlib.closing(disk.open(self.stem + TIME_INDEX)) as file:
                last = file.read_at(max(file.size_bytes - TIME_ENTRY_BYTES, 0), TIME_ENTRY_BYTES)
        times = TimeIndex.decode(last, RELATIVE_OFFSET_MAX)
        if times:
            self.max_timestamp, relative = times.last
            self.max_timestamp_offset = self.base_offset + relative
        else:
            with contextlib.suppress(FrameError):  # readers of the damaged batch get the error
                self.warm(disk)
                if self._first_batch_timestamp() < 0:
                    self.max_timestamp = NO_TIMESTAMP
        return self.max_timestamp

    # -- growth

    def arm(self, config: TopicConfig, roll_ms: int) -> None:
        """Set the limits at which the next batch begins a new segment. Needs a warm segment."""
        full = len(self.index) * OFFSET_ENTRY_BYTES >= config.segment_index_bytes
        self.bytes_max = 0 if full else config.segment_bytes
        if self.size_bytes and self.first_timestamp < 0:
            self.first_timestamp = self._first_batch_timestamp()
        first = self.first_timestamp
        self.roll_after_timestamp = first + roll_ms if first >= 0 else _NEVER

    def _first_batch_timestamp(self) -> int:
        """Return the first batch's timestamp. If it has none, any other is in the time index."""
        assert self.file is not None
        with contextlib.suppress(FrameError):  # readers of the damaged batch get the error
            for _, header in walk_headers(self.file, 0, self.size_bytes):
                return header.max_timestamp
        return NO_TIMESTAMP

    def took(self, header_position: int, first: int, max_timestamp: int) -> None:
        """Update the timestamps for a batch that lies at ``header_position``."""
        if max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp
            self.max_timestamp_offset = first
        if header_position == 0:
            self.first_timestamp = max_timestamp

    def grew(self, first: int, max_timestamp: int, size_bytes: int, config: TopicConfig) -> None:
        """Add one batch that was written at the end."""
        position = self.size_bytes
        self.size_bytes = position + size_bytes
        if max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp
            self.max_timestamp_offset = first
        if position - self.index.last_position > config.index_interval_bytes:
            self.add_entry(first - self.base_offset, position)
            if len(self.index) * OFFSET_ENTRY_BYTES >= config.segment_index_bytes:
                self.bytes_max = 0

    def fitting(
        self, infos: Sequence[AnyAppend], log_end: int, epoch: int, config: TopicConfig
    ) -> int:
        """Return how many of these consecutive batches fit into this segment without a roll, a gap
        before them, or a leader epoch other than ``epoch``. 0 if any of them might need more.
        """
        if self.file is None or not self.size_bytes:
            return 0
        size_bytes, last_max = self.size_bytes, self.base_offset + RELATIVE_OFFSET_MAX
        room = config.segment_index_bytes // OFFSET_ENTRY_BYTES - len(self.index)
        for count, (first, last, max_timestamp, leader_epoch, batch_bytes, *_) in enumerate(infos):
            size_bytes += batch_bytes
            if (
                first != log_end
                or size_bytes > self.bytes_max
                or max_timestamp > self.roll_after_timestamp
                or last > last_max
                or leader_epoch != epoch
                or count == room
            ):
                return count
            log_end = last + 1
        return len(infos)

    def add_entry(self, relative_offset: int, position: int) -> None:
        """Add an index entry for the last batch, with the largest timestamp up to it."""
        self.index.add(relative_offset, position)
        if self.max_timestamp >= 0:
            self.times.maybe_add(self.max_timestamp, self.max_timestamp_offset - self.base_offset)

    def seal(self) -> None:
        """Finish the time index: its last entry then has the largest timestamp."""
        if self.max_timestamp >= 0:
            self.times.maybe_add(self.max_timestamp, self.max_timestamp_offset - self.base_offset)

    def rebuild_indexes(self, interval_bytes: int) -> None:
        """Build the indexes from the batches. Raises FrameError at damage, with good entries so
        far.
        """
        assert self.file is not None
        self.index, self.times = OffsetIndex(), TimeIndex()
        self.index.stale_tail = self.times.stale_tail = True
        self.max_timestamp = NO_TIMESTAMP
        for position, header in walk_headers(self.file, 0, self.size_bytes):
            self.index_batch(position, header, interval_bytes)
        self.seal()

    def cut_indexes(self, position: int, end: int, interval_bytes: int) -> None:
        """Remove the entries of the batches from ``position`` on, which were cut; the rest ends at
        offset ``end``. Only what follows the last entry is read. Raises FrameError.
        """
        index, times = self.index, self.times
        index.truncate_to_position(position)
        times.truncate_to_offset(max(end - self.base_offset, 0))
        last_offset, start = index.boundary(position)
        # Timestamps without an entry, and entries from a file that are wrong, need all batches.
        is_known = not start or (
            (bool(times) or self._first_batch_timestamp() < 0)
            and (not index.loaded or self.begins_batch(start, last_offset))
        )
        if not is_known:
            self.rebuild_indexes(interval_bytes)
            return
        assert self.file is not None
        self.max_timestamp, relative = times.last
        self.max_timestamp_offset = self.base_offset + relative
        for at, header in walk_headers(self.file, start, position):
            self.index_batch(at, header, interval_bytes)
        self.seal()

    def index_batch(self, position: int, header: BatchHeader, interval_bytes: int) -> None:
        """Add a batch met in a walk in file order."""
        self.took(position, header.base_offset, header.max_timestamp)
        if position - self.index.last_position > interval_bytes:
            self.add_entry(header.base_offset - self.base_offset, position)

    # -- lookup; all need a warm segment

    def locate(self, offset: int) -> int:
        """Return the position of the first batch that ends at ``offset`` or later, or
        ``size_bytes``.
        """
        relative = offset - self.base_offset
        if relative <= 0:
            return 0
        index = self.index
        entry_offset, start = index.floor(relative)
        if entry_offset == relative and not index.loaded:
            return start
        assert self.file is not None
        for position, header in walk_headers(
            self.file, self.trusted_floor(relative), self.size_bytes
        ):
            end_offset = header.base_offset + header.last_offset_delta + 1
            if end_offset > offset:
                return position
            if end_offset == offset:
                return position + header.batch_length + LENGTH_PREFIX_BYTES
        return self.size_bytes

    def end_before(self, position: int) -> int:
        """Return the exclusive end of the batches before ``position``, a batch boundary; the base
        offset if there are none. Raises FrameError.
        """
        assert self.file is not None
        entry_offset, start = self.index.boundary(position - 1)
        if start and self.index.loaded and not self.begins_batch(start, entry_offset):
            start = 0
        end = self.base_offset
        for _, header in walk_headers(self.file, start, position):
            end = header.last_offset + 1
        return end

    def trusted_floor(self, relative_offset: int) -> int:
        """Return the position of a batch not after the one that contains an offset; an entry from a
        file is checked, and if it is wrong, the ones before it are.

        If many entries do not fit their batches, the indexes are built again from the log.
        """
        index = self.index
        entry_offset, position = index.floor(relative_offset)
        for _ in range(_WRONG_ENTRIES_MAX):
            if position == 0 or not index.loaded or self.begins_batch(position, entry_offset):
                return position
            entry_offset, position = index.boundary(position - 1)
        self.rebuild_indexes(_PEEK_BYTES)
        return self.index.floor(relative_offset)[1]

    def begins_batch(self, position: int, relative_offset: int) -> bool:
        """True if the batch at ``position`` begins (or, in Kafka's indexes, ends) at an offset."""
        assert self.file is not None
        peek = self.file.read_at(position, HEADER_BYTES)
        if len(peek) < HEADER_BYTES:
            return False
        header = read_header(peek)
        return frame_problem(header, self.size_bytes - position) is None and (
            self.base_offset + relative_offset in (header.base_offset, header.last_offset)
        )

    def fit(self, position: int, bytes_max: int, limit: int) -> int:
        """Return the length of the whole batches from ``position`` on, before ``limit``, in
        ``bytes_max``.

        The first batch counts even if it alone is longer. The result may be short of ``bytes_max``
        by half of it plus the index's interval, as batches without an entry are not all read.
        """
        target = position + bytes_max
        if target >= limit:
            return limit - position
        entry_offset, boundary = self.index.boundary(target)
        if (
            boundary > position
            and self.index.loaded
            and not self.begins_batch(boundary, entry_offset)
        ):
            boundary = position
        if boundary - position > bytes_max // 2:
            return boundary - position
        assert self.file is not None
        end = start = max(boundary, position)
        for at, header in walk_headers(self.file, start, limit):
            if at + header.size_bytes > target and at > position:
                break
            end = at + header.size_bytes
        return end - position

    def offset_bound(self, position: int) -> int | None:
        """Return an offset not below that of the batch at ``position``, by the index; None if it
        has no entry from there on.
        """
        index = self.index
        at = bisect_left(index.positions, position)
        return self.base_offset + index.offsets[at] if at < len(index) else None


def _write_behind(disk: Disk, path: str, index: OffsetIndex | TimeIndex, entry_bytes: int) -> None:
    if index.written_count == len(index) and not index.stale_tail:
        return
    position, content = index.written_count * entry_bytes, index.encode_unwritten()
    file = disk.open(path, create=True)
    try:
        if file.size_bytes != position:
            file.truncate(position)
        file.write_at(position, [content])
    finally:
        file.close()
    index.written_count, index.stale_tail = len(index), False
