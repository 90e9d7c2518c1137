"""Log compaction: keeps the last record of each key (and tombstones for some time), as Kafka's log
cleaner does.

Three steps, each at its own place:

    plan_cleaning      pure, on the loop: which segments, from which offset on, if it is worth it
    clean_segments     in the worker process: reads batches, writes ``<base offset>.log.cleaned``
    Log.swap_segments  on the loop: cleaned files in place of the old ones, crash-safe

    log_start    first_dirty              clean_end            first_uncleanable
    |---clean--------|---dirty: in the map----|--left for the next---|---active, or too young---

The clean part holds each key once. The offset map holds the last offset of each key of the dirty
part; a record below ``clean_end`` survives if the map names no later one for its key. Offsets never
change: batches keep their base and last offset, so that gaps appear inside and between them.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from tidemark.codec.record_batch import HEADER_BYTES, BatchHeader, read_header
from tidemark.codec.records import RecordsError, payload_chunks, scan_chunks
from tidemark.model.topic_configs import TopicConfig
from tidemark.model.topics import TopicPartition
from tidemark.storage.batch_walk import Damage, FrameError, WalkedBatch, walk_batches
from tidemark.storage.disk import Disk, File

from broker.core.producers import ProducerEntry
from broker.storage.batch_filter import Retention, filter_batch, is_expired, map_key, with_horizon
from broker.storage.offset_index import OffsetIndex
from broker.storage.segment import (
    CLEANED,
    INDEX,
    RELATIVE_OFFSET_MAX,
    TIME_INDEX,
    Segment,
    SegmentView,
)
from broker.storage.segment_files import remove_all_cleaned, remove_cleaned
from broker.storage.time_index import TimeIndex
from broker.storage.txn_index import AbortedTxn

CHECKPOINT_NAME: Final = "cleaner-offset-checkpoint"

KEYS_MAX: Final = 600_000
"""Largest number of keys in one round's offset map: some 120 MB of the worker's memory (Kafka's
dedupe buffer is 128 MB).
"""

_WRITE_BYTES: Final = 1024 * 1024
_UNKNOWN: Final[Mapping[int, int]] = {}
_NOBODY: Final[Mapping[int, tuple[int, int]]] = {}
_EPOCH_ABOVE_ALL: Final = 2**15


@dataclass(frozen=True, slots=True)
class CleaningPlan:
    """One possible round in one partition."""

    segments: tuple[SegmentView, ...]
    first_dirty: int
    first_uncleanable: int
    clean_bytes: int
    dirty_bytes: int
    must: bool
    """True if a record has waited longer than max.compaction.lag.ms."""

    @property
    def dirty_ratio(self) -> float:
        """Dirty share of the bytes that a round would clean; the highest ratio is cleaned first."""
        return self.dirty_bytes / max(self.clean_bytes + self.dirty_bytes, 1)

    def is_due(self, config: TopicConfig) -> bool:
        """True if the partition should be cleaned now."""
        if self.dirty_bytes == 0:
            return False
        return self.must or self.dirty_ratio > config.min_cleanable_dirty_ratio


def plan_cleaning(
    segments: Sequence[SegmentView],
    *,
    log_start: int,
    last_stable: int,
    checkpoint: int | None,
    config: TopicConfig,
    now_ms: int,
    first_timestamps: Mapping[int, int] = _UNKNOWN,
) -> CleaningPlan | None:
    """Plan one round over a partition's segments. None if nothing may be cleaned.

    ``last_stable``: exclusive bound; records that are not committed, or in an open transaction, are
    not compacted. It must not exceed the log's synced end: a record may replace earlier ones of its
    key only once no power failure can remove it. ``checkpoint``: end of the last round. One outside
    the log (after truncation) is ignored. ``first_timestamps`` (``first_timestamps_of``; base
    offset to ms) are needed for max.compaction.lag.ms only; without one, the segment's highest
    timestamp is used, which is later.
    """
    if checkpoint is None or not log_start <= checkpoint <= segments[-1].base_offset:
        checkpoint = log_start
    cleanable: list[SegmentView] = []
    for segment in segments:
        if segment.active or segment.unsynced or segment.end_offset > last_stable:
            break  # an unsynced one could not be replaced, and the round would be wasted
        if segment.end_offset > checkpoint and _is_young(segment, config, now_ms):
            break
        if segment.end_offset > log_start:
            cleanable.append(segment)
    if not cleanable:
        return None
    dirty = [segment for segment in cleanable if segment.end_offset > checkpoint]
    waiting_since = (first_timestamps.get(one.base_offset, one.max_timestamp) for one in dirty)
    return CleaningPlan(
        segments=tuple(cleanable),
        first_dirty=checkpoint,
        first_uncleanable=cleanable[-1].end_offset,
        clean_bytes=sum(one.size_bytes for one in cleanable if one.base_offset < checkpoint),
        dirty_bytes=sum(one.size_bytes for one in dirty),
        must=any(0 <= since < now_ms - config.max_compaction_lag_ms for since in waiting_since),
    )


def _is_young(segment: SegmentView, config: TopicConfig, now_ms: int) -> bool:
    """True if min.compaction.lag.ms still protects the segment."""
    newest = segment.max_timestamp if segment.max_timestamp >= 0 else segment.created_ms
    return config.min_compaction_lag_ms > 0 and newest > now_ms - config.min_compaction_lag_ms


def first_timestamps_of(disk: Disk, segments: Iterable[SegmentView]) -> dict[int, int]:
    """Return the highest timestamp of each segment's first batch, read from its file: the base
    timestamp may be a delete horizon. Raises DiskError.
    """
    timestamps = {}
    for segment in segments:
        if segment.size_bytes >= HEADER_BYTES:
            file = disk.open(segment.path)
            try:
                header = read_header(file.read_at(0, HEADER_BYTES))
                timestamps[segment.base_offset] = header.max_timestamp
            finally:
                file.close()
    return timestamps


def last_data_offsets(
    producers: Iterable[ProducerEntry], *, synced_end: int | None = None
) -> dict[int, int]:
    """Return the last offset of each producer's latest batch, from a partition's producer table.

    ``synced_end``: use the latest batch below it. Batches beyond may be lost in a power failure,
    and the batch before them then defines the producer's sequence.
    """
    offsets = {}
    for producer in producers:
        for batch in producer.batches:
            if synced_end is None or batch.last_offset < synced_end:
                offsets[producer.producer_id] = batch.last_offset
    return offsets


@dataclass(frozen=True, slots=True)
class CleaningJob:
    """Input of the worker; picklable. Paths are relative to the disk's root."""

    topic_partition: TopicPartition
    segments: tuple[SegmentView, ...]
    first_dirty: int
    first_uncleanable: int
    segment_bytes_max: int
    delete_retention_ms: int
    now_ms: int
    last_data_offsets: Mapping[int, int] = field(default_factory=dict)
    """Last offset of each producer's latest batch, which is kept, if need be without records."""
    aborted: tuple[AbortedTxn, ...] = ()
    producers: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    """Present epoch and time of the last write (ms) of each producer. Its latest marker, which
    defines the fenced epochs, is kept.
    """
    keys_max: int = KEYS_MAX
    index_interval_bytes: int = 4096


class CleanedGroup(NamedTuple):
    """One new file for several old segments, with the first one's base offset."""

    old_base_offsets: tuple[int, ...]
    old_sizes_bytes: tuple[int, ...]
    path: str
    size_bytes: int


@dataclass(slots=True)
class CleaningResult:
    """Result of a round. With ``damage`` no file may be swapped in, and the partition is not
    cleaned until it is repaired.
    """

    groups: tuple[CleanedGroup, ...] = ()
    clean_end: int = -1
    """Exclusive; the new checkpoint once all groups are swapped in."""
    damage: Damage | None = None
    records_read: int = 0
    records_kept: int = 0
    records_without_key: int = 0
    batches_unreadable: int = 0
    """Batches with a correct CRC whose records are malformed."""
    bytes_read: int = 0
    bytes_written: int = 0


class _DamagedError(Exception):
    def __init__(self, damage: Damage) -> None:
        super().__init__(str(damage))
        self.damage = damage


def job_for(
    plan: CleaningPlan,
    topic_partition: TopicPartition,
    config: TopicConfig,
    *,
    now_ms: int,
    last_data_offsets: Mapping[int, int],
    aborted: tuple[AbortedTxn, ...] = (),
    producers: Mapping[int, tuple[int, int]] = _NOBODY,
) -> CleaningJob:
    """Return the worker's job for a plan."""
    return CleaningJob(
        topic_partition=topic_partition,
        segments=plan.segments,
        first_dirty=plan.first_dirty,
        first_uncleanable=plan.first_uncleanable,
        segment_bytes_max=config.segment_bytes,
        delete_retention_ms=config.delete_retention_ms,
        now_ms=now_ms,
        last_data_offsets=last_data_offsets,
        aborted=aborted,
        producers=dict(producers),
        index_interval_bytes=config.index_interval_bytes,
    )


def clean_segments(open_disk: Callable[[], Disk], job: CleaningJob) -> CleaningResult:
    """Run one round in the worker process. Old files do not change; cleaned ones are synced on
    return.

    ``open_disk`` is called in the worker, since a handle cannot be sent between processes. Raises
    DiskError.
    """
    return _Round(open_disk(), job).run()


def is_current(result: CleaningResult, sizes_by_base: Mapping[int, int]) -> bool:
    """True if the log still has every cleaned segment at the same size.

    Retention, DeleteRecords or a truncation may have come in between; the result is then dropped.
    """
    return all(
        sizes_by_base.get(base) == size
        for group in result.groups
        for base, size in zip(group.old_base_offsets, group.old_sizes_bytes, strict=True)
    )


def group_segments(segments: Iterable[SegmentView], bytes_max: int) -> list[list[SegmentView]]:
    """Group neighbours that fit together into one segment, by their sizes before cleaning.

    A group spans at most 2**31 offsets, since indexes store offsets relative to the base.
    """
    groups: list[list[SegmentView]] = []
    size_bytes = 0
    for segment in segments:
        size_bytes += segment.size_bytes
        if (
            groups
            and size_bytes <= bytes_max
            and segment.end_offset - 1 - groups[-1][0].base_offset <= RELATIVE_OFFSET_MAX
        ):
            groups[-1].append(segment)
        else:
            groups.append([segment])
            size_bytes = segment.size_bytes
    return groups


class _Round:
    """One run of ``clean_segments``: first the offset map, then the new files."""

    def __init__(self, disk: Disk, job: CleaningJob) -> None:
        self._disk = disk
        self._job = job
        self._offsets: dict[bytes, int] = {}
        self._result = CleaningResult()
        self._aborted: dict[int, list[AbortedTxn]] = {}
        for txn in job.aborted:
            self._aborted.setdefault(txn.producer_id, []).append(txn)
        self._ends: set[int] = set()
        """End offsets of the cleaned files; the batches that end there are kept."""
        self._with_records: set[int] = set()
        """Producers whose current transaction has kept records, as far as it was walked."""

    def run(self) -> CleaningResult:
        """Run the round; on damage, the cleaned files written so far are removed again."""
        job, result = self._job, self._result
        if job.segments:
            remove_all_cleaned(self._disk, job.segments[0].path.rpartition("/")[0])
        written: list[CleanedGroup] = []
        try:
            result.clean_end = self._map_offsets()
            segments = [s for s in job.segments if s.base_offset < result.clean_end]
            groups = group_segments(segments, job.segment_bytes_max)
            self._ends = {result.clean_end, *(group[-1].end_offset for group in groups)}
            for group in groups:
                written.append(self._clean_group(group))
        except _DamagedError as error:
            result.damage = error.damage
            for cleaned in written:
                remove_cleaned(self._disk, cleaned.path)
            return result
        result.groups = tuple(written)
        return result

    def _map_offsets(self) -> int:
        """Fill the map from the dirty part; return its end: the first batch that did not fit."""
        job, offsets = self._job, self._offsets
        for segment in job.segments:
            if segment.end_offset <= job.first_dirty:
                continue
            for walked in self._walk(segment):
                header = walked.header
                if header.last_offset < job.first_dirty:
                    continue
                if len(offsets) >= job.keys_max:
                    return header.base_offset
                if not header.is_control and not self._is_aborted(header):
                    self._map_batch(walked)
        return job.first_uncleanable

    def _map_batch(self, walked: WalkedBatch) -> None:
        """Add a batch's keys, if it can be read to its end: a batch that no reader can read must
        not replace earlier records.
        """
        header, base_offset = walked.header, walked.header.base_offset
        own: dict[bytes, int] = {}
        try:
            for span in scan_chunks(payload_chunks(walked.batch, header), header.record_count):
                if span.key is not None:
                    own[map_key(span.key)] = base_offset + span.offset_delta
        except RecordsError:
            return
        self._offsets.update(own)

    def _clean_group(self, group: list[SegmentView]) -> CleanedGroup:
        path = group[0].path + CLEANED
        cleaned = _indexed(Segment(group[0].path.rpartition("/")[0], group[0].base_offset, 0, 0))
        try:
            file = self._disk.open(path, create=True)
            try:
                self._write(file, cleaned, self._retained(group))
                file.sync()
            finally:
                file.close()
        except _DamagedError:
            remove_cleaned(self._disk, path)
            raise
        cleaned.seal()
        for suffix, content in (
            (INDEX, cleaned.index.encode_unwritten()),
            (TIME_INDEX, cleaned.times.encode_unwritten()),
        ):
            self._disk.replace_whole(cleaned.stem + suffix + CLEANED, content)
        return CleanedGroup(
            old_base_offsets=tuple(segment.base_offset for segment in group),
            old_sizes_bytes=tuple(segment.size_bytes for segment in group),
            path=path,
            size_bytes=cleaned.size_bytes,
        )

    def _write(self, file: File, cleaned: Segment, batches: Iterator[bytes]) -> None:
        pending: list[bytes] = []
        start = cleaned.size_bytes
        for batch in batches:
            header = read_header(batch)
            cleaned.index_batch(cleaned.size_bytes, header, self._job.index_interval_bytes)
            cleaned.size_bytes += len(batch)
            pending.append(batch)
            if cleaned.size_bytes - start >= _WRITE_BYTES:
                start += file.write_at(start, pending)
                pending = []
        if pending:
            file.write_at(start, pending)
        self._result.bytes_written += cleaned.size_bytes

    def _retained(self, group: list[SegmentView]) -> Iterator[bytes]:
        """Yield the kept part of each batch of a group, in order."""
        for segment in group:
            for walked in self._walk(segment):
                header = walked.header
                filtered = filter_batch(walked.batch, header, self._retention(header))
                self._result.batches_unreadable += not filtered.is_readable
                self._result.records_read += header.record_count
                self._result.records_kept += filtered.records_kept
                self._result.records_without_key += filtered.records_without_key
                if filtered.batch is None:
                    continue
                if not self._ends_nothing(header):
                    yield filtered.batch
                elif not self._is_spent(header):
                    yield with_horizon(filtered.batch, header, self._retention(header))

    def _ends_nothing(self, header: BatchHeader) -> bool:
        """True for a marker if all records of its transaction are gone. Called for kept batches, in
        order.
        """
        producer_id = header.producer_id
        if not header.is_control or producer_id < 0:
            if header.is_transactional:
                self._with_records.add(producer_id)
            return False
        ends_something = producer_id in self._with_records
        self._with_records.discard(producer_id)
        return not ends_something

    def _is_spent(self, header: BatchHeader) -> bool:
        """True if a marker of nothing is not needed any longer: readers and followers, which may
        have the transaction's records, had delete.retention.ms since they went, and later batches
        show the producer's epoch.
        """
        job = self._job
        follows_after = header.max_timestamp + job.delete_retention_ms
        epoch, wrote_at = job.producers.get(header.producer_id, (_EPOCH_ABOVE_ALL, 0))
        return (
            is_expired(header, job.now_ms)
            and header.last_offset + 1 < self._result.clean_end
            and header.last_offset + 1 not in self._ends
            and (
                header.producer_epoch < epoch
                or (follows_after <= wrote_at and header.max_timestamp < wrote_at)
            )
        )

    def _retention(self, header: BatchHeader) -> Retention:
        job, clean_end = self._job, self._result.clean_end
        last_of_producer = job.last_data_offsets.get(header.producer_id) == header.last_offset
        return Retention(
            offsets=self._offsets,
            clean_end=clean_end,
            aborted=self._is_aborted(header),
            # The last batch of the round is kept so that replicas agree on the log end, and that of
            # each file so that a file that lost its end is detected.
            keep_empty=last_of_producer or header.last_offset + 1 in self._ends,
            now_ms=job.now_ms,
            delete_retention_ms=job.delete_retention_ms,
        )

    def _walk(self, segment: SegmentView) -> Iterator[WalkedBatch]:
        """Yield a segment's batches after checking each one's CRC."""
        file = self._disk.open(segment.path)
        offset = segment.base_offset
        try:
            for walked in walk_batches(file, 0, segment.size_bytes):
                if not walked.crc_ok:
                    raise self._damaged(segment, walked.position, offset, "CRC does not match")
                if walked.header.base_offset < offset:  # outside the CRC
                    raise self._damaged(segment, walked.position, offset, "offsets go back")
                self._result.bytes_read += len(walked.batch)
                yield walked
                offset = walked.header.last_offset + 1
        except FrameError as problem:
            raise self._damaged(segment, problem.position, offset, problem.what) from None
        finally:
            file.close()

    def _damaged(
        self, segment: SegmentView, position: int, offset: int, what: str
    ) -> _DamagedError:
        return _DamagedError(
            Damage(self._job.topic_partition, segment.path, position, offset, what)
        )

    def _is_aborted(self, header: BatchHeader) -> bool:
        """True if a batch belongs to an aborted transaction: its records are not kept, and do not
        replace earlier ones.
        """
        return header.is_transactional and any(
            txn.first_offset <= header.base_offset <= txn.last_offset
            for txn in self._aborted.get(header.producer_id, ())
        )


def _indexed(segment: Segment) -> Segment:
    """Return the segment with empty indexes, to be filled as batches are written."""
    segment.index, segment.times = OffsetIndex(), TimeIndex()
    return segment
