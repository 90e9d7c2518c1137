"""LogDirectory: state shared by the logs of one directory: disk, fence, open files, removals."""

import contextlib
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from tidemark.model.topics import TopicPartition
from tidemark.storage.batch_walk import FrameError
from tidemark.storage.disk import Disk, DiskError, DiskFullError, ExhaustedError, File

from broker.storage import checkpoint
from broker.storage.index_repairs import INDEX_INTERVAL_BYTES, IndexMissingError, IndexRepairs
from broker.storage.removals import Removals
from broker.storage.segment import Segment, walk_headers

if TYPE_CHECKING:
    from broker.storage.log import Log

_log: Final = logging.getLogger(__name__)
OPEN_FILES_MAX: Final = 1_024
"""Most segments kept open. Those with unsynced bytes stay open beyond it: a sync through another
handle might miss the error of an earlier write-back.
"""
INDEX_GAP_BYTES: Final = 256 * 1024
INDEX_GAP_BATCHES: Final = 256
"""So many bytes, in so many batches, at the end of a segment are left out by an index only if it
was lost, or if index.interval.bytes is larger: such an index gets more entries, once.
"""
_COOLED_AT_ONCE: Final = 8
_GAPS_AHEAD: Final = 1 << 20
"""Offsets by which a checkpoint of gaps runs ahead, so that a compacted log does not need a new one
for each gap.
"""


class LogDamagedError(Exception):
    """Synced bytes that differ from those written. An error of this partition only."""

    def __init__(self, path: str, position: int, reason: str) -> None:
        super().__init__(f"{path} at byte {position}: {reason}")
        self.path = path
        self.position = position
        self.reason = reason


class LogDirectory:
    """State shared by a LogManager and its logs."""

    __slots__ = (
        "_open_files_max",
        "_warm",
        "dirty",
        "disk",
        "fence_error",
        "gaps_below",
        "index_repairs",
        "jitter",
        "logs_end",
        "note_failure",
        "now_ms",
        "removals",
        "save_log_starts",
        "save_recovery_points",
    )

    def __init__(
        self,
        disk: Disk,
        *,
        jitter: Callable[[int], int],
        now_ms: int,
        open_files_max: int = OPEN_FILES_MAX,
    ) -> None:
        self.disk = disk
        self.now_ms = now_ms
        """Wall time at the last look for removals: exact enough for delays of seconds."""
        self.save_log_starts: Callable[[], None] = _nothing
        """Writes the log-start checkpoint; set by the manager."""
        self.save_recovery_points: Callable[[], None] = _nothing
        """Writes the recovery-point checkpoint, durably; set by the manager."""
        self.logs_end: Callable[[Mapping[TopicPartition, int]], None] = _nothing_cut
        """Lowers checkpoints after a deliberate truncation; set by the manager."""
        self.note_failure: Callable[[DiskError], None] = _nothing_noted
        """Records over restarts that the disk failed; set by the manager."""
        self.jitter = jitter
        """Returns by how many ms a segment rolls early, given a maximum; the randomness is
        injected.
        """
        self.fence_error: DiskError | None = None
        self.dirty: dict[Log, None] = {}
        """Logs with unsynced bytes, in the order in which they got them."""
        self.removals = Removals(disk)
        """Files renamed to .deleted, and directories renamed to -delete."""
        self.index_repairs = IndexRepairs(disk, self.note_warm)
        """Indexes that are to be made again."""
        self.gaps_below: dict[TopicPartition, int] = {}
        """Offset below which a follower's log may have gaps, if its leader's is compacted."""
        self._warm: dict[Segment, None] = {}
        self._open_files_max = open_files_max

    def fence(self, error: DiskError) -> None:
        """Refuse further writes. A full disk may recover; any other error stays until the next
        start. An error from exhausted resources of the process is only logged.
        """
        if isinstance(error, IndexMissingError):
            return
        if isinstance(error, ExhaustedError):
            _log.warning("disk call refused, no log directory fenced: %s", error)
            return
        current = self.fence_error
        if current is None or (
            isinstance(current, DiskFullError) and not isinstance(error, DiskFullError)
        ):
            # A copy: its traceback would keep the failed file open, and with it the space it takes.
            self.fence_error = type(error)(error.path, error.reason)
            if not isinstance(error, DiskFullError):
                self.note_failure(self.fence_error)
            _log.error("log directory fenced: %s", self.fence_error)

    def raise_if_fenced(self) -> None:
        """Raise if the directory is fenced. Called before anything that writes."""
        if self.fence_error is not None:
            raise type(self.fence_error)(self.fence_error.path, self.fence_error.reason)

    def warm(self, segment: Segment) -> File:
        """Return a segment's open file, with its indexes loaded. Those whose file was lost, or is
        wrong, are made again first, and the segment is closed meanwhile. Raises IndexMissingError.
        """
        file = segment.file
        if file is None:
            if segment in self.index_repairs:
                self.index_repairs.refuse(segment)
            file = segment.warm(self.disk)
            if _lacks_entries(segment, file):
                self.make_index(segment)
            self.note_warm(segment)
        return file

    def warm_at_once(self, segment: Segment) -> File:
        """As ``warm``, for steps that cannot be put off: an index that is missing is made again
        here and now.
        """
        file = segment.file
        if file is None:
            file = segment.warm(self.disk)
            if segment in self.index_repairs or _lacks_entries(segment, file):
                _log.warning("index made again at once: %s", segment.stem)
                self.index_repairs.forget(segment)
                self._walk(segment)
            self.note_warm(segment)
        return file

    def make_index(self, segment: Segment) -> None:
        """Make the index of an open segment again. A large one is closed, and raises
        IndexMissingError, until that is done.
        """
        if segment.size_bytes > INDEX_GAP_BYTES:
            self._warm.pop(segment, None)
            segment.drop()
            self.index_repairs.want(segment)
            self.index_repairs.refuse(segment)
        self._walk(segment)

    @staticmethod
    def _walk(segment: Segment) -> None:
        with contextlib.suppress(FrameError):  # readers of the damaged batch get the error
            segment.rebuild_indexes(INDEX_INTERVAL_BYTES)

    def note_warm(self, segment: Segment) -> None:
        """Register an open segment, and close some of the oldest if there are too many."""
        self._warm[segment] = None
        if len(self._warm) > self._open_files_max:
            for old in list(self._warm)[:_COOLED_AT_ONCE]:
                del self._warm[old]
                if old.dirty or old is segment:
                    self._warm[old] = None
                else:
                    self.cool(old)

    def cool(self, segment: Segment) -> None:
        """Close a segment's file; it stays open while its index cannot be written."""
        try:
            segment.cool(self.disk)
        except DiskError as error:
            self._warm[segment] = None
            self.fence(error)

    def forget(self, segment: Segment) -> None:
        """Release the file of a segment that leaves the log."""
        self._warm.pop(segment, None)
        self.index_repairs.forget(segment)
        segment.file = None

    def allow_gaps(self, topic_partition: TopicPartition, below: int) -> None:
        """Allow gaps in a log, before a batch is written that does not continue it. Recovery then
        does not report them as a loss. The record survives this process; after a power failure a
        gap is a loss.
        """
        if below > self.gaps_below.get(topic_partition, 0):
            gaps = {**self.gaps_below, topic_partition: below + _GAPS_AHEAD}
            checkpoint.write_offsets(self.disk, checkpoint.GAPS, gaps, sync=False)
            self.gaps_below = gaps

    def remove_later(self, path: str, due_ms: int) -> None:
        """Remove a renamed file or directory once ``due_ms`` has come."""
        self.removals.add(path, due_ms)


def _lacks_entries(segment: Segment, file: File) -> bool:
    """True if many batches follow the last one that is in the index, or that entry is wrong."""
    start, end = segment.index.last_position, segment.size_bytes
    if end - start <= INDEX_GAP_BYTES:
        return False
    batches = 0
    try:
        for _ in walk_headers(file, start, end):
            batches += 1
            if batches > INDEX_GAP_BATCHES:
                return True
    except FrameError:  # readers of a damaged batch get the error
        return start > 0 and not batches
    return False


def _nothing() -> None:
    """Default before a manager is set."""


def _nothing_cut(_: Mapping[TopicPartition, int]) -> None:
    """Default before a manager is set."""


def _nothing_noted(_: DiskError) -> None:
    """Default before a manager is set."""
