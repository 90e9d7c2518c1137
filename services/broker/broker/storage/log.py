"""Log: one partition's records on disk: append, read, roll, truncate, retain, sync.

Its state is in parts: ``SegmentMap`` (where bytes are), ``SegmentChain`` (files, and what is not
synced), ``EpochCheckpoint``, ``ProducerHistory`` and ``LogHealth`` (damage). The log keeps its two
ends, and the order of the steps that must survive a crash.
"""

import contextlib
from collections.abc import Generator, Sequence

from tidemark.codec.record_batch import Buffer
from tidemark.model.ids import TopicId
from tidemark.model.topic_configs import TopicConfig
from tidemark.model.topics import TopicPartition
from tidemark.storage.batch_walk import FrameError
from tidemark.storage.disk import DiskError, DiskFullError

from broker.core.leader_epochs import LeaderEpochs
from broker.core.producers import ProducerTable
from broker.storage.directory import LogDamagedError, LogDirectory
from broker.storage.epoch_checkpoint import EpochCheckpoint
from broker.storage.flush import FlushRound, LogSync, UnsyncedBytes
from broker.storage.log_health import LogHealth
from broker.storage.producer_history import ProducerHistory
from broker.storage.recovery import OFFSET_MAX, Recovered
from broker.storage.retention import removable_count, roll_ms
from broker.storage.segment import RELATIVE_OFFSET_MAX, AnyAppend, AppendInfo, Segment, SegmentView
from broker.storage.segment_chain import SegmentChain
from broker.storage.segment_map import EMPTY_READ, LogRead, LogSlice, OffsetOutOfRangeError
from broker.storage.time_search import SearchedTo

__all__ = ("AppendInfo", "Log", "LogDamagedError", "LogRead", "LogSlice", "OffsetOutOfRangeError")


class Log:
    """One replica's log.

    Invariant: log_start <= log_end, recovery_point <= log_end; the last segment is the active one;
    segment base offsets strictly increase. Synchronous; only ``FlushRound.run`` leaves the loop.
    """

    __slots__ = (
        "__weakref__",
        "_chain",
        "_epochs",
        "_segments",
        "_shared",
        "config",
        "cut_to",
        "directory",
        "health",
        "history",
        "is_future",
        "log_end",
        "log_start",
        "topic_id",
        "topic_partition",
        "unsynced",
    )

    def __init__(
        self,
        shared: LogDirectory,
        topic_partition: TopicPartition,
        topic_id: TopicId,
        *,
        config: TopicConfig,
        recovered: Recovered,
        recovery_point: int,
        now_ms: int,
    ) -> None:
        self._shared = shared
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.config = config
        self.log_start = recovered.log_start
        """First offset that a reader may ask for."""
        self.log_end = recovered.log_end
        """Exclusive: the offset that the next record gets."""
        self.cut_to = OFFSET_MAX
        """Lowest end to which the log was cut, since a copy of it was last compared with it."""
        self.is_future = False
        """True for a copy that is to take the place of a log in another directory."""
        self.unsynced = UnsyncedBytes(min(recovery_point, self.log_end), now_ms)
        self._chain = SegmentChain(shared, recovered, self.unsynced, self._mark_dirty)
        self._segments = self._chain.map
        self.directory = self._chain.directory
        self.health = LogHealth(shared, self.directory, self._segments, recovered)
        self._epochs = EpochCheckpoint(shared.disk, self.directory, recovered.epochs, self.health)
        self.history = ProducerHistory(shared, self._segments, self.health, recovered)
        self._settle(recovered, now_ms)

    def _settle(self, recovered: Recovered, now_ms: int) -> None:
        """Keep on disk what recovery has rebuilt. A full disk does not stop the start: the log
        starts fenced, and the next start rebuilds it again.
        """
        with contextlib.suppress(DiskFullError):
            self.history.index_aborted()
        if recovered.epochs_changed:
            with contextlib.suppress(DiskFullError):
                self._epochs.write()
        self._chain.settle(recovered, now_ms, self.config.file_delete_delay_ms)

    def _mark_dirty(self) -> None:
        self._shared.dirty[self] = None

    # -- state

    @property
    def epochs(self) -> LeaderEpochs:
        """Leader epochs of the records."""
        return self._epochs.epochs

    @property
    def producers(self) -> ProducerTable:
        """Producers, as the records have made them."""
        return self.history.table

    @property
    def damage(self) -> str | None:
        """Description of the damage to synced bytes; None if none is known."""
        return self.health.damage

    @property
    def size_bytes(self) -> int:
        """Size of all segments."""
        return self._chain.size_bytes

    @property
    def is_one_segment(self) -> bool:
        """True if the active segment is the only one."""
        return len(self._segments.segments) == 1

    @property
    def first_base_offset(self) -> int:
        """Base offset of the oldest segment."""
        return self._segments.segments[0].base_offset

    @property
    def synced_end(self) -> int:
        """Exclusive: every record below it is on disk."""
        return self.unsynced.synced_end

    @property
    def has_unsynced_rolled(self) -> bool:
        """True if a sealed segment has unsynced bytes."""
        return self.unsynced.has_other_than(self._segments.active)

    @property
    def recovery_point(self) -> int:
        """Offset from which on recovery distrusts bytes: the synced end."""
        return self.unsynced.synced_end

    def update_config(self, config: TopicConfig) -> None:
        """Apply the topic's new configuration."""
        self.config = config
        self._segments.active.bytes_max = 0  # the next append arms it

    def segments(self) -> tuple[SegmentView, ...]:
        """All segments, oldest first; the last one is active."""
        return self._segments.views(self.log_end)

    # -- append

    def append(self, buffers: Sequence[Buffer], info: AnyAppend, now_ms: int) -> None:
        """Write one batch at the end, in one call. Raises DiskError, with nothing of it in the log.

        The directory is fenced then, unless it raises ExhaustedError: until space returns after
        DiskFullError, else until the next start. A follower's batch may begin beyond the end: its
        leader's log is compacted.
        """
        first, last, max_timestamp, leader_epoch, size_bytes = info[:5]
        assert first >= self.log_end, (first, self.log_end)
        segment = self._segments.active
        position = segment.size_bytes
        if (
            not position
            or segment.file is None
            or self._shared.fence_error is not None
            or position + size_bytes > segment.bytes_max
            or max_timestamp > segment.roll_after_timestamp
            or last - segment.base_offset > RELATIVE_OFFSET_MAX
            or leader_epoch != self._epochs.written
            or first > self.log_end
        ):
            segment = self._prepare(info, now_ms)
        self._chain.write(segment, buffers, size_bytes)
        self._took(segment, info, now_ms)

    def append_run(self, records: memoryview, infos: Sequence[AnyAppend], now_ms: int) -> int:
        """Append the first of these batches, and with it those behind it that need only be written.
        ``records`` has them one behind the other. Return how many. Raises as ``append``.
        """
        segment, count = self._segments.active, len(infos)
        if count > 1:
            count = segment.fitting(infos, self.log_end, self._epochs.written, self.config)
        if count < 2 or self._shared.fence_error is not None:
            self.append((records[: infos[0].size_bytes],), infos[0], now_ms)
            return 1
        size_bytes = sum([info.size_bytes for info in infos[:count]])
        self._chain.write(segment, (records[:size_bytes],), size_bytes)
        for info in infos[:count]:
            self._took(segment, info, now_ms)
        return count

    def _took(self, segment: Segment, info: AnyAppend, now_ms: int) -> None:
        first, last, max_timestamp, _, size_bytes = info[:5]
        self._segments.recent.append((first, last, segment.size_bytes))
        segment.grew(first, max_timestamp, size_bytes, self.config)
        self.log_end = last + 1
        if not segment.dirty:
            self._chain.became_dirty(segment, now_ms)

    def _prepare(self, info: AnyAppend, now_ms: int) -> Segment:
        """Return the segment to append to, on the slow path of an append."""
        self._shared.raise_if_fenced()
        self.health.raise_if_tail_lost()
        if info.leader_epoch != self._epochs.written:
            self.assign_epoch(info.leader_epoch, info.first)
        segment = self._segments.active
        with self.health.guarded():
            if info.first > self.log_end:
                self._shared.allow_gaps(self.topic_partition, info.last)
            self._shared.warm(segment)
            self._chain.arm(segment, self.config)
        if segment.size_bytes and (
            segment.size_bytes + info.size_bytes > segment.bytes_max
            or info.max_timestamp > segment.roll_after_timestamp
            or info.last - segment.base_offset > RELATIVE_OFFSET_MAX
        ):
            self.roll(now_ms)
            segment = self._segments.active
        if not segment.size_bytes:
            segment.first_timestamp = info.max_timestamp
            self._chain.arm(segment, self.config)
        return segment

    # -- read

    def read(self, offset: int, bytes_max: int, *, end: int) -> LogRead:
        """Read whole batches from the one that holds ``offset`` on, up to offset ``end``
        (exclusive), which is a batch boundary, the high watermark or the log's end.

        At most ``bytes_max`` bytes, unless the first batch alone is longer. Empty from ``end`` on.
        Raises OffsetOutOfRangeError, LogDamagedError, DiskError.
        """
        if not self.log_start <= offset <= self.log_end:
            raise OffsetOutOfRangeError(offset, self.log_start, self.log_end)
        if offset >= end:
            return EMPTY_READ
        try:
            return self._segments.read(offset, bytes_max, end, self.log_end)
        except FrameError as error:
            self.health.raise_damaged(error, offset)

    def batch_for_timestamp(
        self, timestamp: int, *, end: int, start: int | None = None
    ) -> LogSlice | SearchedTo | None:
        """Return the first batch with a timestamp >= ``timestamp``, in [``start`` or log start,
        ``end``), or how far the search got. Where no record from the log start on has it, go on.
        """
        first = self.log_start if start is None else max(start, self.log_start)
        with self.health.guarded(first):
            return self._segments.next_at_or_after(timestamp, first, end)

    def max_timestamp_batch(self, *, end: int) -> Generator[None, None, LogSlice | None]:
        """Return the first batch that has the largest timestamp of all below ``end``, in parts."""
        with self.health.guarded():
            return (yield from self._segments.max_timestamp_batch(self.log_start, end))

    # -- leader epochs and transactions

    def assign_epoch(self, leader_epoch: int, start_offset: int) -> None:
        """Begin a leader epoch. It is in the checkpoint before any of its records is written."""
        self._epochs.assign(leader_epoch, start_offset)

    def index_aborted(self) -> None:
        """Index the transactions that a marker just appended has aborted. Raises DiskError."""
        with self.health.changing(begun=True):
            self.history.index_aborted()

    # -- roll

    def roll(self, now_ms: int) -> None:
        """Seal the active segment and begin the next, unless it is empty. Raises DiskError."""
        if not self._segments.active.size_bytes:
            return
        with self.health.changing(opens=self._segments.active):
            self._chain.seal_active()
            self.history.snapshot(self.log_end, self.unsynced.saved_end)
            fresh = self._chain.new_segment(self.log_end, now_ms)
        self._chain.roll_to(fresh, now_ms)

    def maybe_roll_by_time(self, now_ms: int) -> bool:
        """Roll the active segment if it began segment.ms ago by the broker's clock, even if nothing
        is appended. Return True if it was rolled.
        """
        active, longest = self._segments.active, roll_ms(self.config, self._shared.jitter)
        if not active.size_bytes or now_ms - active.created_ms <= longest:
            return False
        self.roll(now_ms)
        return True

    # -- truncate

    def truncate_to(self, offset: int) -> None:
        """Make ``offset`` the log's end; a batch that reaches beyond it is cut whole. Slices handed
        out before and cut by this are void (``File.truncated_to``). Until the next flush round a
        power failure may bring back what was cut: replicas compare epochs again.
        """
        if offset >= self.log_end:
            return
        self._shared.raise_if_fenced()
        if offset < self.first_base_offset:
            self.truncate_fully_and_start_at(offset)
            return
        segments = self._segments
        kept = segments.index_of(offset) + 1
        last = segments.segments[kept - 1]
        with self.health.changing(offset, opens=last):
            position, end = segments.cut_point(last, offset)
            self._cut(kept, position, end)

    def _cut(self, kept: int, position: int, end: int) -> None:
        """Keep so many segments, the last of them up to ``position``, so that the log ends at
        ``end``. Raises DiskError, FrameError.
        """
        if end < self.recovery_point:
            # Durable before anything is cut: recovery must not miss bytes that had to go.
            self.unsynced.cut_to(end)
            self._shared.save_recovery_points()
        last = self._chain.cut(kept, position, end, self.config)
        self._ends_at(end)
        self._chain.arm(last, self.config)
        if end < self.log_start:
            self.log_start = end
            self._shared.save_log_starts()
        if not last.dirty:
            self._chain.became_dirty(last, self._shared.now_ms)

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Remove all records; the next one gets ``offset``."""
        self._shared.raise_if_fenced()
        with self.health.changing(), self.history.emptied(offset):
            self.unsynced.cut_to(min(offset, self.log_start))
            self._shared.save_recovery_points()
            self._chain.empty(offset, self.config)
            self.log_start = offset
            self._ends_at(offset)
            self.unsynced.synced_end = offset
            self.health.clear()
            self._shared.save_log_starts()

    def repair(self) -> None:
        """Cut the log before its damage, so that a follower copies the rest from its leader; empty
        it if nothing before the damage can be kept. Raises DiskError.
        """
        self._shared.raise_if_fenced()
        at = self.health.damage_at
        try:
            if at > self.log_start:
                self._cut_before(at)
            else:
                self.truncate_fully_and_start_at(0)
        except LogDamagedError:
            self.truncate_fully_and_start_at(0)
        self.health.clear()

    def _cut_before(self, at: int) -> None:
        """Cut the log behind the last batch that can be read before the damage at ``at``."""
        if at >= self.log_end:
            return
        kept = self._segments.index_of(at) + 1
        with self.health.changing(at, opens=self._segments.segments[kept - 1]):
            try:
                position, end = self._segments.cut_point(self._segments.segments[kept - 1], at)
            except FrameError as error:
                position, end = error.position, at
            self._cut(kept, position, end)

    def _ends_at(self, end: int) -> None:
        """Drop all that refers to offsets from the new end on, also on a disk that fills up."""
        self.log_end = end
        self.cut_to = min(self.cut_to, end)
        with self.health.unless_full():
            self._shared.logs_end({self.topic_partition: end})
        if end <= self.health.damage_at:
            self.health.clear()
        self.unsynced.cut_to(end)
        self._epochs.cut_to(end)
        self.history.cut_to(end)

    # -- removal of old records

    def advance_log_start(self, offset: int) -> bool:
        """Let the log start at ``offset``. Return False if it starts there or later already.

        On return it is in the log-start checkpoint; retention removes the bytes by segment.
        """
        assert offset <= self.log_end, (offset, self.log_end)
        if offset <= self.log_start:
            return False
        self._shared.raise_if_fenced()
        # The start first: epochs of records that a power failure brings back must not be lost.
        before, self.log_start = self.log_start, offset
        try:
            self._shared.save_log_starts()
        except DiskError as error:
            self.log_start = before
            self._shared.fence(error)
            raise
        with contextlib.suppress(DiskError):  # fenced; a start reads the epochs from the batches
            self._starts_at(offset)
        return True

    def _starts_at(self, offset: int) -> None:
        self.log_start = offset
        self._epochs.start_at(offset)

    def apply_retention(self, now_ms: int, high_watermark: int) -> list[SegmentView]:
        """Remove the segments that time, size or the log start let go. Return them."""
        views = self.segments()
        count = removable_count(
            views,
            self.config,
            now_ms=now_ms,
            log_start=self.log_start,
            high_watermark=high_watermark,
        )
        if not count:
            return []
        if count == len(views):
            self.roll(now_ms)
        self.history.outlive(views[count - 1].end_offset, self.unsynced.saved_end)
        self._chain.remove_first(count, self.config)
        if self.first_base_offset > self.log_start:
            self._starts_at(self.first_base_offset)
        return list(views[:count])

    def swap_segments(self, old: Sequence[int], cleaned_path: str) -> bool:
        """Put a compacted segment in the place of the ones with these base offsets; crash safe.

        ``cleaned_path``: ``<stem>.log.cleaned``, synced, with the first one's base. False, with the
        cleaned files removed, if the log changed meanwhile or some of these are not synced yet:
        recovery takes a gap beyond the recovery point for a loss.
        """
        if not self._chain.may_swap(old, cleaned_path):
            return False
        with self.health.changing():
            self._shared.save_recovery_points()
            fresh = self._chain.swap_files(old, cleaned_path, self.config)
        self._segments.swap(old, fresh)
        return True

    # -- change of places

    def adopt(self, log: "Log") -> None:
        """Take over leader epochs and producers of a log with the same records: its partition
        refers to them. Raises DiskError.
        """
        self._epochs.epochs = log.epochs
        self._epochs.write()
        self.history.table = log.history.table

    def moved_to(self, directory: str) -> None:
        """Note that the directory of the log was renamed."""
        self._shared.removals.renamed(self.directory, directory)
        self.directory = directory
        self._chain.moved_to(directory)
        self._epochs.moved_to(directory)
        self.history.moved_to(directory)
        self.health.moved_to(directory)

    # -- sync and close

    def expect_room(self) -> None:
        """Raise ExhaustedError unless an append and the writes that must follow it are possible."""
        self._shared.disk.expect_room()

    def sync_put_off(self, sync: LogSync) -> None:
        """Note that a round ended before it came to this log: the next one syncs it."""
        self._chain.put_off(sync.segments, sync.directories)

    def files_changed(self) -> None:
        """Note that a file of the log was renamed: the next round syncs the directory too."""
        self._chain.files_changed()

    def begin_sync(self) -> LogSync:
        """Return the log's part of a flush round, which puts it on disk up to its present end."""
        with self.health.guarded():
            return LogSync(self, *self._chain.begin_sync(self.log_end))

    def close(self, *, clean: bool) -> None:
        """Close every file; ``clean``: all of it on disk, the producers in a snapshot."""
        if clean:
            self.history.snapshot(self.log_end, self.unsynced.saved_end)
            FlushRound(self._shared.disk, (self.begin_sync(),)).run_or_raise()
            self.unsynced.finish()
        self._chain.close(clean=clean)
        self._shared.dirty.pop(self, None)
