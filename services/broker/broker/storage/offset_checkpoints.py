"""Offset checkpoints of one log directory, as loaded at the start and as last written."""

import logging
from collections.abc import Iterator, Mapping
from itertools import chain
from types import MappingProxyType
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
    """Recovery points, high watermarks and log starts; a file without changes is not written."""

    def __init__(
        self,
        disk: Disk,
        logs: Mapping[TopicPartition, "Log"],
        futures: Mapping[TopicPartition, "Log"] = MappingProxyType({}),
    ) -> None:
        """Create checkpoints without content; ``logs`` and ``futures`` (future logs) are the
        directory's live mappings, which have no partition in common.
        """
        self._disk = disk
        self._logs = logs
        self._futures = futures
        self.recovery_points: _Offsets | None = None
        """None: unknown, so everything is scanned."""
        self.high_watermarks: _Offsets = {}
        self.log_starts: _Offsets = {}
        self.compacted: _Offsets | None = {}
        """As loaded: offsets below may be missing through compaction; None: unknown."""
        self.problem: str | None = None
        """Reason why a checkpoint could not be used, or missing recovery points: a state that no
        process leaves behind, whenever it ends.
        """

    def load(self) -> None:
        """Read all checkpoints. Raises NewerVersionError, DiskError."""
        self.recovery_points = self.read(checkpoint.RECOVERY_POINTS)
        self.compacted = self.read(CHECKPOINT_NAME) if self._disk.exists(CHECKPOINT_NAME) else {}
        self.high_watermarks = self.read(checkpoint.HIGH_WATERMARKS) or {}
        self.log_starts = self.read(checkpoint.LOG_STARTS) or {}
        if self.recovery_points is None and self.problem is None:
            self.problem = f"{checkpoint.RECOVERY_POINTS} is missing"

    def read(self, path: str) -> _Offsets | None:
        """Return a checkpoint; None if it is unusable, which costs a longer scan."""
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
        """Return the partitions that had a log with records when a checkpoint was written."""
        yield from self.recovery_points or ()
        yield from self.high_watermarks

    def _all(self) -> Iterator[tuple[TopicPartition, "Log"]]:
        return chain(self._logs.items(), self._futures.items())

    def forget(self, topic_partition: TopicPartition, gaps_below: _Offsets) -> None:
        """Remove a partition, since checkpoints go by name: those of a deleted topic must not apply
        to the log of another.
        """
        stale = (
            (checkpoint.RECOVERY_POINTS, self.recovery_points),
            (checkpoint.HIGH_WATERMARKS, self.high_watermarks),
            (checkpoint.LOG_STARTS, self.log_starts),
            (checkpoint.GAPS, gaps_below),
            (CHECKPOINT_NAME, self.read(CHECKPOINT_NAME)),  # compaction's, as it is now
        )
        for path, offsets in stale:
            if offsets and topic_partition in offsets:
                left = {one: offset for one, offset in offsets.items() if one != topic_partition}
                checkpoint.write_offsets(self._disk, path, left, sync=False)
                del offsets[topic_partition]  # last: a full disk leaves it to the next try

    def logs_end(self, ends: Mapping[TopicPartition, int]) -> None:
        """Lower high watermarks above these log ends, after a deliberate truncation: they would
        look like a loss. Raises DiskError.
        """
        marks = self.high_watermarks
        lower = {one: end for one, end in ends.items() if end < marks.get(one, 0)}
        if lower:
            self.save_high_watermarks({**marks, **lower})

    def save_recovery_points(self, *, sync: bool) -> None:
        """Write recovery points; everything below them is on disk. Raises DiskError."""
        points = {one: log.recovery_point for one, log in self._all() if log.recovery_point}
        if points != self.recovery_points:
            checkpoint.write_offsets(self._disk, checkpoint.RECOVERY_POINTS, points, sync=sync)
            self.recovery_points = points
            for one, log in self._all():
                log.unsynced.saved_end = points.get(one, 0)

    def save_high_watermarks(self, high_watermarks: Mapping[TopicPartition, int]) -> None:
        """Write high watermarks. Raises DiskError."""
        marks = {one: mark for one, mark in high_watermarks.items() if mark > 0}
        if marks != self.high_watermarks:
            checkpoint.write_offsets(self._disk, checkpoint.HIGH_WATERMARKS, marks, sync=False)
            self.high_watermarks = marks

    def save_log_starts(self) -> None:
        """Write the log starts that differ from the first segment's name. Raises DiskError."""
        starts = {
            one: log.log_start for one, log in self._all() if log.log_start > log.first_base_offset
        }
        if starts == self.log_starts:
            return
        # A start that a crash took back must not return: it would hide records written since.
        sync = any(log.log_start < self.log_starts.get(one, 0) for one, log in self._all())
        checkpoint.write_offsets(self._disk, checkpoint.LOG_STARTS, starts, sync=sync)
        self.log_starts = starts
