"""PartitionReader: one read of a partition's log, for consumers and followers.

Synchronous, on the event loop: the hot path of a fetch is one call of ``read`` for each partition.
"""

from typing import Final

from tidemark.model.errors import ErrorCode
from tidemark.storage.disk import DiskError

from broker.core.routing import question_refused
from broker.shell.partitions.disk_health import DiskHealth
from broker.shell.partitions.hosted import HostedPartition, ReadOutcome
from broker.storage.directory import LogDamagedError
from broker.storage.log import OffsetOutOfRangeError

_NO_ERROR: Final = ErrorCode.NONE


class PartitionReader:
    """Reads logs; a disk that fails and a log that is damaged are reported to ``disks``."""

    def __init__(self, disks: DiskHealth) -> None:
        self._disks = disks

    def read(
        self,
        hosted: HostedPartition,
        fetch_offset: int,
        *,
        bytes_max: int,
        read_committed: bool = False,
        leader_epoch_expected: int = -1,
        follower_may: bool = False,
    ) -> ReadOutcome:
        """Return what is readable from ``fetch_offset``: slices of up to ``bytes_max`` bytes, the
        first batch always whole. ``read_committed``: below the last stable offset, with the aborted
        transactions in it. ``follower_may``: an in-sync follower serves the read too, below its own
        high watermark.
        """
        partition = hosted.partition
        refuses = partition.read_refused if follower_may else partition.epoch_refused
        refused = refuses(leader_epoch_expected)
        if refused is not None:
            refused = question_refused(partition, leader_epoch_expected) or refused
            return ReadOutcome(refused.error_code, None, -1, -1, -1)
        high_watermark, log_start = partition.bounds.high_watermark, partition.bounds.log_start
        end = partition.last_stable if read_committed else high_watermark
        if fetch_offset >= end:
            code = (
                ErrorCode.OFFSET_OUT_OF_RANGE
                if fetch_offset > partition.bounds.log_end
                else ErrorCode.NONE
            )
            return ReadOutcome(code, None, high_watermark, partition.last_stable, log_start)
        outcome = self.read_log(hosted, fetch_offset, bytes_max=bytes_max, end=end)
        if not read_committed or outcome.read is None or not outcome.read.slices:
            return outcome
        return self._with_aborted(hosted, outcome, fetch_offset, end)

    def _with_aborted(
        self, hosted: HostedPartition, outcome: ReadOutcome, start: int, end: int
    ) -> ReadOutcome:
        assert outcome.read is not None
        try:
            aborted = hosted.log.history.aborted_in(start, outcome.read, end)
        except DiskError as failure:
            self._disks.fence_directory(hosted.manager, failure)
            return ReadOutcome(ErrorCode.KAFKA_STORAGE_ERROR, None, -1, -1, -1)
        except LogDamagedError as damage:
            self._disks.note_damage(hosted, damage)
            return ReadOutcome(ErrorCode.KAFKA_STORAGE_ERROR, None, -1, -1, -1)
        if not aborted:
            return outcome
        return outcome._replace(aborted=[(txn.producer_id, txn.first_offset) for txn in aborted])

    def read_log(
        self, hosted: HostedPartition, fetch_offset: int, *, bytes_max: int, end: int
    ) -> ReadOutcome:
        """Return slices of the log below ``end``: whole batches, the first one however large."""
        partition = hosted.partition
        high_watermark, log_start = partition.bounds.high_watermark, partition.bounds.log_start
        stable = partition.last_stable
        try:
            found = hosted.log.read(fetch_offset, bytes_max, end=end)
        except OffsetOutOfRangeError:
            return ReadOutcome(
                ErrorCode.OFFSET_OUT_OF_RANGE, None, high_watermark, stable, log_start
            )
        except DiskError as failure:
            self._disks.fence_directory(hosted.manager, failure)
            return ReadOutcome(ErrorCode.KAFKA_STORAGE_ERROR, None, -1, -1, -1)
        except LogDamagedError as damage:
            self._disks.note_damage(hosted, damage)
            return ReadOutcome(ErrorCode.KAFKA_STORAGE_ERROR, None, -1, -1, -1)
        # A NamedTuple's own constructor takes twice as long.
        return tuple.__new__(
            ReadOutcome, (_NO_ERROR, found, high_watermark, stable, log_start, None, None, -1)
        )
