"""CommitWait: an append that is not committed yet, and its outcome."""

from typing import Generic, NamedTuple, Protocol, TypeVar

from tidemark.model.errors import ErrorCode

from broker.core.partition import Partition
from broker.core.role import LEADER


class HasPartition(Protocol):
    """A partition with the shell's part of it. Parked requests wait for its identity."""

    @property
    def partition(self) -> Partition:
        """Decisions of the replica."""


HostedT = TypeVar("HostedT", bound=HasPartition)


class CommitWait(NamedTuple, Generic[HostedT]):
    """Records below ``end``, appended by the leader of ``leader_epoch``."""

    hosted: HostedT
    end: int
    leader_epoch: int

    @classmethod
    def of(cls, hosted: HostedT, end: int) -> "CommitWait[HostedT]":
        """Return the wait for records that have just been appended."""
        return tuple.__new__(cls, (hosted, end, hosted.partition.leader_epoch))

    @property
    def is_lost(self) -> bool:
        """True if another broker may lead, or has led: the records may be truncated, and their
        offsets reused.
        """
        partition = self.hosted.partition
        return partition.role is not LEADER or partition.leader_epoch != self.leader_epoch

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
