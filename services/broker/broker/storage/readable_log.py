"""ReadableLog: the read side of one partition's log: slices, timestamps, aborted transactions."""

import contextlib
from collections.abc import Iterator
from typing import NoReturn

from tidemark.storage.batch_walk import FrameError
from tidemark.storage.disk import DiskError, ExhaustedError

from broker.storage.directory import LogDamagedError, LogDirectory
from broker.storage.segment import SegmentView
from broker.storage.segment_map import (
    EMPTY_READ,
    LogRead,
    LogSlice,
    OffsetOutOfRangeError,
    SegmentMap,
)
from broker.storage.txn_index import AbortedTxn


class ReadableLog:
    """What readers ask of a log. ``Log`` adds all that changes it."""

    __slots__ = (
        "_segments",
        "_shared",
        "damage",
        "damage_at",
        "directory",
        "log_end",
        "log_start",
    )

    _segments: SegmentMap
    _shared: LogDirectory
    directory: str
    log_start: int
    log_end: int
    damage: str | None
    """What is known to be wrong with synced bytes, in words; None when nothing is."""
    damage_at: int
    """No damage that is known begins below this offset."""

    def read(self, offset: int, bytes_max: int, *, end: int) -> LogRead:
        """Whole batches from the one that holds ``offset`` on, up to offset ``end`` (exclusive).

        ``end`` is a batch boundary, the high watermark or the log's end. At most ``bytes_max``
        bytes, unless the first batch alone is longer. Empty from ``end`` on. Raises
        OffsetOutOfRangeError, LogDamagedError, DiskError.
        """
        if not self.log_start <= offset <= self.log_end:
            raise OffsetOutOfRangeError(offset, self.log_start, self.log_end)
        if offset >= end:
            return EMPTY_READ
        try:
            return self._segments.read(offset, bytes_max, end, self.log_end)
        except FrameError as error:
            self._raise_damaged(error, offset)

    def batch_for_timestamp(
        self, timestamp: int, *, end: int, start: int | None = None
    ) -> LogSlice | None:
        """The first batch with a timestamp >= ``timestamp``, in [``start`` or log start, ``end``).

        The record is found inside by who may read records; should the batch have it below the log
        start, go on with ``start`` behind the batch.
        """
        first = self.log_start if start is None else max(start, self.log_start)
        with self._guarded(first):
            return self._segments.first_at_or_after(timestamp, first, end)

    def max_timestamp_batch(self, *, end: int) -> LogSlice | None:
        """The first batch that has the largest timestamp of all below ``end``."""
        with self._guarded():
            return self._segments.max_timestamp_batch(self.log_start, end)

    def aborted_in(self, start: int, read: LogRead, end: int) -> list[AbortedTxn]:
        """Aborted transactions with a record in what was read from ``start`` (all below ``end``),
        and perhaps some behind it.
        """
        return self.aborted_between(start, self._segments.offset_bound(read, end))

    def aborted_between(self, start: int, end: int) -> list[AbortedTxn]:
        """Aborted transactions with a record in [start, end), in the order of their markers."""
        with self._guarded(start):
            return self._segments.aborted_between(start, end)

    def segments(self) -> tuple[SegmentView, ...]:
        """All segments, oldest first; the last one is active."""
        return self._segments.views(self.log_end)

    def report_damage(self, what: str, at: int = 0) -> None:
        """Bytes were found that are not what was written, none of them below offset ``at``. The
        first finding is kept.
        """
        if self.damage is None:
            self.damage = what
        self.damage_at = min(self.damage_at, at)

    @contextlib.contextmanager
    def _guarded(self, offset: int = 0) -> Iterator[None]:
        """A disk that fails fences the directory; a bad batch, met from ``offset`` on, is this
        log's own.
        """
        try:
            yield
        except FrameError as error:
            self._raise_damaged(error, offset)
        except DiskError as error:
            self._shared.fence(error)
            raise

    @contextlib.contextmanager
    def _changing(self, offset: int = 0, *, begun: bool = False) -> Iterator[None]:
        """Steps that belong together. Raises ExhaustedError before the first unless some are
        ``begun``; in their midst it counts as a failed disk, for the log would be half changed.
        """
        if not begun:
            self._shared.disk.expect_room()
        try:
            with self._guarded(offset):
                yield
        except ExhaustedError as error:
            failed = DiskError(error.path, error.reason)
            self._shared.fence(failed)
            raise failed from error

    def _raise_damaged(self, error: FrameError, offset: int) -> NoReturn:
        """The bad batch is in the segment of ``offset`` or behind it."""
        at = self._segments.segments[self._segments.index_of(offset)].base_offset
        self.report_damage(f"{self.directory} at byte {error.position}: {error.what}", at)
        raise LogDamagedError(self.directory, error.position, error.what) from error
