"""Indexes that are made again, of segments whose index file was lost or is wrong.

That walks all headers of the segment: 8 s for a gigabyte of small batches. So a repair is begun and
finished on the loop, and run in a thread. Until it is finished the segment stays closed, and what
needs its index is refused: a read without one walks the headers, too, and does so each time.
"""

import contextlib
import logging
from collections.abc import Callable
from typing import Final, NoReturn

from tidemark.storage.batch_walk import FrameError
from tidemark.storage.disk import Disk, DiskError, ExhaustedError, File

from broker.storage.segment import LOG, Segment

_log: Final = logging.getLogger(__name__)
INDEX_INTERVAL_BYTES: Final = 4096
"""Default of index.interval.bytes: a directory does not know the settings of its topics."""


class IndexMissingError(ExhaustedError):
    """The call needs an index that is being made again. As without descriptors, nothing was done,
    no disk has failed, and the same call works later.
    """


class IndexRepair:
    """One walk. It holds its file open, and ``run`` touches nothing else."""

    __slots__ = ("error", "made", "segment")

    def __init__(self, segment: Segment, file: File) -> None:
        self.segment = segment
        self.made = Segment(segment.directory, segment.base_offset, segment.size_bytes, 0)
        """A segment apart, which gets the indexes."""
        self.made.file = file
        self.error: DiskError | None = None

    def run(self) -> None:
        """Walk the headers. An error is kept until the finish."""
        try:
            self.made.rebuild_indexes(INDEX_INTERVAL_BYTES)
        except FrameError:
            return  # readers of the damaged batch get the error
        except DiskError as failure:
            self.error = failure


class IndexRepairs:
    """Segments of one log directory whose indexes are to be made again."""

    __slots__ = ("_disk", "_note_open", "_wanted", "on_wanted")

    def __init__(self, disk: Disk, note_open: Callable[[Segment], None]) -> None:
        """``note_open`` is called with a segment that a repair leaves open."""
        self._disk = disk
        self._note_open = note_open
        self._wanted: dict[Segment, IndexRepair | None] = {}
        """With the repair that was begun last."""
        self.on_wanted: Callable[[], None] = _nothing
        """Called when a repair can begin; set by what runs them."""

    def want(self, segment: Segment) -> None:
        """Make the index of a closed segment again."""
        assert segment.file is None, segment.stem
        if segment not in self._wanted:
            _log.warning("index is made again: %s", segment.stem)
            self._wanted[segment] = None
            self.on_wanted()

    def refuse(self, segment: Segment) -> NoReturn:
        """Raise the error of what needs the index meanwhile."""
        raise IndexMissingError(segment.stem, "the index is being made again")

    def __contains__(self, segment: Segment) -> bool:
        return segment in self._wanted

    def forget(self, segment: Segment) -> None:
        """Note that a segment left its log, or has its index again."""
        self._wanted.pop(segment, None)

    def begin(self) -> IndexRepair | None:
        """Return the next repair, if there is one. One runs at a time. Raises DiskError."""
        while self._wanted:
            segment = next(iter(self._wanted))
            try:
                begun = IndexRepair(segment, self._disk.open(segment.stem + LOG))
                self._wanted[segment] = begun
                return begun
            except FileNotFoundError:
                del self._wanted[segment]  # readers get the error
            except ExhaustedError:
                raise
            except DiskError:
                del self._wanted[segment]
                raise
        return None

    def finish(self, done: IndexRepair) -> None:
        """Open the segment with its new indexes, if it still needs them. Raises DiskError."""
        segment, made = done.segment, done.made
        if self._wanted.get(segment) is not done:
            return
        if done.error is not None:
            del self._wanted[segment]
            raise done.error
        with contextlib.suppress(FrameError):  # the file is gone: readers get the error
            segment.warm(self._disk)
            segment.index, segment.times = made.index, made.times
            segment.max_timestamp = made.max_timestamp
            segment.max_timestamp_offset = made.max_timestamp_offset
            self._note_open(segment)
        del self._wanted[segment]


def _nothing() -> None:
    """Default before anyone runs repairs."""
