"""Which offset a point in time has: what ListOffsets asks, over Kafka's wire and gRPC alike.

Marks (latest, earliest...) are answered at once. A time is looked up in the time index, on the
loop; the record within the batch is found by a worker, for that walks records.
"""

import asyncio
import logging
from collections.abc import Hashable
from typing import Final, NamedTuple

from tidemark.codec.record_batch import read_header
from tidemark.codec.records import RecordsError, first_at_or_after
from tidemark.kafka.list_offsets import (
    EARLIEST_LOCAL_TIMESTAMP,
    EARLIEST_PENDING_UPLOAD_TIMESTAMP,
    EARLIEST_TIMESTAMP,
    LATEST_TIERED_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
)
from tidemark.model.errors import ErrorCode
from tidemark.runtime.telemetry import fields
from tidemark.runtime.worker_pool import (
    JobTooLargeError,
    JobTooLongError,
    WorkerDiedError,
    WorkerPoolBusyError,
)
from tidemark.storage.disk import DiskError

from broker.core.partition import Role
from broker.shell.hosted import HostedPartition
from broker.shell.node import BrokerNode
from broker.storage.directory import LogDamagedError
from broker.storage.log import LogSlice

log = logging.getLogger(__name__)

BATCHES_TRIED_MAX: Final = 16


class FoundOffset(NamedTuple):
    """An offset, or why there is none. ``offset`` -1 without an error: no record matches."""

    error_code: ErrorCode = ErrorCode.NONE
    offset: int = -1
    timestamp: int = -1
    leader_epoch: int = -1


def at_mark(
    hosted: HostedPartition,
    timestamp: int,
    *,
    leader_epoch_expected: int = -1,
    read_committed: bool = False,
) -> FoundOffset | None:
    """The offset at a mark, or a refusal; None when ``timestamp`` needs ``at_time``. The latest is
    the end of what a reader of that isolation level may fetch.
    """
    partition = hosted.partition
    refused = partition.epoch_refused(leader_epoch_expected)
    if refused is not None:
        return FoundOffset(refused.error_code)
    if timestamp == LATEST_TIMESTAMP:
        # A new leader's watermark may be below what its predecessor told (KIP-207).
        if not partition.latest_known:
            return FoundOffset(ErrorCode.OFFSET_NOT_AVAILABLE)
        return _with_epoch(hosted, _end(hosted, read_committed=read_committed), -1)
    if timestamp in (EARLIEST_TIMESTAMP, EARLIEST_LOCAL_TIMESTAMP):
        return _with_epoch(hosted, partition.log_start, -1)
    if timestamp in (LATEST_TIERED_TIMESTAMP, EARLIEST_PENDING_UPLOAD_TIMESTAMP):
        return FoundOffset()  # nothing is tiered
    if timestamp >= 0 or timestamp == MAX_TIMESTAMP:
        return None
    return FoundOffset(ErrorCode.INVALID_REQUEST)


def at_replica_mark(hosted: HostedPartition, timestamp: int) -> FoundOffset | None:
    """Where this replica's own log begins or ends, committed or not, leader or not: for tools that
    watch replicas catch up. None for any other mark, and where the log is not to be trusted.
    """
    partition = hosted.partition
    if partition.role is Role.FAILED:
        return None
    if timestamp == LATEST_TIMESTAMP:
        return _with_epoch(hosted, partition.log_end, -1)
    if timestamp == EARLIEST_TIMESTAMP:
        return _with_epoch(hosted, partition.log_start, -1)
    return None


async def at_time(
    node: BrokerNode,
    hosted: HostedPartition,
    timestamp: int,
    *,
    lane: Hashable,
    read_committed: bool = False,
) -> FoundOffset:
    """The first record not older than ``timestamp`` ms, or (MAX_TIMESTAMP) the first with the
    highest timestamp, of what a reader of that isolation level may fetch. ``lane``:
    the connection that asks; lookups of one do not hold up another's.
    """
    end = _end(hosted, read_committed=read_committed)
    try:
        if timestamp == MAX_TIMESTAMP:
            return await _at_maximum(node, hosted, end, lane)
        return await _at_or_after(node, hosted, timestamp, end, lane)
    except DiskError as failure:
        node.disks.fence_directory(hosted.manager, failure)
        return FoundOffset(ErrorCode.KAFKA_STORAGE_ERROR)
    except LogDamagedError as damage:
        node.disks.note_damage(hosted, damage)
        return FoundOffset(ErrorCode.KAFKA_STORAGE_ERROR)
    except (WorkerPoolBusyError, WorkerDiedError):
        return FoundOffset(ErrorCode.LEADER_NOT_AVAILABLE)  # retriable: ask again
    except JobTooLongError as late:
        node.counters.inspections_given_up += 1
        log.warning(
            "offset not looked up",
            extra=fields(partition=str(hosted.topic_partition), reason=str(late)),
        )
        return FoundOffset(ErrorCode.REQUEST_TIMED_OUT)
    except (RecordsError, JobTooLargeError):
        return FoundOffset(ErrorCode.CORRUPT_MESSAGE)


def _end(hosted: HostedPartition, *, read_committed: bool) -> int:
    partition = hosted.partition
    return partition.last_stable if read_committed else partition.high_watermark


async def _at_maximum(
    node: BrokerNode, hosted: HostedPartition, end: int, lane: Hashable
) -> FoundOffset:
    if not hosted.partition.latest_known:
        return FoundOffset(ErrorCode.OFFSET_NOT_AVAILABLE)
    found = hosted.log.max_timestamp_batch(end=end)
    if found is None:
        return FoundOffset()
    batch = await asyncio.to_thread(_read, found)
    highest = read_header(batch).max_timestamp
    record = await _within(node, batch, highest, lane)
    return _with_epoch(hosted, *record) if record is not None else FoundOffset()


async def _at_or_after(
    node: BrokerNode, hosted: HostedPartition, timestamp: int, end: int, lane: Hashable
) -> FoundOffset:
    """After compaction a batch's header may promise a record that it has no more: then the next
    batch is asked.
    """
    start: int | None = None
    for _ in range(BATCHES_TRIED_MAX):
        found = hosted.log.batch_for_timestamp(timestamp, end=end, start=start)
        if found is None:
            return _no_record(hosted)
        batch = await asyncio.to_thread(_read, found)
        record = await _within(node, batch, timestamp, lane)
        if record is not None and record[0] >= hosted.partition.log_start:
            return _with_epoch(hosted, *record)
        start = read_header(batch).last_offset + 1
    return FoundOffset(ErrorCode.LEADER_NOT_AVAILABLE)


def _no_record(hosted: HostedPartition) -> FoundOffset:
    """Nothing that late is committed; a new leader may not know of all that is (KIP-207)."""
    known = hosted.partition.latest_known
    return FoundOffset(ErrorCode.NONE if known else ErrorCode.OFFSET_NOT_AVAILABLE)


async def _within(
    node: BrokerNode, batch: bytes, timestamp: int, lane: Hashable
) -> tuple[int, int] | None:
    """Offset and timestamp of the record; a batch of one needs no worker."""
    header = read_header(batch)
    if header.record_count == 1 and header.last_offset_delta == 0:
        return header.base_offset, header.max_timestamp
    return await node.lookups.run_for(lane, first_at, batch, timestamp)


def first_at(batch: bytes, timestamp: int) -> tuple[int, int] | None:
    """In the worker: offset and timestamp of the first record of a batch not older than
    ``timestamp``.
    """
    return first_at_or_after(batch, read_header(batch), timestamp)


def _read(found: LogSlice) -> bytes:
    return found.file.read_at(found.position, found.length)


def _with_epoch(hosted: HostedPartition, offset: int, timestamp: int) -> FoundOffset:
    epochs, partition = hosted.partition.epochs, hosted.partition
    epoch = epochs.epoch_of(offset) if offset < partition.log_end else partition.leader_epoch
    return FoundOffset(ErrorCode.NONE, offset, timestamp, epoch)
