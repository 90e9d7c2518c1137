"""CommitWait: an append that is not committed yet, and its outcome."""

from typing import NamedTuple

from tidemark.model.errors import ErrorCode

from broker.core.partition import Role
from broker.shell.partitions.hosted import HostedPartition


class CommitWait(NamedTuple):
    """Records below ``end``, appended by the leader of ``leader_epoch``."""

    hosted: HostedPartition
    end: int
    leader_epoch: int

    @classmethod
    def of(cls, hosted: HostedPartition, end: int) -> "CommitWait":
        """Return the wait for records that have just been appended."""
        return cls(hosted, end, hosted.partition.leader_epoch)

    @property
    def is_lost(self) -> bool:
        """True if another broker may lead, or has led: the records may be truncated, and their
        offsets reused.
        """
        partition = self.hosted.partition
        return partition.role is not Role.LEADER or partition.leader_epoch != self.leader_epoch

    @property
    def is_committed(self) -> bool:
        """True if the records are committed. Valid only if they are not lost: a follower's
        watermark passes offsets of other records.
        """
        return self.hosted.partition.bounds.high_watermark >= self.end

    def failure(self) -> ErrorCode:
        """Return the error of an append that is not acknowledged; a client may repeat it."""
        if self.is_lost:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        partition = self.hosted.partition
        if len(partition.isr) < partition.commitment.min_insync:
            return ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        return ErrorCode.REQUEST_TIMED_OUT
