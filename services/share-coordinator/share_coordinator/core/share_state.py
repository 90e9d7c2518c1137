"""State of one share-partition as the log has it, and how records change it.

A snapshot replaces the state; an update adds to the snapshot whose epoch it names. Updates of an
earlier snapshot may still be in a log whose beginning was deleted: they change nothing.
"""

from dataclasses import dataclass, replace

from tidemark.codec.share_records import ShareSnapshotValue, ShareUpdateValue
from tidemark.model.ids import LeaderEpoch, Offset, ProducerId
from tidemark.model.share_state import (
    TERMINAL_STATES,
    UNKNOWN_COUNT,
    UNKNOWN_START,
    DeliveryState,
    PendingBatch,
    StateEpoch,
    WriteState,
)

from share_coordinator.core import pending_batches
from share_coordinator.core.pending_batches import Pending
from share_coordinator.core.state_batches import Batches, combine


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareState:
    """Invariant: ``batches`` ascend, do not overlap, and begin at or above ``start_offset``. So do
    ``pending``, which outrank the batches that they overlap.
    """

    state_epoch: StateEpoch
    leader_epoch: LeaderEpoch
    """The greatest that has read or written the state."""
    start_offset: Offset
    delivery_complete_count: int = UNKNOWN_COUNT
    batches: Batches = ()
    pending: Pending = ()
    snapshot_epoch: int = 0
    update_count: int = 0
    """Updates in the log since the snapshot."""
    created_at: int
    """Wall ms."""

    def written(self, write: WriteState | ShareUpdateValue) -> "ShareState":
        """After a write that passed the fences, or its record. The start offset never goes back."""
        start = max(self.start_offset, write.start_offset)
        batches = combine(self.batches, write.batches, start)
        pending = pending_batches.lay_over(self.pending, write.pending)
        return replace(
            self,
            leader_epoch=max(self.leader_epoch, write.leader_epoch),
            start_offset=start,
            delivery_complete_count=_newer(
                write.delivery_complete_count, self.delivery_complete_count
            ),
            batches=batches,
            pending=pending_batches.remaining(pending, batches, start),
        )

    @property
    def has_letters(self) -> bool:
        """True if a record is a dead letter that is not archived yet."""
        return any(one.delivery_state is DeliveryState.ARCHIVING for one in self.batches)

    def pending_below(self, producer_id: ProducerId, epoch: int) -> Pending:
        """Return what is pending in transactions of a producer with an epoch below this one."""
        return tuple(
            one
            for one in self.pending
            if one.transaction.producer_id == producer_id and one.transaction.producer_epoch < epoch
        )

    def ended(self, producer_id: ProducerId, epoch: int, *, commits: bool) -> "ShareState":
        """After the end of the transactions of a producer with an epoch below this one."""
        over = self.pending_below(producer_id, epoch)
        ended = frozenset(one.transaction for one in over)
        outcomes = pending_batches.ended(over, commits=commits)
        complete = self.delivery_complete_count
        if commits and complete != UNKNOWN_COUNT:
            complete += sum(_offset_count(one) for one in over if one.outcome in TERMINAL_STATES)
        return replace(
            self,
            batches=combine(self.batches, outcomes, self.start_offset),
            pending=tuple(one for one in self.pending if one.transaction not in ended),
            delivery_complete_count=complete,
        )

    def as_snapshot(self, wall_ms: int) -> ShareSnapshotValue:
        """The next snapshot of this state."""
        return ShareSnapshotValue(
            snapshot_epoch=self.snapshot_epoch + 1,
            state_epoch=self.state_epoch,
            leader_epoch=self.leader_epoch,
            start_offset=self.start_offset,
            delivery_complete_count=self.delivery_complete_count,
            create_timestamp=self.created_at,
            write_timestamp=wall_ms,
            batches=self.batches,
            pending=self.pending,
        )

    def updated(self, value: ShareUpdateValue) -> "ShareState":
        """After the replay of an update."""
        if value.snapshot_epoch != self.snapshot_epoch:
            return self
        return replace(self.written(value), update_count=self.update_count + 1)

    def check(self) -> None:
        """Assert the invariant."""
        before = max(self.start_offset, 0) - 1
        for batch in self.batches:
            assert before < batch.first_offset, self
            assert batch.first_offset <= batch.last_offset, self
            before = batch.last_offset
        pending_batches.check(self.pending, self.batches, self.start_offset)


def from_snapshot(value: ShareSnapshotValue) -> ShareState:
    """The state after the replay of a snapshot."""
    return ShareState(
        state_epoch=value.state_epoch,
        leader_epoch=value.leader_epoch,
        start_offset=value.start_offset,
        delivery_complete_count=value.delivery_complete_count,
        batches=value.batches,
        pending=value.pending,
        snapshot_epoch=value.snapshot_epoch,
        created_at=value.create_timestamp,
    )


def update_of(state: ShareState, write: WriteState) -> ShareUpdateValue:
    """The update that makes ``state.written(write)`` of ``state``."""
    return ShareUpdateValue(
        snapshot_epoch=state.snapshot_epoch,
        leader_epoch=max(state.leader_epoch, write.leader_epoch),
        start_offset=write.start_offset,
        delivery_complete_count=write.delivery_complete_count,
        batches=write.batches,
        pending=write.pending,
    )


def leader_update(state: ShareState, leader_epoch: LeaderEpoch) -> ShareUpdateValue:
    """The update that makes a newer leader's epoch known to later owners of the state."""
    return ShareUpdateValue(
        snapshot_epoch=state.snapshot_epoch,
        leader_epoch=leader_epoch,
        start_offset=UNKNOWN_START,
    )


def _newer(written: int, before: int) -> int:
    return before if written == UNKNOWN_COUNT else written


def _offset_count(batch: PendingBatch) -> int:
    return batch.last_offset - batch.first_offset + 1
