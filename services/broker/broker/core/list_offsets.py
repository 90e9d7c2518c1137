"""Offsets for ListOffsets: those of marks (latest, earliest...) from the state of a partition, and
a search of the log for those of a timestamp.

    begin --> Seek --> a batch: searched --> Seek, or the offset
      |         |
      v         +----> no batch: exhausted
    the error
"""

from typing import NamedTuple

from tidemark.kafka.list_offsets import (
    EARLIEST_LOCAL_TIMESTAMP,
    EARLIEST_PENDING_UPLOAD_TIMESTAMP,
    EARLIEST_TIMESTAMP,
    LATEST_TIERED_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
)
from tidemark.model.errors import ErrorCode

from broker.core.partition import Partition, Role
from broker.core.role import other_epoch
from broker.core.routing import question_refused


class FoundOffset(NamedTuple):
    """An offset, or an error. ``offset`` is -1 if no record matches."""

    error_code: ErrorCode = ErrorCode.NONE
    offset: int = -1
    timestamp: int = -1
    leader_epoch: int = -1


def at_mark(
    partition: Partition,
    timestamp: int,
    *,
    leader_epoch_expected: int = -1,
    read_committed: bool = False,
) -> FoundOffset | None:
    """Return the offset of a mark, or an error; None: ``timestamp`` needs an OffsetSearch.

    The latest offset is the end of the records that this isolation level may read, and its epoch is
    that of the leader, whatever epoch the records there have.
    """
    refused = question_refused(partition, leader_epoch_expected)
    if refused is not None:
        return FoundOffset(refused.error_code)
    if timestamp == LATEST_TIMESTAMP:
        # A new leader's high watermark may be below the one that its predecessor returned
        # (KIP-207).
        if not partition.commitment.is_known:
            return FoundOffset(ErrorCode.OFFSET_NOT_AVAILABLE)
        end = _readable_end(partition, read_committed=read_committed)
        return FoundOffset(ErrorCode.NONE, end, leader_epoch=partition.leader_epoch)
    if timestamp in (EARLIEST_TIMESTAMP, EARLIEST_LOCAL_TIMESTAMP):
        return _with_epoch(partition, partition.log_start)
    if timestamp in (LATEST_TIERED_TIMESTAMP, EARLIEST_PENDING_UPLOAD_TIMESTAMP):
        return FoundOffset()  # nothing is tiered
    if timestamp >= 0 or timestamp == MAX_TIMESTAMP:
        return None
    return FoundOffset(ErrorCode.INVALID_REQUEST)


def at_replica_mark(
    partition: Partition, timestamp: int, *, leader_epoch_expected: int = -1
) -> FoundOffset | None:
    """Return the start or end offset of this replica's own log, committed or not, leader or not, or
    an error. For tools that observe replicas. None for other marks, and if the log has failed.
    """
    if partition.role is Role.FAILED:
        return None
    refused = other_epoch(leader_epoch_expected, partition.leader_epoch)
    if refused is not None:
        return FoundOffset(refused.error_code)
    if timestamp == LATEST_TIMESTAMP:
        return _with_epoch(partition, partition.log_end)
    if timestamp == EARLIEST_TIMESTAMP:
        return _with_epoch(partition, partition.log_start)
    return None


class Seek(NamedTuple):
    """Request to read the next batch, below ``end``, that may contain the record."""

    end: int
    start: int | None = None
    """First offset to read; None: the log start offset."""
    first_offset: int = 0
    """First offset of the batch that can be the answer."""


class OffsetSearch:
    """Search for the first record not older than ``timestamp`` ms, or (MAX_TIMESTAMP) the first one
    with the highest timestamp, among the records that the isolation level may read.
    """

    __slots__ = ("_end", "_is_for_maximum", "_leader_epoch", "_partition")

    def __init__(self, partition: Partition, timestamp: int, *, read_committed: bool) -> None:
        self._partition = partition
        self._is_for_maximum = timestamp == MAX_TIMESTAMP
        self._end = _readable_end(partition, read_committed=read_committed)
        self._leader_epoch = partition.leader_epoch

    def begin(self) -> Seek | FoundOffset:
        """Return the first range to read, or an error."""
        if self._is_for_maximum and not self._partition.commitment.is_known:
            return FoundOffset(ErrorCode.OFFSET_NOT_AVAILABLE)
        return self._seek(None)

    def exhausted(self) -> FoundOffset:
        """Return the answer if no batch is left. A new leader may not yet have all committed
        records, one of which may match (KIP-207).
        """
        is_final = self._is_for_maximum or self._partition.commitment.is_known
        return FoundOffset(ErrorCode.NONE if is_final else ErrorCode.OFFSET_NOT_AVAILABLE)

    def searched(self, batch_end: int, record: tuple[int, int] | None) -> Seek | FoundOffset:
        """Return the answer after reading a batch, or the next range to read.

        ``record`` is the offset and timestamp of the batch's first match. A batch may lack the
        record that its header announces: after compaction, or as its producer wrote it.
        """
        partition = self._partition
        if record is not None and (self._is_for_maximum or record[0] >= partition.log_start):
            return _with_epoch(partition, *record)
        if self._is_for_maximum:
            return FoundOffset()
        return self.passed(batch_end)

    def passed(self, start: int) -> Seek | FoundOffset:
        """Return the next range to read after no batch below ``start`` matched. Another leader may
        have replaced what follows.
        """
        partition = self._partition
        if partition.leader_epoch != self._leader_epoch or partition.epoch_refused(-1) is not None:
            return FoundOffset(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return self._seek(start)

    def _seek(self, start: int | None) -> Seek:
        """The first batch of the log may have records below the log start offset."""
        first_offset = 0 if self._is_for_maximum else self._partition.log_start
        return Seek(self._end, start, first_offset)


def _readable_end(partition: Partition, *, read_committed: bool) -> int:
    return partition.last_stable if read_committed else partition.high_watermark


def _with_epoch(partition: Partition, offset: int, timestamp: int = -1) -> FoundOffset:
    is_in_log = offset < partition.log_end
    epoch = partition.epochs.epoch_of(offset) if is_in_log else partition.leader_epoch
    return FoundOffset(ErrorCode.NONE, offset, timestamp, epoch)
