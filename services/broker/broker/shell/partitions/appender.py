"""PartitionAppender: every append to a partition of this broker: batches of producers, of the
broker itself and of the partition's leader.

Synchronous, on the event loop. ``append_batch`` is the hot path's three calls (admit, append,
appended), with bytes, disk and clock around the core's decisions.
"""

from collections.abc import Callable
from typing import Final

from crc32c import crc32c
from tidemark.codec.control_record import ControlRecord, EndTxnMarker
from tidemark.codec.record_batch import (
    CRC_START,
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    MAGIC_V2,
    read_header,
    set_base_offset_and_epoch,
    set_log_append_time,
)
from tidemark.kafka.fetch import FetchPartition
from tidemark.model.errors import ErrorCode
from tidemark.runtime.clock import Clock
from tidemark.storage.disk import DiskError, DiskFullError, ExhaustedError

from broker.core.fetch_sessions import FetchSessions
from broker.core.partition import ACKS_ALL, AppendPlan, Partition, Refusal, Repeated
from broker.shell.counters import BrokerCounters
from broker.shell.partitions.disk_health import DiskHealth
from broker.shell.partitions.group_commits import GroupCommits
from broker.shell.partitions.hosted import AppendOutcome, HostedPartition
from broker.shell.partitions.parking_lot import ParkingLot
from broker.shell.partitions.replicated_batches import CRC_MISMATCH, admit_replicated
from broker.storage.directory import LogDamagedError

_NO_ERROR: Final = ErrorCode.NONE
_DAMAGED: Final = Refusal(
    ErrorCode.KAFKA_STORAGE_ERROR, "the partition's log is damaged: see the broker's log"
)
_CORRUPT: Final = Refusal(ErrorCode.CORRUPT_MESSAGE, "the batch does not match its CRC")
_NO_BATCH: Final = Refusal(
    ErrorCode.INVALID_RECORD, "a partition's records must be exactly one record batch"
)


class PartitionAppender:
    """Appends to logs, and wakes the requests that wait for what was appended."""

    def __init__(
        self,
        *,
        clock: Clock,
        disks: DiskHealth,
        parked: ParkingLot,
        fetch_sessions: FetchSessions[FetchPartition],
        group_commits: GroupCommits,
        counters: BrokerCounters,
        has_lease: Callable[[], bool],
    ) -> None:
        """``has_lease`` returns True while no other broker can lead what this one leads."""
        self._clock = clock
        self._disks = disks
        self._parked = parked
        self._fetch_sessions = fetch_sessions
        self._group_commits = group_commits
        self._counters = counters
        self._has_lease = has_lease

    def append(
        self,
        hosted: HostedPartition,
        batches: memoryview,
        *,
        acks: int,
        leader_epoch_expected: int = -1,
        now_ms: int,
    ) -> AppendOutcome:
        """Append one or more whole batches, patched in place. ``now_ms`` is wall time.

        Several batches (gRPC) are appended one by one; at the first refusal those before it stay.
        """
        first: AppendOutcome | None = None
        outcome = None
        position, end = 0, len(batches)
        while position < end:
            size = end - position
            if size >= HEADER_BYTES:
                declared = read_header(batches, position).batch_length + LENGTH_PREFIX_BYTES
                size = declared if HEADER_BYTES <= declared <= size else size
            outcome = self.append_batch(
                hosted,
                batches[position : position + size],
                acks,
                now_ms,
                leader_epoch_expected=leader_epoch_expected,
            )
            if outcome.error_code:
                hosted.counters.failed_produces += outcome.is_correctable
                return outcome
            first = first or outcome
            position += size
        if first is None or outcome is None:
            return self.refused(hosted, _NO_BATCH)
        return outcome._replace(base_offset=first.base_offset)

    def append_batch(
        self,
        hosted: HostedPartition,
        batch: memoryview,
        acks: int,
        now_ms: int,
        *,
        leader_epoch_expected: int = -1,
    ) -> AppendOutcome:
        """Append exactly one batch: admit, write once, appended. The hot path."""
        size_bytes = len(batch)
        if size_bytes < HEADER_BYTES:
            return self.refused(hosted, _NO_BATCH)
        header = read_header(batch)
        if (
            header.magic == MAGIC_V2
            and header.batch_length + LENGTH_PREFIX_BYTES == size_bytes
            and crc32c(batch[CRC_START:]) != header.crc
        ):
            self._counters.crc_errors_produce += 1
            return self.refused(hosted, _CORRUPT)
        partition = hosted.partition
        plan = partition.admit(
            header,
            size_bytes,
            acks=acks,
            leader_epoch_expected=leader_epoch_expected,
            now_ms=now_ms,
        )
        if not isinstance(plan, AppendPlan):
            return self._not_planned(hosted, plan, acks)
        if plan.log_append_time_ms >= 0:
            set_log_append_time(batch, plan.log_append_time_ms)
        set_base_offset_and_epoch(batch, 0, plan.first, plan.leader_epoch)
        try:
            hosted.log.append((batch,), plan, now_ms)
        except DiskError as failure:
            return self._append_failed(hosted, plan, failure)
        except LogDamagedError as damage:
            return self._damaged(hosted, damage)
        gained_bytes = partition.appended(plan, now_ms)
        counters = hosted.counters
        counters.bytes_in += size_bytes
        counters.records_in += header.record_count
        end = plan.last + 1
        bounds = partition.bounds
        must_wait = (
            bounds.high_watermark < end and acks != 0 and self._must_wait(partition, end, acks)
        )
        if self._parked.requests.count or self._fetch_sessions.idle:
            self._parked.appended(hosted, size_bytes, gained_bytes, must_wait=must_wait)
        if not gained_bytes and partition.limits.flush_group:
            self._group_commits.request()
        stamped = plan.log_append_time_ms
        # A NamedTuple's own constructor takes twice as long.
        return tuple.__new__(
            AppendOutcome,
            (_NO_ERROR, plan.first, end, stamped, bounds.log_start, must_wait, None, (), False),
        )

    def _not_planned(
        self, hosted: HostedPartition, plan: Repeated | Refusal, acks: int
    ) -> AppendOutcome:
        """Return the outcome of a batch that is refused, or was appended before."""
        if isinstance(plan, Refusal):
            return self.refused(hosted, plan)
        end = plan.last + 1
        return AppendOutcome(
            _NO_ERROR,
            plan.first,
            end,
            plan.log_append_time_ms,
            hosted.partition.log_start,
            acks != 0 and self._must_wait(hosted.partition, end, acks),
            None,
        )

    def _must_wait(self, partition: Partition, end: int, acks: int) -> bool:
        """True if the acknowledgement must wait. One that does not wait for the ISR needs the
        lease.
        """
        has_lease = acks != 1 or self._has_lease()
        return not partition.commitment.acknowledgeable(end, acks, has_lease=has_lease)

    def _append_failed(
        self, hosted: HostedPartition, plan: AppendPlan, failure: DiskError
    ) -> AppendOutcome:
        """Handle a failed write. A full disk only stops writes, and heals; any other error takes
        the directory out of service.
        """
        stays = isinstance(failure, DiskFullError | ExhaustedError)
        self._disks.fence_directory(hosted.manager, failure)
        return self.refused(hosted, hosted.partition.append_failed(plan, fenced=not stays))

    def _damaged(self, hosted: HostedPartition, damage: LogDamagedError) -> AppendOutcome:
        """Refuse an append to a log whose end is lost."""
        self._disks.note_damage(hosted, damage)
        return self.refused(hosted, _DAMAGED)

    @staticmethod
    def refused(hosted: HostedPartition, refusal: Refusal) -> AppendOutcome:
        """Return the outcome of a refused append."""
        hosted.counters.failed_produces += not refusal.is_correctable
        return AppendOutcome(
            refusal.error_code,
            base_offset=-1,
            end=-1,
            log_append_time_ms=-1,
            log_start=hosted.partition.log_start,
            must_wait=False,
            message=refusal.message,
            refused_records=refusal.records,
            is_correctable=refusal.is_correctable,
        )

    # -- batches of the broker itself

    def append_internal(
        self,
        hosted: HostedPartition,
        batch: bytes,
        *,
        control: ControlRecord | None = None,
        bumped: bool = False,
        leader_epoch_expected: int = -1,
    ) -> AppendOutcome:
        """Append exactly one batch that the broker or a coordinator has built: a marker, a change
        of owner, records of groups. The same three calls, without sequences and with acks=all.
        ``control`` is the content of a control batch; ``bumped``: a marker of transactions v2.
        """
        partition, now_ms = hosted.partition, self._clock.wall_ms()
        header = read_header(batch)
        plan = partition.admit_own(
            header,
            len(batch),
            control=control,
            bumped=bumped,
            leader_epoch_expected=leader_epoch_expected,
        )
        if not isinstance(plan, AppendPlan):
            return self._not_planned(hosted, plan, ACKS_ALL)
        stored = bytearray(batch)
        set_base_offset_and_epoch(stored, 0, plan.first, plan.leader_epoch)
        try:
            if isinstance(control, EndTxnMarker):
                hosted.log.expect_room()  # for the index of aborted transactions
            hosted.log.append((stored,), plan, now_ms)
        except DiskError as failure:
            return self._append_failed(hosted, plan, failure)
        except LogDamagedError as damage:
            return self._damaged(hosted, damage)
        gained_bytes = partition.appended(plan, now_ms)
        if partition.producers.newly_aborted:
            try:
                hosted.log.index_aborted()
            except DiskError as failure:
                # The marker is in the log and is replicated: only this directory is at fault.
                self._disks.fence_directory(hosted.manager, failure)
        self._parked.appended(hosted, plan.size_bytes, gained_bytes, must_wait=True)
        if not gained_bytes and partition.limits.flush_group:
            self._group_commits.request()
        return AppendOutcome(
            error_code=ErrorCode.NONE,
            base_offset=plan.first,
            end=plan.last + 1,
            log_append_time_ms=-1,
            log_start=partition.log_start,
            must_wait=partition.high_watermark <= plan.last,
            message=None,
        )

    # -- batches of a leader

    def append_replicated(
        self, hosted: HostedPartition, records: memoryview, leader_epoch: int, now_ms: int
    ) -> str | None:
        """Append a leader's batches as they are, in as few writes as possible. A batch that does
        not match its CRC and all batches after it are left out, and the reason is returned.
        ``now_ms`` is wall time. Raises DiskError, LogDamagedError.
        """
        partition, log = hosted.partition, hosted.log
        plans, problem = admit_replicated(hosted, records, leader_epoch)
        if problem == CRC_MISMATCH:
            self._counters.crc_errors_replication += 1
        position, left = 0, plans
        try:
            while left:
                count = log.append_run(records[position:], left, now_ms)
                taken, left = left[:count], left[count:]
                partition.replicated(taken, now_ms)
                for plan in taken:
                    position += plan.size_bytes
        finally:  # a marker counts, also if there is no room for what follows it
            if partition.producers.newly_aborted:
                log.index_aborted()
        if position:
            self._counters.replication_bytes_in += position
            if partition.limits.flush_group:
                self._group_commits.request()
        return problem
