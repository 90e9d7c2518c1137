"""DeletionWait: a deletion of records that followers have not taken over yet, and its outcome."""

from typing import Generic, NamedTuple

from tidemark.model.errors import ErrorCode

from broker.core.commit_wait import HostedT
from broker.core.role import LEADER


class DeletionWait(NamedTuple, Generic[HostedT]):
    """Records below ``offset``, deleted by the leader of ``leader_epoch``."""

    hosted: HostedT
    offset: int
    leader_epoch: int

    @classmethod
    def of(cls, hosted: HostedT, offset: int) -> "DeletionWait[HostedT]":
        """Return the wait for records that the leader has just deleted."""
        return cls(hosted, offset, hosted.partition.leader_epoch)

    @property
    def is_lost(self) -> bool:
        """True if another broker may lead, or has led: the records may be there again."""
        partition = self.hosted.partition
        return partition.role is not LEADER or partition.leader_epoch != self.leader_epoch

    @property
    def is_done(self) -> bool:
        """True if no replica that may lead has the records. Valid only if they are not lost."""
        return self.hosted.partition.commitment.low_watermark >= self.offset

    def outcome(self) -> ErrorCode:
        """Return NONE, or the error of a deletion that may come undone; a client may repeat it."""
        if self.is_lost:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.NONE if self.is_done else ErrorCode.REQUEST_TIMED_OUT
