"""State of a log after a start, from its files: its end, its producers, and the torn part of its
tail.

Below the recovery point everything was synced: a bad or missing batch there is damage, reported and
left alone. Beyond it bytes may be torn: the log is cut at the first bad batch. While the kernel
goes on, only the last write can be torn: anything else means that the log has lost its end. After a
clean stop nothing can, and the recovery point is the log's end: only the last few headers are
looked at.

    recovery point            R
    batch header looked at    |    where an index, the producers or the epochs lack it
    batch with its CRC        |----------->  all
"""

import contextlib
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from tidemark.codec.control_record import ControlRecord, read_control
from tidemark.codec.record_batch import HEADER_BYTES, MAGIC_V2, BatchHeader, read_header
from tidemark.codec.records import RecordsError
from tidemark.storage.batch_walk import FrameError, walk_batches
from tidemark.storage.disk import Disk, DiskFullError, File

from broker.core.leader_epochs import LeaderEpochs
from broker.core.producers import ProducerTable
from broker.storage import checkpoint
from broker.storage.producer_snapshot import ProducerSnapshots
from broker.storage.segment import (
    DELETED,
    LOG,
    RELATIVE_OFFSET_MAX,
    SUFFIXES,
    Segment,
    early_end,
    stem,
    walk_headers,
)
from broker.storage.segment_files import LogFiles, new_segment, tidy_files

OFFSET_MAX: Final = 2**63 - 1
_REWRITE_BYTES: Final = 1024 * 1024


@dataclass(slots=True)
class RecoveryPlan:
    """Input of a recovery."""

    directory: str
    recovery_point: int
    log_start: int
    gaps_below: int
    """Offsets below may be missing through compaction; a gap beyond is a loss."""
    compacted_below: int
    """Segments that begin below may lack batches at their end through compaction."""
    clean: bool
    """True if the last process stopped cleanly, so that everything is on disk."""
    trust_indexes: bool
    """False after the kernel stopped: each file may lack another part of the writes."""
    interval_bytes: int
    now_ms: int
    committed: int = 0
    """Last checkpointed high watermark; a log that ends before it has lost its end."""
    rewrites: bool = False
    """Write bytes beyond the recovery point again. After a failed sync the kernel takes pages for
    written that are not, and a later sync omits them.
    """


@dataclass(slots=True)
class Recovered:
    """State of a log after recovery."""

    segments: list[Segment]
    log_end: int
    log_start: int
    epochs: LeaderEpochs
    epochs_changed: bool
    producers: ProducerTable
    snapshots: ProducerSnapshots
    compacted_below: int = 0
    """As in the plan."""
    scanned_bytes: int = 0
    truncated_bytes: int = 0
    truncated_because: str = ""
    damage: str | None = None
    tail_lost: bool = False
    """True if the damage hides the log end: nothing may be appended."""
    damage_at: int = OFFSET_MAX
    """The damage is at or above this offset."""
    end_lost: bool = False
    """True if the log ends before an offset that it had reached for certain."""
    unsynced: list[Segment] = field(default_factory=list)
    """Segments with parts, indexes included, that may not be on disk."""
    removed: list[str] = field(default_factory=list)
    """Renamed paths to be removed."""

    def note_damage(self, what: str, at: int) -> None:
        """Keep the first damage, and the lowest offset of all."""
        self.damage = self.damage or what
        self.damage_at = min(self.damage_at, at)


def recover(disk: Disk, plan: RecoveryPlan) -> Recovered:
    """Recover a partition's directory. Raises DiskError, or NewerVersionError for a newer file."""
    files = tidy_files(disk, plan.directory)
    epochs, epochs_whole = _load_epochs(disk, plan.directory)
    segments = [
        Segment(plan.directory, base, disk.size_of(stem(plan.directory, base) + LOG), plan.now_ms)
        for base in files.bases
    ]
    if not segments:
        segments = [new_segment(disk, plan.directory, plan.log_start, plan.now_ms)]
    state = Recovered(
        segments=segments,
        log_end=segments[0].base_offset,
        log_start=segments[0].base_offset,
        epochs=epochs,
        epochs_changed=False,
        producers=ProducerTable(),
        snapshots=ProducerSnapshots(disk, plan.directory, files.snapshots),
        compacted_below=plan.compacted_below,
    )
    scan = _Scan(disk, plan, state)
    scan.run(files, epochs_whole)
    state.log_start = min(max(segments[0].base_offset, plan.log_start), state.log_end)
    return state


def _load_epochs(disk: Disk, directory: str) -> tuple[LeaderEpochs, bool]:
    """Return the checkpoint, and True if it could be read."""
    try:
        entries = checkpoint.read_epochs(disk, f"{directory}/{checkpoint.LEADER_EPOCHS}")
    except checkpoint.NewerVersionError:
        raise
    except checkpoint.CheckpointError:
        return LeaderEpochs(), False
    return LeaderEpochs(entries), True


def replay_producers(
    disk: Disk,
    segments: Sequence[Segment],
    span: tuple[int, int],
    producers: ProducerTable,
    now: int,
) -> None:
    """Replay the headers of the batches with base offset in ``span`` (start, end)."""
    start, end = span
    for at, segment in enumerate(segments):
        if at + 1 < len(segments) and segments[at + 1].base_offset <= start:
            continue
        if segment.base_offset >= end or not segment.size_bytes:
            continue
        file = segment.warm(disk)
        for position, header in walk_headers(file, segment.locate(start), segment.size_bytes):
            if header.base_offset >= end:
                break
            if header.base_offset >= start:
                producers.replay(header, now, control_at(file, position, header))


def control_at(file: File, position: int, header: BatchHeader) -> ControlRecord | None:
    """Return the content of a control batch at ``position``, else None. Raises FrameError."""
    if not header.is_control:
        return None
    try:
        return read_control(file.read_at(position, header.size_bytes), header)
    except RecordsError as problem:
        raise FrameError(position, str(problem)) from problem


def rewrite(file: File, start: int, end: int) -> None:
    """Write the bytes between two positions again, unchanged, so that the next sync covers them.

    Raises DiskError.
    """
    for position in range(start, end, _REWRITE_BYTES):
        content = file.read_at(position, min(_REWRITE_BYTES, end - position))
        file.write_at(position, (content,))


class _Scan:
    """One pass over the segments, from the recovery point on."""

    def __init__(self, disk: Disk, plan: RecoveryPlan, state: Recovered) -> None:
        self._disk = disk
        self._plan = plan
        self._state = state
        self._replay_from = 0
        self._expected = state.log_end

    def run(self, files: LogFiles, epochs_whole: bool) -> None:  # noqa: FBT001
        """Fill in the state from the files."""
        plan, state = self._plan, self._state
        first = self._first_segment(files.bases)
        self._producers_up_to_scan(first)
        self._expected = state.segments[first].base_offset
        written = state.epochs.entries()
        if not plan.clean:
            # The tail may be older than the checkpoint: the batches are decisive.
            state.epochs.truncate_to(plan.recovery_point)
        known_epoch = state.epochs.latest
        if first and plan.recovery_point <= self._expected:
            self._look_at_end_of(first - 1)
        for at in range(first, len(state.segments)):
            if at > first and (self._begins_within(at) or self._lacks_records_before(at)):
                self._drop_segments(at)
                break
            if not self._segment(state.segments[at]):
                self._drop_segments(at + 1)
                break
        state.log_end = self._expected
        if state.log_end < max(plan.recovery_point, plan.committed):
            is_synced = state.log_end < plan.recovery_point
            kind = "synced" if is_synced else "committed"
            end = plan.recovery_point if is_synced else plan.committed
            state.note_damage(f"{kind} up to offset {end}, ends at {state.log_end}", state.log_end)
            state.end_lost = True
        self._compare_epochs(written)
        if first > 0 or plan.recovery_point > state.segments[0].base_offset:
            self._complete_epochs(known_epoch, epochs_whole)
        if state.epochs.truncate_to(state.log_end + 1):
            state.epochs_changed = True
        state.snapshots.cut_to(state.log_end)
        if not plan.clean:
            state.unsynced = state.segments[self._last_synced(files.bases) :]

    def _compare_epochs(self, written: Sequence[tuple[int, int]]) -> None:
        """Compare the epochs of the batches with the checkpoint's."""
        state = self._state
        if state.epochs.entries() == tuple(one for one in written if one[1] < state.log_end):
            state.epochs.restore(written)
            state.epochs_changed = False
        elif not self._plan.clean:
            state.epochs_changed = True

    def _first_segment(self, bases: Sequence[int]) -> int:
        """Return the segment that contains the recovery point.

        Unless indexes can be trusted, the one with the last synced record: it was active then, and
        its index was written when it was rolled.
        """
        if not self._plan.trust_indexes:
            return self._last_synced(bases)
        return max(bisect_right(bases, self._plan.recovery_point) - 1, 0)

    def _last_synced(self, bases: Sequence[int]) -> int:
        return max(bisect_right(bases, self._plan.recovery_point - 1) - 1, 0)

    def _producers_up_to_scan(self, first: int) -> None:
        """Restore a snapshot, then replay the headers between it and the start of the scan."""
        plan, state = self._plan, self._state
        # Batches that retention removed before they were synced are in a snapshot alone.
        snapshot_max = max(plan.recovery_point, state.segments[0].base_offset)
        offset = state.snapshots.load_latest(state.producers, snapshot_max)
        self._replay_from = state.segments[0].base_offset if offset is None else offset
        if first and self._replay_from < state.segments[first].base_offset:
            self._guarded_replay(state.segments[first].base_offset)

    def _guarded_replay(self, end: int) -> None:
        state = self._state
        span = (self._replay_from, end)
        try:
            replay_producers(self._disk, state.segments, span, state.producers, self._plan.now_ms)
        except FrameError as error:
            what = f"{self._plan.directory}: {error.what} at byte {error.position}"
            state.note_damage(what, state.segments[0].base_offset)

    def _look_at_end_of(self, at: int) -> None:
        """Check the end of a segment before the scan begins, since no scan would miss it."""
        segment = self._state.segments[at]
        segment.warm(self._disk)
        try:
            end = segment.end_before(segment.size_bytes)
        except FrameError as error:
            what = f"{segment.stem}{LOG} at byte {error.position}: {error.what}"
            self._state.note_damage(what, segment.base_offset)
        else:
            self._require_end(at, end)

    def _require_end(self, at: int, end: int) -> None:
        """Require that a segment begins where the previous one ends, unless that was compacted."""
        segment, expected = (
            self._state.segments[at],
            self._state.segments[at + 1].base_offset,
        )
        if end < expected and segment.base_offset >= self._plan.compacted_below:
            self._state.note_damage(f"{segment.stem}{LOG} {early_end(end, expected)}", end)

    def _lacks_records_before(self, at: int) -> bool:
        """True if the previous segment lost its end as a kernel's stop can cause it: what follows
        is dropped with it. Otherwise a lost end is damage.

        Compaction leaves gaps too, but only among synced batches (``Log.swap_segments``).
        """
        lacks = not self._plan.trust_indexes and self._is_gap(self._state.segments[at].base_offset)
        if lacks:
            self._state.truncated_because = f"no batch from offset {self._expected} on"
        else:
            self._require_end(at - 1, self._expected)
        return lacks

    def _begins_within(self, at: int) -> bool:
        """True if the previous segment reaches beyond the base offset of this one: it was cut and
        continued, and a power failure restored this one's file.
        """
        state = self._state
        begins_within = state.segments[at].base_offset < self._expected
        if begins_within:
            path = state.segments[at].stem + LOG
            state.truncated_because = f"{path} begins before offset {self._expected}"
            state.end_lost |= self._plan.clean or self._plan.trust_indexes
        return begins_within

    def _is_gap(self, offset: int) -> bool:
        return offset > self._expected and offset > self._plan.gaps_below

    def _segment(self, segment: Segment) -> bool:
        """Scan one segment; False if it was cut, so that nothing after it counts."""
        plan = self._plan
        file = segment.warm(self._disk)
        self._expected = max(self._expected, segment.base_offset)
        self._prepare_indexes(segment)
        segment.max_timestamp, at = segment.times.last
        segment.max_timestamp_offset = segment.base_offset + at
        position = start = self._first_position(segment)
        try:
            synced = self._expected >= plan.recovery_point
            for position, header in walk_headers(file, start, 0 if synced else segment.size_bytes):
                if header.base_offset >= plan.recovery_point:
                    break
                self._require_synced(position, header)
                self._take(segment, position, header)
                position += header.size_bytes
                if self._expected >= plan.recovery_point:
                    break
        except FrameError as error:
            return self._damaged(segment, error)
        return self._verify(segment, position)

    def _require_synced(self, position: int, header: BatchHeader) -> None:
        """Require that no synced batch reaches beyond the recovery point, which is a batch's end.

        Otherwise a flipped bit in a header would move the log end, and the good batches after it
        would look torn. Raises FrameError.
        """
        if header.base_offset < self._expected or header.last_offset >= self._plan.recovery_point:
            offsets = f"{header.base_offset}..{header.last_offset}"
            raise FrameError(
                position,
                f"offsets {offsets} are not within {self._expected} and the recovery point"
                f" {self._plan.recovery_point}",
            )

    def _first_position(self, segment: Segment) -> int:
        """Return the position of the last indexed batch, or of one to replay producers from."""
        index = segment.index
        start = index.last_position
        if not start or self._replay_from >= self._plan.recovery_point:
            return start
        entry_offset, position = index.floor(max(self._replay_from - segment.base_offset, 0))
        return min(start, position) if segment.begins_batch(position, entry_offset) else 0

    def _prepare_indexes(self, segment: Segment) -> None:
        """Keep the entries of synced batches if they can be trusted."""
        synced = self._plan.recovery_point - segment.base_offset
        index, times = segment.index, segment.times
        if not self._plan.trust_indexes or synced <= 0:
            index.truncate_to_position(0)
            times.truncate_to_offset(0)
        elif synced <= RELATIVE_OFFSET_MAX:
            index.truncate_to_offset(synced)
            times.truncate_to_offset(synced)
        segment.txns.cut_to(self._disk, self._plan.recovery_point)
        last, position = index.boundary(segment.size_bytes)
        if position and not segment.begins_batch(position, last):
            index.truncate_to_position(0)
            times.truncate_to_offset(0)

    def _verify(self, segment: Segment, start: int) -> bool:
        """Check the batches beyond the recovery point, with their CRC. Return False if one is bad:
        the log ends before it.
        """
        assert segment.file is not None
        position, problem, end = start, "", segment.size_bytes
        try:
            for position, header, _, crc_ok in walk_batches(segment.file, start, end):
                if not crc_ok:
                    problem = "CRC mismatch"
                elif header.base_offset < self._expected or self._is_gap(header.base_offset):
                    problem = f"offset {header.base_offset} where {self._expected} was expected"
                elif (epoch := header.partition_leader_epoch) < self._state.epochs.latest:
                    problem = f"leader epoch {epoch} behind a later one"  # it was cut, and is back
                if problem:
                    break
                self._take(segment, position, header)
                position += header.size_bytes
        except FrameError as error:
            position, problem = error.position, error.what
        self._state.scanned_bytes += position - start
        if self._plan.rewrites:
            with contextlib.suppress(DiskFullError):  # copy-on-write disk: appends will fail
                rewrite(segment.file, start, position)
        if problem:
            if not self._may_be_torn(segment, position):
                self._state.end_lost = True
            self._cut(segment, position, problem)
        return not problem

    def _may_be_torn(self, segment: Segment, position: int) -> bool:
        """True if the last process can have left this without a disk fault.

        After a clean stop it leaves nothing. While the kernel keeps running it leaves at most the
        first part of one batch at the end of the log, by an interrupted write. Otherwise anything
        is possible.
        """
        if self._plan.clean:
            return False
        if not self._plan.trust_indexes:
            return True
        left_bytes = segment.size_bytes - position
        if segment is not self._state.segments[-1]:
            return False
        if left_bytes < HEADER_BYTES:
            return True
        assert segment.file is not None
        header = read_header(segment.file.read_at(position, HEADER_BYTES))
        return header.magic == MAGIC_V2 and header.size_bytes > left_bytes

    def _take(self, segment: Segment, position: int, header: BatchHeader) -> None:
        """Apply a good batch, in log order."""
        if position >= segment.index.last_position or not len(segment.index):
            segment.index_batch(position, header, self._plan.interval_bytes)
        base = header.base_offset
        self._expected = base + header.last_offset_delta + 1
        if header.partition_leader_epoch > self._state.epochs.latest:
            self._state.epochs.assign(header.partition_leader_epoch, base)
            self._state.epochs_changed = True
        if base >= self._replay_from and (header.producer_id >= 0 or header.is_control):
            assert segment.file is not None
            control = control_at(segment.file, position, header)
            self._state.producers.replay(header, self._plan.now_ms, control)

    def _damaged(self, segment: Segment, error: FrameError) -> bool:
        """Note a bad batch among the synced ones, behind which none can be found. Return True."""
        what = f"{segment.stem}{LOG} at byte {error.position}: {error.what}"
        self._state.note_damage(what, self._expected)
        self._expected = max(self._expected, self._plan.recovery_point)
        self._state.tail_lost = segment is self._state.segments[-1]
        return True

    def _cut(self, segment: Segment, position: int, problem: str) -> None:
        assert segment.file is not None
        state = self._state
        state.truncated_bytes += segment.size_bytes - position
        state.truncated_because = f"{segment.stem}{LOG} at byte {position}: {problem}"
        segment.file.truncate(position)
        segment.file.sync()  # the cut bytes must not reappear in a rolled segment
        segment.size_bytes = position
        segment.reopen(self._disk)

    def _drop_segments(self, first: int) -> None:
        """Drop segments after a cut; they were never acknowledged as durable."""
        state = self._state
        for segment in reversed(state.segments[first:]):  # no gap if this is interrupted too
            state.truncated_bytes += segment.size_bytes
            for suffix in SUFFIXES:
                path = segment.stem + suffix
                if self._disk.exists(path):
                    self._disk.rename(path, path + DELETED)
                    state.removed.append(path + DELETED)
        del state.segments[first:]

    def _complete_epochs(self, known_epoch: int, whole: bool) -> None:  # noqa: FBT001
        """Read epochs of synced batches that the checkpoint lacks from the batches.

        Epochs only rise along a log. So it lacks some exactly if it was unreadable, or if the scan
        met a newer one at its very first batch.
        """
        state = self._state
        if not state.epochs_changed and whole:
            return
        epochs = LeaderEpochs(
            entry for entry in state.epochs.entries() if entry.leader_epoch <= known_epoch
        )
        try:
            for segment in state.segments:
                file = segment.warm(self._disk)
                for _, header in walk_headers(file, 0, segment.size_bytes):
                    if header.partition_leader_epoch > epochs.latest:
                        epochs.assign(header.partition_leader_epoch, header.base_offset)
        except FrameError as error:
            state.note_damage(
                f"{self._plan.directory}: {error.what}", state.segments[0].base_offset
            )
        state.epochs.restore(epochs.entries())
        state.epochs_changed = True
