"""What a log's files say after a start: where it ends, who produced, and what of its tail is torn.

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
    """Where and how to look."""

    directory: str
    recovery_point: int
    log_start: int
    gaps_below: int
    """Offsets below may be missing since they were compacted; beyond, a gap is a loss."""
    compacted_below: int
    """Segments that begin below may lack batches at their end since they were compacted."""
    clean: bool
    """The last process stopped in order: everything is on disk."""
    trust_indexes: bool
    """False after the kernel itself stopped: each file may lack another part of what was written.
    """
    interval_bytes: int
    now_ms: int
    committed: int = 0
    """The high watermark last written down: a log that ends before it has lost its end."""
    rewrites: bool = False
    """Write what lies beyond the recovery point again: after a sync that failed, the kernel takes
    pages for written that are not, and a later sync leaves them out.
    """


@dataclass(slots=True)
class Recovered:
    """A log as its files tell it."""

    segments: list[Segment]
    log_end: int
    log_start: int
    epochs: LeaderEpochs
    epochs_changed: bool
    producers: ProducerTable
    snapshots: ProducerSnapshots
    compacted_below: int = 0
    """As planned."""
    scanned_bytes: int = 0
    truncated_bytes: int = 0
    truncated_because: str = ""
    damage: str | None = None
    tail_lost: bool = False
    """The damage hides where the log ends: nothing may be appended."""
    damage_at: int = OFFSET_MAX
    """The damage is not below this offset."""
    end_lost: bool = False
    """The log ends before what it once held for certain."""
    unsynced: list[Segment] = field(default_factory=list)
    """Segments of which something, be it an index, may not be on disk."""
    removed: list[str] = field(default_factory=list)
    """Paths that were renamed away and can go."""

    def note_damage(self, what: str, at: int) -> None:
        """Keep the first finding, and the lowest offset of all."""
        self.damage = self.damage or what
        self.damage_at = min(self.damage_at, at)


def recover(disk: Disk, plan: RecoveryPlan) -> Recovered:
    """Read a partition's directory. Raises DiskError, or NewerVersionError for a newer file."""
    files = tidy_files(disk, plan.directory)
    epochs, epochs_whole = _load_epochs(disk, plan.directory)
    segments = [
        Segment(plan.directory, base, disk.size_of(stem(plan.directory, base) + LOG), plan.now_ms)
        for base in files.bases
    ]
    if not segments:
        segments = [new_segment(disk, plan.directory, plan.log_start, plan.now_ms)]
    found = Recovered(
        segments=segments,
        log_end=segments[0].base_offset,
        log_start=segments[0].base_offset,
        epochs=epochs,
        epochs_changed=False,
        producers=ProducerTable(),
        snapshots=ProducerSnapshots(disk, plan.directory, files.snapshots),
        compacted_below=plan.compacted_below,
    )
    scan = _Scan(disk, plan, found)
    scan.run(files, epochs_whole)
    found.log_start = min(max(segments[0].base_offset, plan.log_start), found.log_end)
    return found


def _load_epochs(disk: Disk, directory: str) -> tuple[LeaderEpochs, bool]:
    """The checkpoint, and whether it could be read."""
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
    """What the control batch at ``position`` says; None for any other. Raises FrameError."""
    if not header.is_control:
        return None
    try:
        return read_control(file.read_at(position, header.size_bytes), header)
    except RecordsError as problem:
        raise FrameError(position, str(problem)) from problem


def rewrite(file: File, start: int, end: int) -> None:
    """Write the bytes between two positions once more, as they are, so that the next sync has them.

    Raises DiskError.
    """
    for position in range(start, end, _REWRITE_BYTES):
        content = file.read_at(position, min(_REWRITE_BYTES, end - position))
        file.write_at(position, (content,))


class _Scan:
    """One pass over the segments from the recovery point on."""

    def __init__(self, disk: Disk, plan: RecoveryPlan, found: Recovered) -> None:
        self._disk = disk
        self._plan = plan
        self._found = found
        self._replay_from = 0
        self._expected = found.log_end

    def run(self, files: LogFiles, epochs_whole: bool) -> None:  # noqa: FBT001
        """Fill in what the files say."""
        plan, found = self._plan, self._found
        first = self._first_segment(files.bases)
        self._producers_up_to_scan(files, first)
        self._expected = found.segments[first].base_offset
        written = found.epochs.entries()
        if not plan.clean:
            # A tail may be an older one than when the checkpoint was written: the batches count.
            found.epochs.truncate_to(plan.recovery_point)
        known_epoch = found.epochs.latest
        if first and plan.recovery_point <= self._expected:
            self._look_at_end_of(first - 1)
        for at in range(first, len(found.segments)):
            if at > first and (self._begins_within(at) or self._lacks_records_before(at)):
                self._drop_segments(at)
                break
            if not self._segment(found.segments[at]):
                self._drop_segments(at + 1)
                break
        found.log_end = self._expected
        if found.log_end < max(plan.recovery_point, plan.committed):
            is_synced = found.log_end < plan.recovery_point
            known = "synced" if is_synced else "committed"
            end = plan.recovery_point if is_synced else plan.committed
            found.note_damage(f"{known} up to offset {end}, ends at {found.log_end}", found.log_end)
            found.end_lost = True
        self._compare_epochs(written)
        if first > 0 or plan.recovery_point > found.segments[0].base_offset:
            self._complete_epochs(known_epoch, epochs_whole)
        if found.epochs.truncate_to(found.log_end + 1):
            found.epochs_changed = True
        found.snapshots.cut_to(found.log_end)
        if not plan.clean:
            found.unsynced = found.segments[self._last_synced(files.bases) :]

    def _compare_epochs(self, written: Sequence[tuple[int, int]]) -> None:
        """Note whether the batches have other epochs than the checkpoint had."""
        found = self._found
        if found.epochs.entries() == tuple(one for one in written if one[1] < found.log_end):
            found.epochs.restore(written)
            found.epochs_changed = False
        elif not self._plan.clean:
            found.epochs_changed = True

    def _first_segment(self, bases: Sequence[int]) -> int:
        """The one that holds the recovery point.

        Unless indexes can be trusted, the one that held the last synced record: it was active then,
        and its index was written when it was rolled.
        """
        if not self._plan.trust_indexes:
            return self._last_synced(bases)
        return max(bisect_right(bases, self._plan.recovery_point) - 1, 0)

    def _last_synced(self, bases: Sequence[int]) -> int:
        return max(bisect_right(bases, self._plan.recovery_point - 1) - 1, 0)

    def _producers_up_to_scan(self, files: LogFiles, first: int) -> None:
        """Snapshot, then the headers between it and where the scan begins."""
        plan, found = self._plan, self._found
        # Batches that retention took before they were synced are known from a snapshot alone.
        snapshot_max = max(plan.recovery_point, found.segments[0].base_offset)
        offset = found.snapshots.load_latest(found.producers, snapshot_max)
        self._replay_from = found.segments[0].base_offset if offset is None else offset
        if first and self._replay_from < found.segments[first].base_offset:
            self._guarded_replay(found.segments[first].base_offset)

    def _guarded_replay(self, end: int) -> None:
        found = self._found
        span = (self._replay_from, end)
        try:
            replay_producers(self._disk, found.segments, span, found.producers, self._plan.now_ms)
        except FrameError as error:
            what = f"{self._plan.directory}: {error.what} at byte {error.position}"
            found.note_damage(what, found.segments[0].base_offset)

    def _look_at_end_of(self, at: int) -> None:
        """Of a segment whose end is where the scan begins, so that no scan would miss it."""
        segment = self._found.segments[at]
        segment.warm(self._disk)
        try:
            end = segment.end_before(segment.size_bytes)
        except FrameError as error:
            what = f"{segment.stem}{LOG} at byte {error.position}: {error.what}"
            self._found.note_damage(what, segment.base_offset)
        else:
            self._require_end(at, end)

    def _require_end(self, at: int, end: int) -> None:
        """A segment begins where the batches of the one before it end, unless it was compacted."""
        segment, expected = self._found.segments[at], self._found.segments[at + 1].base_offset
        if end < expected and segment.base_offset >= self._plan.compacted_below:
            self._found.note_damage(f"{segment.stem}{LOG} {early_end(end, expected)}", end)

    def _lacks_records_before(self, at: int) -> bool:
        """Whether the segment before lost its end as the kernel's stop can bring it about: what
        follows goes with it. Otherwise a lost end is damage.

        Compaction leaves gaps too, but only among synced batches (``Log.swap_segments``).
        """
        lacks = not self._plan.trust_indexes and self._is_gap(self._found.segments[at].base_offset)
        if lacks:
            self._found.truncated_because = f"no batch from offset {self._expected} on"
        else:
            self._require_end(at - 1, self._expected)
        return lacks

    def _begins_within(self, at: int) -> bool:
        """Whether the segment before goes beyond the base offset of this one: it was cut and
        continued, and a power failure brought back the file of this one.
        """
        found = self._found
        begins_within = found.segments[at].base_offset < self._expected
        if begins_within:
            path = found.segments[at].stem + LOG
            found.truncated_because = f"{path} begins before offset {self._expected}"
            found.end_lost |= self._plan.clean or self._plan.trust_indexes
        return begins_within

    def _is_gap(self, offset: int) -> bool:
        return offset > self._expected and offset > self._plan.gaps_below

    def _segment(self, segment: Segment) -> bool:
        """Scan one segment; False when it was cut, so that nothing behind it counts."""
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
        """The recovery point is a batch's end: no synced batch reaches beyond it.

        Without this a flipped bit in a header would move the log's end, and the good batches
        behind it would be taken for torn ones. Raises FrameError.
        """
        if header.base_offset < self._expected or header.last_offset >= self._plan.recovery_point:
            offsets = f"{header.base_offset}..{header.last_offset}"
            raise FrameError(
                position,
                f"offsets {offsets} are not within {self._expected} and the recovery point"
                f" {self._plan.recovery_point}",
            )

    def _first_position(self, segment: Segment) -> int:
        """Of the last indexed batch, or of an earlier one where the producers must be replayed."""
        index = segment.index
        start = index.last_position
        if not start or self._replay_from >= self._plan.recovery_point:
            return start
        known, position = index.floor(max(self._replay_from - segment.base_offset, 0))
        return min(start, position) if segment.begins_batch(position, known) else 0

    def _prepare_indexes(self, segment: Segment) -> None:
        """Keep the entries of synced batches, if they can be believed."""
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
        """The batches beyond the recovery point, with their CRC."""
        assert segment.file is not None
        end = segment.size_bytes
        position, problem = start, ""
        try:
            for position, header, _, crc_ok in walk_batches(segment.file, start, end):
                if not crc_ok:
                    problem = "CRC mismatch"
                elif header.base_offset < self._expected or self._is_gap(header.base_offset):
                    problem = f"offset {header.base_offset} where {self._expected} was expected"
                if problem:
                    break
                self._take(segment, position, header)
                position += header.size_bytes
        except FrameError as error:
            position, problem = error.position, error.what
        self._found.scanned_bytes += position - start
        if self._plan.rewrites:
            with contextlib.suppress(DiskFullError):  # it copies on write: appends will fail
                rewrite(segment.file, start, position)
        if problem:
            if not self._may_be_torn(segment, position):
                self._found.end_lost = True
            self._cut(segment, position, problem)
        return not problem

    def _may_be_torn(self, segment: Segment, position: int) -> bool:
        """Whether the last process can have left this without a fault of the disk: after a stop in
        order, nothing; while the kernel goes on, the first part of one batch, at the end of the
        log, by a write that was cut short; else anything.
        """
        if self._plan.clean:
            return False
        if not self._plan.trust_indexes:
            return True
        left_bytes = segment.size_bytes - position
        if segment is not self._found.segments[-1]:
            return False
        if left_bytes < HEADER_BYTES:
            return True
        assert segment.file is not None
        header = read_header(segment.file.read_at(position, HEADER_BYTES))
        return header.magic == MAGIC_V2 and header.size_bytes > left_bytes

    def _take(self, segment: Segment, position: int, header: BatchHeader) -> None:
        """A good batch, in log order."""
        if position >= segment.index.last_position or not len(segment.index):
            segment.index_batch(position, header, self._plan.interval_bytes)
        base = header.base_offset
        self._expected = base + header.last_offset_delta + 1
        if header.partition_leader_epoch > self._found.epochs.latest:
            self._found.epochs.assign(header.partition_leader_epoch, base)
            self._found.epochs_changed = True
        if base >= self._replay_from and (header.producer_id >= 0 or header.is_control):
            assert segment.file is not None
            control = control_at(segment.file, position, header)
            self._found.producers.replay(header, self._plan.now_ms, control)

    def _damaged(self, segment: Segment, error: FrameError) -> bool:
        """A bad batch among the synced ones: what follows cannot be found, and is not touched."""
        what = f"{segment.stem}{LOG} at byte {error.position}: {error.what}"
        self._found.note_damage(what, self._expected)
        self._expected = max(self._expected, self._plan.recovery_point)
        self._found.tail_lost = segment is self._found.segments[-1]
        return True

    def _cut(self, segment: Segment, position: int, problem: str) -> None:
        assert segment.file is not None
        found = self._found
        found.truncated_bytes += segment.size_bytes - position
        found.truncated_because = f"{segment.stem}{LOG} at byte {position}: {problem}"
        segment.file.truncate(position)
        segment.file.sync()  # what is cut here must not stand in a rolled segment one day
        segment.size_bytes = position
        segment.reopen(self._disk)

    def _drop_segments(self, first: int) -> None:
        """What lies behind a cut was never acknowledged as durable."""
        found = self._found
        for segment in reversed(found.segments[first:]):  # a log that is cut short again has no gap
            found.truncated_bytes += segment.size_bytes
            for suffix in SUFFIXES:
                path = segment.stem + suffix
                if self._disk.exists(path):
                    self._disk.rename(path, path + DELETED)
                    found.removed.append(path + DELETED)
        del found.segments[first:]

    def _complete_epochs(self, known_epoch: int, whole: bool) -> None:  # noqa: FBT001
        """Where the checkpoint lacks epochs of synced batches, look for them in the batches.

        Epochs only rise along a log, so that it lacks some exactly when it was unreadable or the
        scan met a newer one at its very first batch.
        """
        found = self._found
        if not found.epochs_changed and whole:
            return
        epochs = LeaderEpochs(
            entry for entry in found.epochs.entries() if entry.leader_epoch <= known_epoch
        )
        try:
            for segment in found.segments:
                file = segment.warm(self._disk)
                for _, header in walk_headers(file, 0, segment.size_bytes):
                    if header.partition_leader_epoch > epochs.latest:
                        epochs.assign(header.partition_leader_epoch, header.base_offset)
        except FrameError as error:
            found.note_damage(
                f"{self._plan.directory}: {error.what}", found.segments[0].base_offset
            )
        found.epochs.restore(epochs.entries())
        found.epochs_changed = True
