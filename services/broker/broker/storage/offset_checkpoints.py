"""The offset checkpoints of one log directory: as a start found them, and as they were last
written.
"""

import logging
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from tidemark.model.topics import TopicPartition
from tidemark.storage.disk import Disk

from broker.storage import checkpoint
from broker.storage.checkpoint import CheckpointError, NewerVersionError
from broker.storage.compaction import CHECKPOINT_NAME

if TYPE_CHECKING:
    from broker.storage.log import Log

_log: Final = logging.getLogger(__name__)
_Offsets = dict[TopicPartition, int]


class OffsetCheckpoints:
    """Recovery points, high watermarks, log starts; a file that says so already is not written."""

    def __init__(self, disk: Disk, logs: Mapping[TopicPartition, "Log"]) -> None:
        """``logs``: those of the directory, as they are at each call."""
        self._disk = disk
        self._logs = logs
        self.recovery_points: _Offsets | None = None
        """None: not known, so that everything is scanned."""
        self.high_watermarks: _Offsets = {}
        self.log_starts: _Offsets = {}
        self.compacted: _Offsets | None = {}
        """As loaded: offsets below may be missing because they were compacted; None: not known."""
        self.problem: str | None = None
        """Why a checkpoint could not be used, or that the recovery points are not there: nothing
        that a process leaves behind, at whatever moment it ends.
        """

    def load(self) -> None:
        """Read all of them. Raises NewerVersionError, DiskError."""
        self.recovery_points = self.read(checkpoint.RECOVERY_POINTS)
        self.compacted = self.read(CHECKPOINT_NAME) if self._disk.exists(CHECKPOINT_NAME) else {}
        self.high_watermarks = self.read(checkpoint.HIGH_WATERMARKS) or {}
        self.log_starts = self.read(checkpoint.LOG_STARTS) or {}
        if self.recovery_points is None and self.problem is None:
            self.problem = f"{checkpoint.RECOVERY_POINTS} is missing"

    def read(self, path: str) -> _Offsets | None:
        """None without a usable checkpoint: more is scanned then, nothing is lost."""
        if not self._disk.exists(path):
            return None
        try:
            return checkpoint.read_offsets(self._disk, path)
        except NewerVersionError:
            raise
        except CheckpointError as error:
            _log.warning("checkpoint ignored: %s", error)
            self.problem = str(error)
            return None

    def named(self) -> Iterator[TopicPartition]:
        """Partitions that had a log with records when a checkpoint was written."""
        yield from self.recovery_points or ()
        yield from self.high_watermarks

    def forget(self, topic_partition: TopicPartition, gaps_below: _Offsets) -> None:
        """Checkpoints go by name: those of a deleted topic must not meet the log of another."""
        stale = (
            (checkpoint.RECOVERY_POINTS, self.recovery_points),
            (checkpoint.HIGH_WATERMARKS, self.high_watermarks),
            (checkpoint.LOG_STARTS, self.log_starts),
            (checkpoint.GAPS, gaps_below),
            (CHECKPOINT_NAME, self.read(CHECKPOINT_NAME)),  # compaction's, as it is now
        )
        for path, offsets in stale:
            if offsets and offsets.pop(topic_partition, None) is not None:
                checkpoint.write_offsets(self._disk, path, offsets, sync=False)

    def logs_end(self, ends: Mapping[TopicPartition, int]) -> None:
        """Logs end there by right: a high watermark beyond shows no loss. Raises DiskError."""
        marks = self.high_watermarks
        lower = {one: end for one, end in ends.items() if end < marks.get(one, 0)}
        if lower:
            self.save_high_watermarks({**marks, **lower})

    def save_recovery_points(self, *, sync: bool) -> None:
        """Below them everything is on disk. Raises DiskError."""
        points = {one: log.recovery_point for one, log in self._logs.items() if log.recovery_point}
        if points != self.recovery_points:
            checkpoint.write_offsets(self._disk, checkpoint.RECOVERY_POINTS, points, sync=sync)
            self.recovery_points = points

    def save_high_watermarks(self, high_watermarks: Mapping[TopicPartition, int]) -> None:
        """Raises DiskError."""
        marks = {one: mark for one, mark in high_watermarks.items() if mark > 0}
        if marks != self.high_watermarks:
            checkpoint.write_offsets(self._disk, checkpoint.HIGH_WATERMARKS, marks, sync=False)
            self.high_watermarks = marks

    def save_log_starts(self) -> None:
        """Only those that the first segment's name does not show. Raises DiskError."""
        logs = self._logs.items()
        starts = {one: log.log_start for one, log in logs if log.log_start > log.first_base_offset}
        if starts == self.log_starts:
            return
        # A start that a crash took back must not come again: it would hide what is written since.
        sync = any(log.log_start < self.log_starts.get(one, 0) for one, log in logs)
        checkpoint.write_offsets(self._disk, checkpoint.LOG_STARTS, starts, sync=sync)
        self.log_starts = starts
