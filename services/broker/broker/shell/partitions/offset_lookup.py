"""Offsets of points in time, for ListOffsets over Kafka's protocol and gRPC.

``core/list_offsets.py`` decides. A time is looked up in the time index, on the loop; the record
within the batch is found by a worker, because that walks records.
"""

import asyncio
import logging
from collections.abc import Hashable

from tidemark.codec.record_batch import read_header
from tidemark.codec.records import RecordsError, first_at_or_after
from tidemark.kafka.list_offsets import MAX_TIMESTAMP
from tidemark.model.errors import ErrorCode
from tidemark.runtime.telemetry import fields
from tidemark.runtime.worker_pool import (
    JobTooLargeError,
    JobTooLongError,
    WorkerDiedError,
    WorkerPool,
    WorkerPoolBusyError,
)
from tidemark.storage.disk import DiskError

from broker.core.list_offsets import FoundOffset, OffsetSearch, Seek
from broker.shell.counters import BrokerCounters
from broker.shell.partitions.disk_health import DiskHealth
from broker.shell.partitions.hosted import HostedPartition
from broker.storage.directory import LogDamagedError
from broker.storage.log import LogSlice
from broker.storage.time_search import SearchedTo

log = logging.getLogger(__name__)


class OffsetLookup:
    """Looks up offsets by time, in the partitions of this broker."""

    def __init__(self, workers: WorkerPool, disks: DiskHealth, counters: BrokerCounters) -> None:
        self._workers = workers
        self._disks = disks
        self._counters = counters

    async def at_time(
        self,
        hosted: HostedPartition,
        timestamp: int,
        *,
        lane: Hashable,
        read_committed: bool = False,
    ) -> FoundOffset:
        """Return the first record not older than ``timestamp`` ms, or (MAX_TIMESTAMP) the first
        with the highest timestamp, of what a reader of that isolation level may fetch. ``lane``:
        the connection of the request; lookups of one connection do not hold up those of others.
        """
        search = OffsetSearch(hosted.partition, timestamp, read_committed=read_committed)
        try:
            return await self._perform(hosted, search, timestamp, lane)
        except DiskError as failure:
            self._disks.fence_directory(hosted.manager, failure)
            return FoundOffset(ErrorCode.KAFKA_STORAGE_ERROR)
        except LogDamagedError as damage:
            self._disks.note_damage(hosted, damage)
            return FoundOffset(ErrorCode.KAFKA_STORAGE_ERROR)
        except (WorkerPoolBusyError, WorkerDiedError):
            return FoundOffset(ErrorCode.LEADER_NOT_AVAILABLE)  # retriable
        except JobTooLongError as late:
            self._counters.inspections_given_up += 1
            log.warning(
                "offset not looked up",
                extra=fields(partition=str(hosted.topic_partition), reason=str(late)),
            )
            return FoundOffset(ErrorCode.REQUEST_TIMED_OUT)
        except (RecordsError, JobTooLargeError):
            return FoundOffset(ErrorCode.CORRUPT_MESSAGE)

    async def _perform(
        self,
        hosted: HostedPartition,
        search: OffsetSearch,
        timestamp: int,
        lane: Hashable,
    ) -> FoundOffset:
        step = search.begin()
        while isinstance(step, Seek):
            found: LogSlice | SearchedTo | FoundOffset | None
            if timestamp == MAX_TIMESTAMP:
                found = await _with_largest(hosted, search, step.end)
            else:
                found = hosted.log.batch_for_timestamp(timestamp, end=step.end, start=step.start)
            if isinstance(found, FoundOffset):
                return found
            if found is None:
                return search.exhausted()
            if isinstance(found, SearchedTo):
                await asyncio.sleep(0)
                step = search.passed(found.offset)
                continue
            batch = await asyncio.to_thread(_read, found)
            header = read_header(batch)
            sought = header.max_timestamp if timestamp == MAX_TIMESTAMP else timestamp
            record = await self._within(batch, sought, step.first_offset, lane)
            step = search.searched(header.last_offset + 1, record)
        return step

    async def _within(
        self, batch: bytes, timestamp: int, first_offset: int, lane: Hashable
    ) -> tuple[int, int] | None:
        """Return offset and timestamp of the record; a batch of one record needs no worker, unless
        its header has another timestamp than the record may have.
        """
        header = read_header(batch)
        is_exact = header.is_log_append_time or header.max_timestamp in (
            header.base_timestamp,
            timestamp,
        )
        if header.record_count == 1 and header.last_offset_delta == 0 and is_exact:
            return header.base_offset, header.max_timestamp
        return await self._workers.run_for(lane, first_at, batch, timestamp, first_offset)


async def _with_largest(
    hosted: HostedPartition, search: OffsetSearch, end: int
) -> LogSlice | FoundOffset | None:
    """Return the batch with the largest timestamp, or an error. Others take turns meanwhile."""
    log_now, parts = hosted.log, hosted.log.max_timestamp_batch(end=end)
    while True:
        try:
            next(parts)
        except StopIteration as ended:
            found: LogSlice | None = ended.value
            return found
        await asyncio.sleep(0)
        moved = search.passed(0)
        if isinstance(moved, FoundOffset):
            return moved
        if hosted.log is not log_now:  # it is in another directory
            log_now, parts = hosted.log, hosted.log.max_timestamp_batch(end=end)


def first_at(batch: bytes, timestamp: int, first_offset: int) -> tuple[int, int] | None:
    """Return, in the worker, offset and timestamp of the first record of a batch from
    ``first_offset`` on that is not older than ``timestamp``.
    """
    return first_at_or_after(batch, read_header(batch), timestamp, first_offset)


def _read(found: LogSlice) -> bytes:
    return found.file.read_at(found.position, found.length)
