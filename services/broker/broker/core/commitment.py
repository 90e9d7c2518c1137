"""Commitment: which records of a leader are committed, and which writes may be acknowledged.

A record is committed when every member of the maximal ISR has it, and the agreed ISR has at least
min.insync.replicas members (KIP-966). With ``flush=group`` only records on disk count.
"""

from typing import Final

from tidemark.model.errors import ErrorCode

from broker.core.batch_rules import PartitionLimits, Refusal
from broker.core.bounds import LogBounds
from broker.core.replica_set import ReplicaSet
from broker.core.unread_bytes import UNKNOWN_BYTES, UnreadBytes

ACKS_ALL: Final = -1
_BAD_ACKS: Final = Refusal(ErrorCode.INVALID_REQUIRED_ACKS, "acks must be -1 (all), 0 or 1")
_NOT_ENOUGH: Final = Refusal(
    ErrorCode.NOT_ENOUGH_REPLICAS, "fewer in-sync replicas than min.insync.replicas"
)


class Commitment:
    """High watermark of one partition, over its bounds and replicas. Only a leader moves it here.

    Invariant: ``at_once`` only if ``alone``, and both are as ``settle`` derives them.
    """

    __slots__ = (
        "_bounds",
        "_replica_set",
        "alone",
        "at_once",
        "epoch_start",
        "leads",
        "limits",
        "min_insync",
        "unread",
    )

    def __init__(self, limits: PartitionLimits, bounds: LogBounds, replica_set: ReplicaSet) -> None:
        self.limits = limits
        self._bounds = bounds
        self._replica_set = replica_set
        self.leads = False
        self.epoch_start = -1
        """The log's end when this replica began to lead; -1 before it ever did."""
        self.min_insync = limits.min_insync_replicas
        """min.insync.replicas, but no more than there are replicas (KIP-966)."""
        self.alone = False
        """True if an append alone may move the high watermark: no other replica must have the
        record, and enough are in sync.
        """
        self.at_once = False
        """Alone, and records count before they are synced: the high watermark is the log's end."""
        self.unread = UnreadBytes()

    def begin_leading(self) -> None:
        """Begin a leader epoch. The high watermark stays (KIP-207)."""
        self.leads = True
        self.epoch_start = self._bounds.log_end
        self.unread.clear()

    def stop_leading(self) -> None:
        """Leave the high watermark to another leader."""
        self.leads = False
        self.unread.clear()

    def settle(self) -> int:
        """Derive from ISR, replicas and limits what the hot path reads. Return the bytes that
        became readable.
        """
        replicas = self._replica_set
        self.min_insync = min(self.limits.min_insync_replicas, max(len(replicas.assigned), 1))
        self.alone = replicas.is_alone and len(replicas.isr.agreed) >= self.min_insync
        gained_bytes = self.move()
        self.at_once = self.alone and self.leads and not self.limits.flush_group
        return gained_bytes

    def move(self) -> int:
        """Move the high watermark to the minimum over the maximal ISR, and never back. Return the
        bytes that became readable; UNKNOWN_BYTES if some are older than this leadership.
        """
        bounds, replicas = self._bounds, self._replica_set
        if not self.leads or len(replicas.isr.agreed) < self.min_insync:
            return 0
        synced = self.limits.flush_group
        end = bounds.synced_end if synced else bounds.log_end
        if not self.alone:
            end = replicas.common_end(end, synced=synced)
        before = bounds.high_watermark
        if end <= before:
            return 0
        bounds.high_watermark = end
        gained_bytes = self.unread.passed(end)
        return gained_bytes if before >= self.epoch_start else UNKNOWN_BYTES

    @property
    def is_known(self) -> bool:
        """True if the high watermark may be given to readers: it has reached what former leaders
        left (KIP-207).
        """
        return self._bounds.high_watermark >= self.epoch_start

    @property
    def joins_at(self) -> int:
        """Offset below which a follower must have all records before it may join the ISR: all that
        is committed, and all that former leaders left.
        """
        return max(self._bounds.high_watermark, self.epoch_start)

    @property
    def low_watermark(self) -> int:
        """Offset below which no replica that may lead has records (KIP-107); -1 while that is not
        known, or fewer than min.insync.replicas are in sync: others may lead then (KIP-966).
        """
        replicas = self._replica_set
        if not self.leads or len(replicas.isr.agreed) < self.min_insync:
            return -1
        return min(self._bounds.log_start, replicas.common_start(self._bounds.log_start))

    # -- acknowledgements

    def acks_refused(self, acks: int) -> Refusal | None:
        """Return the refusal of a write with these acks, else None."""
        if acks == ACKS_ALL:
            too_few = len(self._replica_set.isr.agreed) < self.min_insync
            return _NOT_ENOUGH if too_few else None
        return None if acks in (0, 1) else _BAD_ACKS

    def may_wait(self, acks: int) -> bool:
        """Return True if a write may not be acknowledged at once, as far as is known before the
        append.
        """
        if self.limits.flush_group:
            return acks != 0
        return acks == ACKS_ALL and len(self._replica_set.isr.agreed) > 1

    def acknowledgeable(self, end: int, acks: int, *, has_lease: bool = True) -> bool:
        """Return True if a write up to ``end`` (exclusive) may be acknowledged now.

        ``flush=group`` promises the disk for acks=1 as well. Without a lease another broker may
        lead already: only the ISR can rule that out.
        """
        if acks == 1 and has_lease and not self.limits.flush_group:
            return True
        return self._bounds.high_watermark >= end

    def is_only_leader(self, *, has_lease: bool) -> bool:
        """Return True if no other replica can lead yet: by the lease, or because no other is in
        sync, so that none may be elected.
        """
        return self.leads and (has_lease or self.alone)

    def check(self) -> None:
        """Assert the invariant."""
        assert self.alone or not self.at_once, "alone, or not at once"
        assert self.leads or not self.at_once, "only a leader commits"
