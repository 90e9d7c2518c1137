"""The scrubber reads the whole log again at a bounded rate and compares CRCs, to find bit flips
before a reader does.

Clients check the CRC of what they fetch, but a cold segment may not be fetched for weeks, and its
damage is best found while other replicas are whole. The plan is pure; ``scrub_range`` belongs in a
thread: it sleeps in pread and computes CRCs over large views, both without the GIL.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from tidemark.model.topics import TopicPartition
from tidemark.storage.batch_walk import Damage, FrameError, ReadableFile, walk_batches

from broker.storage.segment import SegmentView, early_end

RANGE_BYTES: Final = 4 * 1024 * 1024
"""What one call to ``scrub_range`` covers, unless one batch is larger."""
ANYWHERE: Final = -1
"""Compaction may have dropped batches at a segment's end."""
TASK_BYTES_MIN: Final = 256 * 1024
"""What a task counts as at least: opening a file and a thread cost as much, and a broker with only
small segments would check them without a pause.
"""


class ScrubSegment(NamedTuple):
    """One segment as far as it may be checked: rolled ones whole, the active one below the recovery
    point.

    Beyond the recovery point a torn batch is no damage: recovery after a crash deals with it.
    """

    topic_partition: TopicPartition
    base_offset: int
    path: str
    end: int
    """Position in bytes, a batch boundary."""
    end_offset: int = ANYWHERE
    """Where the last batch must end: the base offset of the next segment."""

    @classmethod
    def of(cls, topic_partition: TopicPartition, view: SegmentView) -> "ScrubSegment":
        """A rolled segment."""
        end_offset = ANYWHERE if view.may_end_early else view.end_offset
        return cls(topic_partition, view.base_offset, view.path, view.size_bytes, end_offset)


class ScrubTask(NamedTuple):
    """The next piece to check: from ``start`` (a batch boundary, where ``offset`` or a later one is
    expected) on.
    """

    segment: ScrubSegment
    start: int
    offset: int
    length_max: int


class ScrubOutcome(NamedTuple):
    """How far a task came, and the first damage in it; behind that nothing was checked."""

    position: int
    offset: int
    damage: Damage | None


def scrub_range(file: ReadableFile, task: ScrubTask) -> ScrubOutcome:
    """Read at least ``length_max`` bytes, to a batch boundary or the segment's end, and check every
    batch.

    ``file``: the segment's own handle, taken when the task was planned; what compaction or
    retention puts in its place meanwhile is another file. Raises DiskError: a read that fails is
    the log directory's trouble, not damage.
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
    """Plans the round trip over all segments of a broker, by topic, partition and base offset;
    starts again at the end.

    Use: ``next_task``, ``scrub_range`` in a thread, ``finished``; one task at a time. Times in ms,
    monotonic.
    """

    def __init__(self, *, bytes_per_second: int, range_bytes: int = RANGE_BYTES) -> None:
        assert bytes_per_second > 0
        assert range_bytes > 0
        self.bytes_per_second = bytes_per_second
        self.rounds = 0
        """Complete round trips."""
        self._range_bytes = range_bytes
        self._due_at = 0
        # The segment in progress, as it was planned, and how far it was checked.
        self._current: ScrubSegment | None = None
        self._position = 0
        self._offset = 0
        self._confirms = False

    def next_task(self, segments: Sequence[ScrubSegment], now_ms: int) -> ScrubTask | None:
        """What to check now, given what there is now; None when the rate says wait or there is
        nothing.
        """
        if now_ms < self._due_at:
            return None
        segment = self._pick(sorted(segment for segment in segments if segment.end > 0))
        if segment is None:
            return None
        length_max = segment.end if self._confirms else self._range_bytes
        return ScrubTask(segment, self._position, self._offset, length_max)

    def finished(self, task: ScrubTask, outcome: ScrubOutcome, now_ms: int) -> Damage | None:
        """Take the outcome; returns damage that is certain.

        Between two tasks compaction may have put another file under the same name, so that the
        second one began in the middle of a batch. Damage that was not found in one sweep from the
        segment's start is therefore looked for again, at once.
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

    def _pick(self, ordered: Sequence[ScrubSegment]) -> ScrubSegment | None:
        """The segment in progress while something of it is left, else the one behind it, else the
        first.
        """
        current = self._current
        if current is not None:
            name = _name(current)
            for segment in ordered:
                if _name(segment) == name and segment.end < self._position:
                    self._go_to(segment)  # another file by now
                if _name(segment) == name and segment.end > self._position:
                    return segment
                if _name(segment) > name:
                    return self._go_to(segment)
            self.rounds += 1
        self._current = None
        return self._go_to(ordered[0]) if ordered else None

    def _go_to(self, segment: ScrubSegment, *, confirms: bool = False) -> ScrubSegment:
        self._current = segment
        self._position, self._offset, self._confirms = 0, segment.base_offset, confirms
        return segment


def _name(segment: ScrubSegment) -> tuple[TopicPartition, int]:
    return segment.topic_partition, segment.base_offset
