"""LogDirectory: what the logs of one directory share: the disk, its fence, open files, removals."""

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from tidemark.model.topics import TopicPartition
from tidemark.storage.disk import Disk, DiskError, DiskFullError, ExhaustedError, File

from broker.storage import checkpoint
from broker.storage.segment import Segment

if TYPE_CHECKING:
    from broker.storage.log import Log

_log: Final = logging.getLogger(__name__)
OPEN_FILES_MAX: Final = 1_024
"""Segments kept warm. Those with unsynced bytes stay open beyond it: a sync through another handle
might miss the error of an earlier write-back.
"""
_COOLED_AT_ONCE: Final = 8
_GAPS_AHEAD: Final = 1 << 20
"""Offsets: so that a compacted log does not have a checkpoint written for each of its gaps."""


class LogDamagedError(Exception):
    """Bytes that once were synced are not what was written. Answer for this partition only."""

    def __init__(self, path: str, position: int, reason: str) -> None:
        super().__init__(f"{path} at byte {position}: {reason}")
        self.path = path
        self.position = position
        self.reason = reason


class LogDirectory:
    """Shared by a LogManager and its logs."""

    __slots__ = (
        "_open_files_max",
        "_warm",
        "dirty",
        "disk",
        "fence_error",
        "gaps_below",
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
        """Wall time at the last tick: exact enough for delays of seconds."""
        self.save_log_starts: Callable[[], None] = _nothing
        """Writes the log-start checkpoint; set by the manager."""
        self.save_recovery_points: Callable[[], None] = _nothing
        """Writes the recovery-point checkpoint, durably; set by the manager."""
        self.logs_end: Callable[[Mapping[TopicPartition, int]], None] = _nothing_cut
        """Keeps checkpoints from naming what was cut off on purpose; set by the manager."""
        self.note_failure: Callable[[DiskError], None] = _nothing_noted
        """Remembers over restarts that the disk failed; set by the manager."""
        self.jitter = jitter
        """Given a maximum in ms, how much earlier a segment rolls: chance comes from outside."""
        self.fence_error: DiskError | None = None
        self.dirty: dict[Log, None] = {}
        """Logs with unsynced bytes, in the order in which they got them."""
        self.removals: list[tuple[int, str]] = []
        """(when, path): files whose name ends in .deleted, and directories in -delete."""
        self.gaps_below: dict[TopicPartition, int] = {}
        """Up to where a follower's log may lack offsets, its leader's being compacted."""
        self._warm: dict[Segment, None] = {}
        self._open_files_max = open_files_max

    def fence(self, error: DiskError) -> None:
        """Take no more writes. A full disk may heal; any other error stays until the next start.
        What the process has run out of is no fault of the disk, and only logged.
        """
        if isinstance(error, ExhaustedError):
            _log.warning("disk call refused, no log directory fenced: %s", error)
            return
        known = self.fence_error
        if known is None or (
            isinstance(known, DiskFullError) and not isinstance(error, DiskFullError)
        ):
            # A copy: a traceback would hold the failed file open, and with it the space it takes.
            self.fence_error = type(error)(error.path, error.reason)
            if not isinstance(error, DiskFullError):
                self.note_failure(self.fence_error)
            _log.error("log directory fenced: %s", self.fence_error)

    def raise_if_fenced(self) -> None:
        """Before anything that writes."""
        if self.fence_error is not None:
            raise type(self.fence_error)(self.fence_error.path, self.fence_error.reason)

    def warm(self, segment: Segment) -> File:
        """A segment's open file, with its indexes loaded."""
        file = segment.file
        if file is None:
            file = segment.warm(self.disk)
            self.note_warm(segment)
        return file

    def note_warm(self, segment: Segment) -> None:
        """Count a segment that is open now, and cool some of the oldest if they are too many."""
        self._warm[segment] = None
        if len(self._warm) > self._open_files_max:
            for old in list(self._warm)[:_COOLED_AT_ONCE]:
                del self._warm[old]
                if old.dirty or old is segment:
                    self._warm[old] = None
                else:
                    self.cool(old)

    def cool(self, segment: Segment) -> None:
        """Let go of a segment's file; it stays open while its index cannot be written."""
        try:
            segment.cool(self.disk)
        except DiskError as error:
            self._warm[segment] = None
            self.fence(error)

    def forget(self, segment: Segment) -> None:
        """A segment leaves the log: let go of its file."""
        self._warm.pop(segment, None)
        segment.file = None

    def allow_gaps(self, topic_partition: TopicPartition, below: int) -> None:
        """Before a batch that does not continue its log is written: recovery is not to take the gap
        for a loss. Survives this process; after a power failure it is a loss for all we know.
        """
        if below > self.gaps_below.get(topic_partition, 0):
            gaps = {**self.gaps_below, topic_partition: below + _GAPS_AHEAD}
            checkpoint.write_offsets(self.disk, checkpoint.GAPS, gaps, sync=False)
            self.gaps_below = gaps

    def remove_later(self, path: str, due_ms: int) -> None:
        """Remove a renamed file or directory once ``due_ms`` has come."""
        self.removals.append((due_ms, path))

    def remove_due(self, now_ms: int) -> None:
        """Remove what is due; a path that cannot be removed fences the directory."""
        due = [one for one in self.removals if one[0] <= now_ms]
        for count, (_, path) in enumerate(due):
            try:
                self.disk.remove(path)
            except ExhaustedError:  # they stay due
                self.removals = [one for one in self.removals if one not in due[:count]]
                raise
        if due:
            self.removals = [one for one in self.removals if one not in due]


def _nothing() -> None:
    """Before a manager is there."""


def _nothing_cut(_: Mapping[TopicPartition, int]) -> None:
    """Before a manager is there."""


def _nothing_noted(_: DiskError) -> None:
    """Before a manager is there."""
