"""Log: one partition's records on disk: append, read, roll, truncate, retain, sync."""

import contextlib
from collections.abc import Sequence
from typing import Final

from tidemark.codec.record_batch import Buffer
from tidemark.model.ids import TopicId
from tidemark.model.topic_configs import TopicConfig
from tidemark.model.topics import TopicPartition
from tidemark.storage.batch_walk import FrameError
from tidemark.storage.disk import DiskError, DiskFullError, File

from broker.storage import checkpoint
from broker.storage.directory import LogDamagedError, LogDirectory
from broker.storage.flush import FlushRound, LogSync, UnsyncedBytes
from broker.storage.readable_log import ReadableLog
from broker.storage.recovery import OFFSET_MAX, Recovered, replay_producers
from broker.storage.retention import removable_count, roll_ms
from broker.storage.segment import RELATIVE_OFFSET_MAX, AppendInfo, Segment, SegmentView
from broker.storage.segment_files import new_segment, remove_cleaned, retire, swap_in
from broker.storage.segment_map import (
    LogRead,
    LogSlice,
    OffsetOutOfRangeError,
    SegmentMap,
)

__all__ = ("AppendInfo", "Log", "LogDamagedError", "LogRead", "LogSlice", "OffsetOutOfRangeError")

_NEVER: Final = 2**63 - 1


class Log(ReadableLog):
    """One replica's log.

    Invariant: log_start <= log_end, recovery_point <= log_end; the last segment is the active one;
    segment base offsets strictly increase. Synchronous; only ``FlushRound.run`` leaves the loop.
    """

    __slots__ = (
        "__weakref__",
        "_epoch_written",
        "_snapshots",
        "config",
        "end_lost",
        "epochs",
        "producers",
        "size_bytes",
        "tail_lost",
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
        self._segments = SegmentMap(shared, recovered.segments, recovered.compacted_below)
        self.directory = self._segments.active.directory
        self.log_start = recovered.log_start
        self.log_end = recovered.log_end
        self.unsynced = UnsyncedBytes(min(recovery_point, self.log_end), now_ms)
        self.size_bytes = sum(segment.size_bytes for segment in recovered.segments)
        self.epochs = recovered.epochs
        self.producers = recovered.producers
        self.damage = recovered.damage
        """What is known to be wrong with synced bytes, in words; None when nothing is."""
        self.damage_at = recovered.damage_at
        self.tail_lost = recovered.tail_lost
        self.end_lost = recovered.end_lost or recovered.tail_lost
        """The log once ended further, for all that is known: others must not be cut to it."""
        self._epoch_written = self.epochs.latest
        self._snapshots = recovered.snapshots
        self._settle(recovered, now_ms)

    def _settle(self, recovered: Recovered, now_ms: int) -> None:
        """After recovery: keep what it found anew, cool every segment, note what is unsynced."""
        with contextlib.suppress(DiskFullError):  # starts fenced; told again by the next start
            self._segments.index_aborted(self.producers.newly_aborted)
        if recovered.epochs_changed:
            with contextlib.suppress(DiskFullError):  # starts fenced; the batches tell them again
                self._write_epochs()
        for segment in recovered.segments:
            if segment.file is not None:
                if segment is not self._segments.active:
                    segment.seal()
                self._shared.cool(segment)
        for segment in recovered.unsynced:
            self._became_dirty(segment, now_ms)
            self.files_changed()
        for path in recovered.removed:
            self._shared.remove_later(path, now_ms + self.config.file_delete_delay_ms)

    @property
    def first_base_offset(self) -> int:
        """Of the oldest segment."""
        return self._segments.segments[0].base_offset

    @property
    def synced_end(self) -> int:
        """Exclusive: every record below it is on disk."""
        return self.unsynced.synced_end

    @property
    def has_unsynced_rolled(self) -> bool:
        """Whether a segment that will not grow any more waits for a sync."""
        return self.unsynced.has_other_than(self._segments.active)

    @property
    def recovery_point(self) -> int:
        """Where recovery begins to distrust bytes: the synced end."""
        return self.unsynced.synced_end

    def update_config(self, config: TopicConfig) -> None:
        """The topic's configuration changed."""
        self.config = config
        self._segments.active.bytes_max = 0  # armed anew by the next append

    # -- append

    def append(self, buffers: Sequence[Buffer], info: AppendInfo, now_ms: int) -> None:
        """Write one batch at the end, in one call. Raises DiskError, with nothing of it in the log.

        The directory is fenced then, unless it raises ExhaustedError: until space returns after
        DiskFullError, else until the next start. A follower's batch may begin beyond the end: its
        leader's log is compacted.
        """
        first, last, size_bytes = info.first, info.last, info.size_bytes
        assert first >= self.log_end, (first, self.log_end)
        segments = self._segments
        segment = segments.active
        position = segment.size_bytes
        if (
            not position
            or segment.file is None
            or self._shared.fence_error is not None
            or position + size_bytes > segment.bytes_max
            or info.max_timestamp > segment.roll_after_timestamp
            or last - segment.base_offset > RELATIVE_OFFSET_MAX
            or info.leader_epoch > self._epoch_written
            or first > self.log_end
        ):
            segment = self._prepare(info, now_ms)
        self._write(segment, buffers, size_bytes)
        self._took(segment, info, now_ms)

    def append_run(self, records: memoryview, infos: Sequence[AppendInfo], now_ms: int) -> int:
        """Append the first of these batches, and in the same call those behind it that need nothing
        but to be written; how many. ``records`` has them one behind the other. Raises as append.
        """
        segment = self._segments.active
        count = segment.fitting(infos, self.log_end, self._epoch_written, self.config)
        if count < 2 or self._shared.fence_error is not None:
            self.append((records[: infos[0].size_bytes],), infos[0], now_ms)
            return 1
        size_bytes = sum(info.size_bytes for info in infos[:count])
        self._write(segment, (records[:size_bytes],), size_bytes)
        for info in infos[:count]:
            self._took(segment, info, now_ms)
        return count

    def _write(self, segment: Segment, buffers: Sequence[Buffer], size_bytes: int) -> None:
        file = segment.file
        assert file is not None
        try:
            written = file.write_at(segment.size_bytes, buffers)
        except DiskError as error:
            self._undo(segment, file, error)
            raise
        assert written == size_bytes, (written, size_bytes)

    def _took(self, segment: Segment, info: AppendInfo, now_ms: int) -> None:
        first, last, max_timestamp, _, size_bytes, *_ = info
        self._segments.recent.append((first, last, segment.size_bytes))
        segment.grew(first, max_timestamp, size_bytes, self.config)
        self.size_bytes += size_bytes
        self.log_end = last + 1
        if not segment.dirty:
            self._became_dirty(segment, now_ms)

    def _prepare(self, info: AppendInfo, now_ms: int) -> Segment:
        """All that seldom has to happen before an append."""
        self._shared.raise_if_fenced()
        if self.tail_lost:
            raise LogDamagedError(self.directory, -1, self.damage or "the end of the log is lost")
        if info.leader_epoch > self._epoch_written:
            self.assign_epoch(info.leader_epoch, info.first)
        segment = self._segments.active
        with self._guarded():
            if info.first > self.log_end:
                self._shared.allow_gaps(self.topic_partition, info.last)
            self._shared.warm(segment)
            self._arm(segment)
        if segment.size_bytes and (
            segment.size_bytes + info.size_bytes > segment.bytes_max
            or info.max_timestamp > segment.roll_after_timestamp
            or info.last - segment.base_offset > RELATIVE_OFFSET_MAX
        ):
            self.roll(now_ms)
            segment = self._segments.active
        if not segment.size_bytes:
            segment.first_timestamp = info.max_timestamp
            self._arm(segment)
        return segment

    def _arm(self, segment: Segment) -> None:
        segment.arm(self.config, roll_ms(self.config, self._shared.jitter))

    def _undo(self, segment: Segment, file: File, error: DiskError) -> None:
        """Cut off what a failed write left, so that the log is as it was before."""
        try:
            file.truncate(segment.size_bytes)
            if not segment.dirty:
                self._became_dirty(segment, self._shared.now_ms)
            segment.reopen(self._shared.disk)
        except DiskError as second:
            self._shared.fence(second)
        self._shared.fence(error)

    def files_changed(self) -> None:
        """A file was made, renamed or removed: the next round syncs the directory too."""
        self.unsynced.directory_changed = True
        self._shared.dirty[self] = None

    def _became_dirty(self, segment: Segment, now_ms: int) -> None:
        self.unsynced.add(segment, now_ms)
        self._shared.dirty[self] = None

    def assign_epoch(self, leader_epoch: int, start_offset: int) -> None:
        """A leader epoch begins; kept in the checkpoint before anything is written in it."""
        self.epochs.assign(leader_epoch, start_offset)
        self._write_epochs()

    def _write_epochs(self) -> None:
        path = f"{self.directory}/{checkpoint.LEADER_EPOCHS}"
        with self._guarded():
            checkpoint.write_epochs(self._shared.disk, path, self.epochs.entries())
        self._epoch_written = self.epochs.latest

    def index_aborted(self) -> None:
        """Note the transactions that a marker just appended has aborted. Raises DiskError."""
        with self._changing(begun=True):
            self._segments.index_aborted(self.producers.newly_aborted)

    # -- roll

    def roll(self, now_ms: int) -> None:
        """Seal the active segment and begin the next, unless it is empty. Raises DiskError."""
        segments, disk = self._segments, self._shared.disk
        old = segments.active
        if not old.size_bytes:
            return
        with self._changing():
            self._shared.warm(old)
            old.seal()
            old.write_indexes(disk)
            self._snapshots.write(self.producers, self.log_end)
            fresh = new_segment(disk, self.directory, self.log_end, now_ms)
        if not old.dirty:
            self._became_dirty(old, now_ms)
        old.is_whole = True
        segments.add(fresh)
        self._shared.note_warm(fresh)
        self.files_changed()

    def maybe_roll_by_time(self, now_ms: int) -> bool:
        """Roll a segment begun segment.ms ago by the broker's clock, though nothing arrives."""
        active, longest = self._segments.active, roll_ms(self.config, self._shared.jitter)
        if not active.size_bytes or now_ms - active.created_ms <= longest:
            return False
        self.roll(now_ms)
        return True

    # -- truncate

    def truncate_to(self, offset: int) -> None:
        """Make ``offset`` the log's end; a batch that reaches beyond goes whole. Slices handed out
        before and cut by this are void (``File.truncated_to``). Until the next flush round a power
        failure may bring back what was cut: replicas ask by epoch again.
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
        with self._changing(offset):
            position, end = segments.cut_point(last, offset)
            self._cut(kept, position, end)

    def _cut(self, kept: int, position: int, end: int) -> None:
        """Keep so many segments, the last of them up to ``position``, so that the log ends at
        ``end``. Raises DiskError, FrameError.
        """
        segments = self._segments
        last = segments.segments[kept - 1]
        if end < self.recovery_point:
            # Durable before anything is cut: recovery must not miss bytes that had to go.
            self.unsynced.cut_to(end)
            self._shared.save_recovery_points()
        segments.cut(last, position, self.config.index_interval_bytes)
        last.txns.cut_to(self._shared.disk, end)
        self._retire(segments.segments[kept:][::-1])
        segments.replace(segments.segments[:kept])
        self.files_changed()
        self._ends_at(end)
        self._arm(last)
        if end < self.log_start:
            self.log_start = end
            self._shared.save_log_starts()
        if not last.dirty:
            self._became_dirty(last, self._shared.now_ms)

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Drop everything; the next record gets ``offset``."""
        self._shared.raise_if_fenced()
        with self._changing():
            self.unsynced.cut_to(min(offset, self.log_start))
            self._shared.save_recovery_points()
            self._retire(self._segments.segments[::-1])
            fresh = new_segment(self._shared.disk, self.directory, offset, self._shared.now_ms)
            self._segments.replace([fresh])
            self._shared.note_warm(fresh)
            self.files_changed()
            self.log_start = offset
            self._ends_at(offset)
            self.unsynced.synced_end = offset
            self._is_sound()
            self._shared.save_log_starts()

    def repair(self) -> None:
        """Cut the log before its damage, so that a follower copies what comes then from its leader;
        empty it where nothing before the damage can be kept. Raises DiskError.
        """
        self._shared.raise_if_fenced()
        at = self.damage_at
        try:
            if at > self.log_start:
                self._cut_before(at)
            else:
                self.truncate_fully_and_start_at(0)
        except LogDamagedError:
            self.truncate_fully_and_start_at(0)
        self._is_sound()

    def _cut_before(self, at: int) -> None:
        """Batches of the segment before the damage can be read, and end below ``at``."""
        if at >= self.log_end:
            return
        kept = self._segments.index_of(at) + 1
        with self._changing(at):
            try:
                position, end = self._segments.cut_point(self._segments.segments[kept - 1], at)
            except FrameError as error:
                position, end = error.position, at
            self._cut(kept, position, end)

    def _is_sound(self) -> None:
        self.damage, self.damage_at = None, OFFSET_MAX
        self.tail_lost = self.end_lost = False

    def _ends_at(self, end: int) -> None:
        """Everything that knew of offsets at or beyond the new end forgets them."""
        self.log_end = end
        self._shared.logs_end({self.topic_partition: end})
        if end <= self.damage_at:
            self._is_sound()
        self.size_bytes = sum(one.size_bytes for one in self._segments.segments)
        self.unsynced.cut_to(end)
        if self.epochs.truncate_to(end):
            self._write_epochs()
        self._snapshots.cut_to(end)
        start = self._snapshots.load_latest(self.producers, end)
        span = (self.log_start if start is None else start, end)
        now_ms, segments = self._shared.now_ms, self._segments
        with self._changing(begun=True):
            replay_producers(self._shared.disk, segments.segments, span, self.producers, now_ms)
            segments.index_aborted(self.producers.newly_aborted)
        segments.note_warm()

    # -- removal of what is old

    def advance_log_start(self, offset: int) -> bool:
        """DeleteRecords: nothing below ``offset`` is read again; whether that is news.

        Kept in the log-start checkpoint on return; the bytes go with their segment, by retention.
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
        with contextlib.suppress(DiskError):  # fenced; the batches tell the epochs again
            self._starts_at(offset)
        return True

    def _starts_at(self, offset: int) -> None:
        self.log_start = offset
        if self.epochs.truncate_from_start(offset):
            self._write_epochs()

    def apply_retention(self, now_ms: int, high_watermark: int) -> list[SegmentView]:
        """Remove the segments that time, size or the log start let go; which ones."""
        segments = self._segments
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
        self._retire(segments.segments[:count])
        segments.replace(segments.segments[count:])
        self.size_bytes -= sum(view.size_bytes for view in views[:count])
        if self.first_base_offset > self.log_start:
            self._starts_at(self.first_base_offset)
        return list(views[:count])

    def swap_segments(self, old: Sequence[int], cleaned_path: str) -> bool:
        """Put a compacted segment in the place of the ones with these base offsets; crash safe.

        ``cleaned_path``: ``<stem>.log.cleaned``, synced, with the first one's base.
        False, and the cleaned files removed, when the log changed meanwhile or some of these are
        not synced yet: recovery takes a gap beyond the recovery point for a loss.
        """
        segments = self._segments
        replaced = segments.sealed(old)
        if not replaced or any(segment.dirty for segment in replaced):
            remove_cleaned(self._shared.disk, cleaned_path)
            return False
        due_ms = self._shared.now_ms + self.config.file_delete_delay_ms
        with self._changing():
            self._shared.save_recovery_points()
            fresh = swap_in(self._shared, replaced, cleaned_path, due_ms)
        segments.swap(old, fresh)
        self.size_bytes = sum(one.size_bytes for one in segments.segments)
        return True

    def _retire(self, segments: Sequence[Segment]) -> None:
        """In this order: a power failure may bring back the last of them."""
        self.unsynced.forget(segments)
        retire(self._shared, segments, self._shared.now_ms + self.config.file_delete_delay_ms)

    # -- sync and close

    def expect_room(self) -> None:
        """Before an append that more must follow: raises ExhaustedError unless that can be done."""
        self._shared.disk.expect_room()

    def sync_put_off(self, sync: LogSync) -> None:
        """A round ended before it came to this log: the next one takes it again."""
        here = [one for one in sync.segments if one in self._segments.segments]
        self.unsynced.put_off(here, sync.directories)
        self._shared.dirty[self] = None

    def begin_sync(self) -> LogSync:
        """What a flush round has to sync so that the log is on disk up to its present end."""
        with self._guarded():
            active = self._segments.active
            return LogSync(self, *self.unsynced.begin(self._shared, active, self.log_end))

    def close(self, *, clean: bool) -> None:
        """Let go of every file; ``clean``: all of it on disk, the producers in a snapshot."""
        if clean:
            self._snapshots.write(self.producers, self.log_end)
            FlushRound(self._shared.disk, (self.begin_sync(),)).run_or_raise()
            self.unsynced.finish()
        for segment in self._segments.segments:
            if clean:
                segment.cool(self._shared.disk)
            self._shared.forget(segment)
        self._shared.dirty.pop(self, None)
