"""GroupLog: a partition of __consumer_offsets that this broker leads, as a shard's log.

Fenced by the leader epoch in which it was loaded: an append names it, and the partition refuses any
other. Records are in the local log, in order, when ``append`` returns; its awaitable is done when
the ISR has them.

A broker without a lease may have been replaced as the leader already. What it would answer from
memory waits for a record without meaning that it appends: the ISR takes it from no deposed leader.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Final

from tidemark.codec.group_records import OffsetCommitRecord, encode
from tidemark.codec.record_batch import Buffer, iterate_headers
from tidemark.codec.records import build_batch
from tidemark.model.errors import ErrorCode, TidemarkError
from tidemark.runtime.clock import Clock
from tidemark.storage.disk import DiskError

from broker.core.commit_wait import CommitWait
from broker.core.partition import Role
from broker.shell.partitions.appender import PartitionAppender
from broker.shell.partitions.disk_health import DiskHealth
from broker.shell.partitions.hosted import HostedPartition
from broker.shell.partitions.log_bytes import DamagedBatchError, VoidSliceError, read_and_check
from broker.shell.partitions.parking_lot import ParkingLot
from broker.storage.log import LogDamagedError, OffsetOutOfRangeError

READ_BYTES: Final = 1024 * 1024
NO_COMMIT: Final = OffsetCommitRecord("", "", 0, None)
"""Tombstone of an offset that cannot exist, since no topic has an empty name. Compaction removes
it.
"""
LOOK_MS: Final = 500
"""Time that a wait for the ISR lasts before leadership is checked again."""


class GroupLog:
    """Log of one shard; a ``ShardLog`` (tidemark.runtime.shard_runtime)."""

    def __init__(
        self,
        hosted: HostedPartition,
        *,
        appender: PartitionAppender,
        parked: ParkingLot,
        disks: DiskHealth,
        has_lease: Callable[[], bool],
        clock: Clock,
        timeout_ms: int,
    ) -> None:
        """``has_lease`` returns True while no other broker can lead what this one leads.
        ``timeout_ms``: an append that is not committed by then has failed
        (offsets.commit.timeout.ms).
        """
        self._has_lease = has_lease
        self._clock = clock
        self._appender = appender
        self._parked = parked
        self._disks = disks
        self._hosted = hosted
        self._timeout_ms = timeout_ms
        self.leader_epoch = hosted.partition.leader_epoch

    @property
    def is_ours(self) -> bool:
        """True if this broker still leads, in the epoch of this log."""
        partition = self._hosted.partition
        return partition.role is Role.LEADER and partition.leader_epoch == self.leader_epoch

    async def take_over(self) -> int:
        """Return the end below which everything is that earlier leaders may have acknowledged.
        Raises TidemarkError.
        """
        partition = self._hosted.partition
        end = partition.log_end
        while self.is_ours and partition.high_watermark < end:
            await self._parked.wait_committed(self._hosted, end, wait_ms=LOOK_MS)
        self._require_ours()
        return end

    async def read(self, end: int) -> AsyncGenerator[Buffer, None]:
        """Yield whole batches below ``end``. Raises TidemarkError."""
        offset = self._hosted.partition.log_start
        while offset < end:
            self._require_ours()
            content = await self._content(offset, end)
            if not content:
                return
            for position, header in iterate_headers(content):
                if header.base_offset >= end:
                    return
                if header.last_offset >= offset:
                    yield memoryview(content)[position : position + header.size_bytes]
                    offset = header.last_offset + 1

    async def _content(self, offset: int, end: int) -> bytes:
        try:
            found = self._hosted.log.read(offset, READ_BYTES, end=end)
            return await asyncio.to_thread(read_and_check, found, offset) if found.slices else b""
        except OffsetOutOfRangeError as gone:
            raise TidemarkError(ErrorCode.NOT_COORDINATOR, str(gone)) from None
        except VoidSliceError:
            words = f"{self._hosted.topic_partition}: truncated while it was read"
            raise TidemarkError(ErrorCode.NOT_COORDINATOR, words) from None
        except DamagedBatchError as damage:
            self._disks.found_damage(self._hosted, str(damage), damage.offset)
            raise TidemarkError(ErrorCode.COORDINATOR_NOT_AVAILABLE, str(damage)) from damage
        except LogDamagedError as damage:
            self._disks.note_damage(self._hosted, damage)
            raise TidemarkError(ErrorCode.COORDINATOR_NOT_AVAILABLE, str(damage)) from damage
        except DiskError as failure:
            self._disks.fence_directory(self._hosted.manager, failure)
            raise TidemarkError(ErrorCode.NOT_COORDINATOR, str(failure)) from failure

    def append(self, batches: bytes) -> Awaitable[int]:
        """See ShardLog. Everything is in the log, or refused, when this returns."""
        end, view = -1, memoryview(batches)
        for position, header in iterate_headers(batches):
            outcome = self._appender.append_internal(
                self._hosted,
                bytes(view[position : position + header.size_bytes]),
                leader_epoch_expected=self.leader_epoch,
            )
            if outcome.error_code is not ErrorCode.NONE:
                return _refused(outcome.error_code, outcome.message)
            end = outcome.end
        return self.committed(end)

    def confirm(self) -> Awaitable[int] | None:
        """See ShardLog."""
        if self._hosted.partition.commitment.is_only_leader(has_lease=self._has_lease()):
            return None
        key, value = encode(NO_COMMIT)
        return self.append(build_batch([(self._clock.wall_ms(), key, value, ())]))

    async def committed(self, end: int) -> int:
        """Wait until the ISR has everything below ``end``. Raises TidemarkError."""
        commit = CommitWait(self._hosted, end, self.leader_epoch)
        if not self._hosted.partition.high_watermark >= end:
            await self._parked.wait_committed(self._hosted, end, wait_ms=self._timeout_ms)
        if commit.is_lost or not commit.is_committed:
            raise TidemarkError(commit.failure(), f"{self._hosted.topic_partition}: not committed")
        return end

    def _require_ours(self) -> None:
        if not self.is_ours:
            raise TidemarkError(
                ErrorCode.NOT_COORDINATOR, f"{self._hosted.topic_partition}: another broker leads"
            )


async def _refused(code: ErrorCode, message: str | None) -> int:
    raise TidemarkError(code, message or code.name)
