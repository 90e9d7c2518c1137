"""Reads of the log for a share group: headers on the event loop, records by sendfile."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tidemark.codec.record_batch import BatchHeader
from tidemark.model.errors import ErrorCode
from tidemark.storage.batch_walk import FrameError
from tidemark.storage.disk import DiskError

from broker.core.open_txns import AbortedTxn
from broker.core.share.acquisition import AcquiredRecords, LogRead, ReadPlan
from broker.core.share.fetch_plan import PartitionTurn
from broker.core.share.log_batches import HeaderWalk, ReadLimits, span_of
from broker.shell.partitions.disk_health import DiskHealth
from broker.shell.share.batch_keys import BatchKeys
from broker.shell.share.held import HeldShare
from broker.storage.directory import LogDamagedError
from broker.storage.log import LogSlice, OffsetOutOfRangeError
from broker.storage.segment import walk_headers


class ShareRead(NamedTuple):
    """A read: its batches for the core, and their places in files."""

    log: LogRead
    headers: list[BatchHeader]
    places: list[LogSlice]
    """Place of each batch."""

    @property
    def size_bytes(self) -> int:
        """Size of all batches that have records for the group."""
        sizes = (header.size_bytes for header in self.headers)
        pairs = zip(self.log.batches, sizes, strict=False)  # keys may end the read earlier
        return sum(size for batch, size in pairs if batch.has_records)

    def slices_of(self, acquired: Sequence[AcquiredRecords]) -> tuple[LogSlice, ...]:
        """Return the batches with acquired records, from the first to the last, in few slices."""
        if len(self.places) == 1:
            return (self.places[0],)
        joined: list[LogSlice] = []
        for one in self.places[span_of(self.headers, acquired)]:
            before = joined[-1] if joined else None
            if before is not None and before.file is one.file:
                joined[-1] = before._replace(length=one.position + one.length - before.position)
            else:
                joined.append(one)
        return tuple(joined)


class ShareReader:
    """Reads headers; a disk that fails and a log that is damaged are reported to ``disks``."""

    def __init__(self, disks: DiskHealth, keys: BatchKeys) -> None:
        self._disks = disks
        self._keys = keys

    def read(
        self, held: HeldShare, plan: ReadPlan, turn: PartitionTurn
    ) -> ShareRead | ErrorCode | None:
        """Return what a member's turn may take; None if there is nothing to read."""
        found = self.read_batches(held, plan, ReadLimits.of(plan, turn, held.readable_end))
        if not isinstance(found, ShareRead) or held.share.window.order is None:
            return found
        log = self._keys.cut(held, found.log, found.places)
        return found._replace(log=log) if isinstance(log, LogRead) else log

    def read_batches(
        self, held: HeldShare, plan: ReadPlan, limits: ReadLimits
    ) -> ShareRead | ErrorCode | None:
        """Return batches without keys; None if there is nothing to read."""
        hosted = held.hosted
        try:
            return self._read(held, plan, limits, held.readable_end)
        except OffsetOutOfRangeError:
            return None  # the log's start moves the window, or its end was lost
        except DiskError as failure:
            self._disks.fence_directory(hosted.manager, failure)
            return ErrorCode.KAFKA_STORAGE_ERROR
        except LogDamagedError as damage:
            self._disks.note_damage(hosted, damage)
            return ErrorCode.KAFKA_STORAGE_ERROR

    @staticmethod
    def _read(
        held: HeldShare, plan: ReadPlan, limits: ReadLimits, readable_end: int
    ) -> ShareRead | None:
        """Read headers up to the limits. Raises OffsetOutOfRangeError, LogDamagedError,
        DiskError.
        """
        log = held.hosted.log
        found = log.read(plan.first_offset, limits.bytes_max, end=readable_end)
        walk = HeaderWalk(plan, limits)
        try:
            places = list(_places_of(walk, found.slices))
        except FrameError as damage:
            log.health.raise_damaged(damage, plan.first_offset)
        last = walk.headers[-1].last_offset if walk.headers else -1
        if not walk.is_over and (not found.slices or last + 1 >= readable_end):
            walk.exhausted()
        aborted: tuple[AbortedTxn, ...] = ()
        if held.is_committed_only and walk.headers:
            history = log.history
            aborted = tuple(history.aborted_between(walk.headers[0].base_offset, last + 1))
        read = walk.read(aborted)
        return None if read is None else ShareRead(read, walk.headers, places)


def _places_of(walk: HeaderWalk, slices: Sequence[LogSlice]) -> Iterator[LogSlice]:
    """Yield the place of each batch of a read, as far as headers are needed. Raises FrameError,
    DiskError.
    """
    for one in slices:
        for position, header in walk_headers(one.file, one.position, one.position + one.length):
            if walk.take(header):
                yield LogSlice(one.file, position, header.size_bytes)
            if walk.is_over:
                return
