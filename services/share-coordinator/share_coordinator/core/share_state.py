"""State of one share-partition as the log has it, and how records change it.

A snapshot replaces the state; an update adds to the snapshot whose epoch it names. Updates of an
earlier snapshot may still be in a log whose beginning was deleted: they change nothing.
"""

from dataclasses import dataclass, replace

from tidemark.codec.share_records import ShareSnapshotValue, ShareUpdateValue
from tidemark.model.ids import NO_EPOCH, NO_OFFSET, LeaderEpoch, Offset, ProducerId
from tidemark.model.share_state import (
    TERMINAL_STATES,
    UNKNOWN_COUNT,
    UNKNOWN_START,
    DeliveryState,
    PendingBatch,
    ReadState,
    StateBatch,
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
    log_epoch: LeaderEpoch = NO_EPOCH
    """That in whose log the offsets are records. NO_EPOCH: unknown, as of a start that was reset
    and that no log has reached yet.
    """
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
            log_epoch=self.log_epoch_after(write),
            start_offset=start,
            delivery_complete_count=self._complete_after(write),
            batches=batches,
            pending=pending_batches.remaining(pending, batches, start),
        )

    def _complete_after(self, write: WriteState | ShareUpdateValue) -> int:
        """Return the count after a write. One that arrives after a later one counts from an earlier
        start: with it the lag would be too small until the next write.
        """
        is_late = UNKNOWN_START < write.start_offset < self.start_offset
        if is_late or write.delivery_complete_count == UNKNOWN_COUNT:
            return self.delivery_complete_count
        return write.delivery_complete_count

    def log_epoch_after(self, write: WriteState | ShareUpdateValue) -> LeaderEpoch:
        """Return the epoch in whose log all offsets are, after a write or its record. A leader
        writes about records of its own log.
        """
        if isinstance(write, WriteState):
            return max(self.log_epoch, write.leader_epoch)
        if write.log_epoch != NO_EPOCH or write.leader_epoch > self.log_epoch:
            return write.log_epoch
        return self.log_epoch

    @property
    def end_offset(self) -> Offset:
        """End, exclusive, of what the state is about."""
        lasts = [every[-1].last_offset for every in (self.batches, self.pending) if every]
        return Offset(max(self.start_offset, *(last + 1 for last in lasts), NO_OFFSET))

    def cut_to(self, log_end: Offset) -> "ShareState":
        """After the log has lost all from an offset on: what is written there now is new."""
        batches = pending_batches.below(log_end, self.batches)
        complete = sum(_offset_count(one) for one in batches if one[2] in TERMINAL_STATES)
        return replace(
            self,
            start_offset=min(self.start_offset, log_end),
            batches=batches,
            pending=pending_batches.below(log_end, self.pending),
            delivery_complete_count=min(self.delivery_complete_count, complete),
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
            log_epoch=self.log_epoch,
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
        log_epoch=value.log_epoch,
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
        log_epoch=state.log_epoch_after(write),
    )


def leader_update(state: ShareState, read: ReadState) -> ShareUpdateValue:
    """The update that makes a newer leader's epoch known to later owners of the state."""
    return ShareUpdateValue(
        snapshot_epoch=state.snapshot_epoch,
        leader_epoch=read.leader_epoch,
        start_offset=UNKNOWN_START,
        log_epoch=_log_epoch_of(state, read),
    )


def cut_by(state: ShareState, read: ReadState) -> ShareState | None:
    """The state after a read by a newer leader, if its log has lost records that the state is
    about: an unclean election, or a power failure, took them. None: it has not, as far as is known.

    A start that was reset may be beyond the log's end. No epoch has reached it, and it stays.
    """
    if read.log is None or state.log_epoch == NO_EPOCH or state.log_epoch >= read.leader_epoch:
        return None
    log_end = read.log.end_of(state.log_epoch)
    if state.end_offset <= log_end:
        return None
    cut = state.cut_to(log_end)
    return replace(cut, leader_epoch=read.leader_epoch, log_epoch=read.leader_epoch)


def _log_epoch_of(state: ShareState, read: ReadState) -> LeaderEpoch:
    is_in_log = read.log is not None and state.end_offset <= read.log.log_end
    return read.leader_epoch if is_in_log else NO_EPOCH


def _offset_count(batch: StateBatch | PendingBatch) -> int:
    return batch.last_offset - batch.first_offset + 1
