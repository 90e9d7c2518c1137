"""The scrubber reads the whole log at a bounded rate and checks CRCs, to find bit flips before a
reader does.

Clients check the CRC of what they fetch, but a cold segment may not be fetched for weeks, and its
damage is best found while other replicas are complete. The plan is pure. ``scrub_range`` runs in a
thread: it waits in pread and computes CRCs over large views, both without the GIL.
"""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple, Protocol

from tidemark.model.topics import TopicPartition
from tidemark.storage.batch_walk import Damage, FrameError, ReadableFile, walk_batches

from broker.storage.segment import SegmentView, early_end

RANGE_BYTES: Final = 4 * 1024 * 1024
"""Bytes read by one call of ``scrub_range``, unless one batch is larger."""
ANYWHERE: Final = -1
"""Unknown end offset: compaction may have removed batches at a segment's end."""
TASK_BYTES_MIN: Final = 256 * 1024
"""Least size that a task is charged for. Opening a file and a thread cost as much, and a broker
with only small segments would check them without a pause.
"""
PASS_PAUSE_MS: Final = 1_000
"""Pause after each pass: walking all partitions takes some milliseconds of the event loop."""


class ScrubSegment(NamedTuple):
    """Part of one segment that may be checked: all of a rolled one, the active one below the
    recovery point.

    Beyond the recovery point a torn batch is not damage: recovery after a crash handles it.
    """

    topic_partition: TopicPartition
    base_offset: int
    path: str
    end: int
    """Position in bytes, a batch boundary."""
    end_offset: int = ANYWHERE
    """End offset of the last batch: the base offset of the next segment."""

    @classmethod
    def of(cls, topic_partition: TopicPartition, view: SegmentView) -> "ScrubSegment":
        """Create the entry of a rolled segment."""
        end_offset = ANYWHERE if view.may_end_early else view.end_offset
        return cls(topic_partition, view.base_offset, view.path, view.size_bytes, end_offset)


class Logs(Protocol):
    """Logs as they are when a task is planned."""

    def partitions(self) -> Iterable[TopicPartition]:
        """Return all partitions."""
        ...

    def segments_of(self, topic_partition: TopicPartition) -> Iterable[ScrubSegment]:
        """Return what may be checked of one partition, in order; nothing if it is gone."""
        ...


class ScrubTask(NamedTuple):
    """Next range to check, from ``start`` on (a batch boundary, at ``offset`` or later)."""

    segment: ScrubSegment
    start: int
    offset: int
    length_max: int


class ScrubOutcome(NamedTuple):
    """End of the checked range, and the first damage in it, where the check stopped."""

    position: int
    offset: int
    damage: Damage | None


def scrub_range(file: ReadableFile, task: ScrubTask) -> ScrubOutcome:
    """Read at least ``length_max`` bytes, to a batch boundary or the segment's end, and check every
    batch.

    ``file``: the segment's own handle, taken when the task was planned; a replacement by compaction
    or retention is another file. Raises DiskError: a failed read concerns the log directory, and is
    not damage.
    """
    segment, position, offset = task.segment, task.start, task.offset
    try:
        for walked in walk_batches(file, task.start, segment.end):
            header = walked.header
            problem = None
            if not walked.crc_ok:
                problem = "CRC does not match"
            elif header.base_offset < offset or header.last_offset_delta < 0:
                # Outside the CRC.
                problem = (
                    f"offsets {header.base_offset}..{header.last_offset} do not follow {offset - 1}"
                )
            if problem is not None:
                damage = Damage(segment.topic_partition, segment.path, position, offset, problem)
                return ScrubOutcome(position, offset, damage)
            position, offset = position + header.size_bytes, header.last_offset + 1
            if position - task.start >= task.length_max:
                break
        if position >= segment.end and ANYWHERE != segment.end_offset != offset:
            raise FrameError(position, early_end(offset, segment.end_offset))
    except FrameError as problem:
        damage = Damage(segment.topic_partition, segment.path, position, offset, problem.what)
        return ScrubOutcome(position, offset, damage)
    return ScrubOutcome(position, offset, None)


class Scrubber:
    """Plan of repeated passes over all segments of a broker, by topic, partition and base offset.

    Use: ``next_task``, ``scrub_range`` in a thread, ``finished``; one task at a time. Times in ms,
    monotonic.
    """

    def __init__(self, *, bytes_per_second: int, range_bytes: int = RANGE_BYTES) -> None:
        assert bytes_per_second > 0
        assert range_bytes > 0
        self.bytes_per_second = bytes_per_second
        self.rounds = 0
        """Number of complete passes."""
        self._range_bytes = range_bytes
        self._due_at = 0
        self._left: Iterator[TopicPartition] | None = None
        """Partitions that this pass has not reached yet."""
        # The segment in progress, as it was planned, and how far it was checked.
        self._current: ScrubSegment | None = None
        self._position = 0
        self._offset = 0
        self._confirms = False

    def next_task(self, logs: Logs, now_ms: int) -> ScrubTask | None:
        """Return the range to check now; None if the rate requires a pause, or after a pass: see
        ``pause_ms``.
        """
        if now_ms < self._due_at:
            return None
        if self._left is None:
            self._left = iter(sorted(logs.partitions()))
        segment = self._pick(logs, self._left)
        if segment is None:
            self._left = None
            self._due_at = now_ms + PASS_PAUSE_MS
            return None
        length_max = segment.end if self._confirms else self._range_bytes
        return ScrubTask(segment, self._position, self._offset, length_max)

    def pause_ms(self, now_ms: int) -> int:
        """Return the time until the next task."""
        return max(0, self._due_at - now_ms)

    def finished(self, task: ScrubTask, outcome: ScrubOutcome, now_ms: int) -> Damage | None:
        """Store the outcome; return damage that is confirmed.

        Between two tasks compaction may have put another file in place under the same name, so that
        the second task began in the middle of a batch. So damage that was not found in one pass
        from the segment's start is checked again at once.
        """
        checked_bytes = max(outcome.position - task.start, min(TASK_BYTES_MIN, self._range_bytes))
        self._due_at = now_ms + checked_bytes * 1000 // self.bytes_per_second
        if outcome.damage is not None and task.start > 0:
            self._go_to(task.segment, confirms=True)
            self._due_at = now_ms
            return None
        self._position, self._offset, self._confirms = outcome.position, outcome.offset, False
        if outcome.damage is not None:
            self._position = task.segment.end
        return outcome.damage

    def _pick(self, logs: Logs, left: Iterator[TopicPartition]) -> ScrubSegment | None:
        """Return the segment in progress while part of it is left, or the next one; None at the end
        of the pass.
        """
        current = self._current
        if current is not None:
            for segment in logs.segments_of(current.topic_partition):
                if segment.base_offset == current.base_offset:
                    if segment.end < self._position:
                        self._go_to(segment)  # it was replaced by another file
                    if segment.end > self._position:
                        return segment
                elif segment.base_offset > current.base_offset and segment.end > 0:
                    return self._go_to(segment)
        for topic_partition in left:
            for segment in logs.segments_of(topic_partition):
                if segment.end > 0:
                    return self._go_to(segment)
        self.rounds += self._current is not None
        self._current = None
        return None

    def _go_to(self, segment: ScrubSegment, *, confirms: bool = False) -> ScrubSegment:
        self._current = segment
        self._position, self._offset, self._confirms = 0, segment.base_offset, confirms
        return segment
