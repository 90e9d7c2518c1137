"""ShareStateLog: the content of one partition of __share_group_state, read without the coordinator.

It takes every record as it is committed, in the order of the log, and raises BrokenError for a log
that no sequence of owners and leaders can have written. test_share_history.py gives each rule a log
that it must reject.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from share_coordinator.core.share_state import ShareState
from share_coordinator.core.share_states import ShareStates
from tidemark.codec.control_record import OwnerRecord
from tidemark.codec.share_records import (
    ShareSnapshotRecord,
    ShareSnapshotValue,
    ShareStateRecord,
    ShareUpdateValue,
)
from tidemark.codec.share_transaction_records import TransactionEndRecord
from tidemark.model.share_state import (
    TERMINAL_STATES,
    UNKNOWN_START,
    DeliveryState,
    PendingBatch,
    SharePartitionKey,
    StateBatch,
    TransactionKey,
)

from sim.checkers import require
from sim.cluster.share_history import ShareHistory

Delivered = tuple[int, DeliveryState]
"""Delivery count and state of an offset, in the order in which they replace one another."""
Held = tuple[TransactionKey, Delivered, DeliveryState]
"""Open transaction of an offset, with the delivery count and the state after a commit, and the
state until then: ACQUIRED, or ARCHIVING of a dead letter.
"""
NEVER: Final[Delivered] = (0, DeliveryState.AVAILABLE)


@dataclass
class KeptState:
    """State of one share-partition, by offset."""

    state_epoch: int
    leader_epoch: int
    start: int
    snapshot_epoch: int
    """Epoch of the latest snapshot, to which updates belong."""
    by_offset: dict[int, Delivered] = field(default_factory=dict)
    pending: dict[int, Held] = field(default_factory=dict)

    def drop_outranked(self) -> None:
        """Drop pending acknowledgements of records that were delivered since, or are passed."""
        self.pending = {
            offset: (transaction, (count, outcome), before)
            for offset, (transaction, (count, outcome), before) in self.pending.items()
            if offset >= self.start and self.by_offset.get(offset, NEVER) <= (count, before)
        }

    def cut_to(self, end: int) -> None:
        """Drop what is about records from ``end`` on."""
        self.start = min(self.start, end)
        self.by_offset = {at: one for at, one in self.by_offset.items() if at < end}
        self.pending = {at: one for at, one in self.pending.items() if at < end}

    def is_outranked(self, offset: int, delivered: Delivered) -> bool:
        """Return True for a state of an earlier delivery than the one that is pending."""
        held = self.pending.get(offset)
        return held is not None and delivered < (held[1][0], held[2])


@dataclass
class ShareStateLog:
    """Log of one partition. What it finds finished is checked by the history."""

    name: str
    history: ShareHistory
    owner_epoch: int = 0
    states: dict[SharePartitionKey, KeptState] = field(default_factory=dict)
    epochs: dict[SharePartitionKey, int] = field(default_factory=dict)
    """Highest state epoch of each share-partition, those of deleted states included."""

    def takes(self, record: ShareStateRecord) -> None:
        """Record a committed snapshot or update."""
        key, value = record.key, record.value
        if value is None:
            if isinstance(record, ShareSnapshotRecord):
                self.states.pop(key, None)
        elif isinstance(value, ShareSnapshotValue):
            self._takes_snapshot(key, value)
        else:
            self._takes_update(key, value)

    def _takes_snapshot(self, key: SharePartitionKey, value: ShareSnapshotValue) -> None:
        kept = self.states.get(key)
        if kept is not None and kept.state_epoch == value.state_epoch:
            self._follows_losses(key, kept, value)
            require(
                value.start_offset >= kept.start,
                "the start never goes back",
                f"{key}: {kept.start} to {value.start_offset}",
            )
            kept.snapshot_epoch = value.snapshot_epoch
            self._writes(key, kept, value)
            named = dict(_by_offset(value.batches, kept.start))
            require(
                all(named.get(offset) == one for offset, one in kept.by_offset.items()),
                "a snapshot has all that was written",
                f"{key}: {named}, kept {kept.by_offset}",
            )
            held = dict(_pending_by_offset(value.pending))
            require(
                held == kept.pending,
                "a snapshot has all that was written",
                f"{key}: {held} is pending, kept {kept.pending}",
            )
            return
        require(
            value.state_epoch > self.epochs.get(key, -1),
            "a state that begins again has a higher epoch",
            f"{key}: {value.state_epoch} after {self.epochs.get(key)}",
        )
        require(not value.batches, "a state begins without deliveries", f"{key}: {value.batches}")
        self.epochs[key] = value.state_epoch
        self.states[key] = KeptState(
            value.state_epoch, value.leader_epoch, value.start_offset, value.snapshot_epoch
        )
        self.history.begins(key, value.state_epoch)
        self.history.starts(key, value.state_epoch, value.start_offset)

    def _takes_update(self, key: SharePartitionKey, value: ShareUpdateValue) -> None:
        kept = self.states.get(key)
        if kept is not None and kept.snapshot_epoch == value.snapshot_epoch:
            self._follows_losses(key, kept, value)
            self._writes(key, kept, value)

    def _follows_losses(
        self, key: SharePartitionKey, kept: KeptState, value: ShareSnapshotValue | ShareUpdateValue
    ) -> None:
        """Cut the state to what the log has, with the first record of a leader after a loss: no
        record that it delivers is one that the state is about.
        """
        end = self.history.end_left(key, kept.leader_epoch, value.leader_epoch)
        if end is not None:
            kept.cut_to(end)
            self.history.forgets(key, kept.state_epoch, end)

    def _writes(
        self, key: SharePartitionKey, kept: KeptState, value: ShareSnapshotValue | ShareUpdateValue
    ) -> None:
        require(
            value.leader_epoch >= kept.leader_epoch,
            "the state takes no write of an earlier leader",
            f"{key}: leader epoch {value.leader_epoch} after {kept.leader_epoch}",
        )
        kept.leader_epoch = value.leader_epoch
        for offset, delivered in _by_offset(value.batches, kept.start):
            require(
                delivered[1] is not DeliveryState.ACQUIRED,
                "locks are not written",
                f"{key}@{offset}",
            )
            self._delivers(key, kept, offset, delivered)
        if value.start_offset != UNKNOWN_START:
            self._moves_start(key, kept, value.start_offset)
        kept.pending |= dict(_pending_by_offset(value.pending))
        kept.drop_outranked()

    def ends_transactions(self, record: TransactionEndRecord) -> None:
        """Record the end of a producer's transactions: it gives their records an outcome."""
        end = record.value
        if end is None:
            return
        for key, kept in self.states.items():
            over = {
                offset: held
                for offset, held in kept.pending.items()
                if held[0].producer_id == record.producer_id
                and held[0].producer_epoch < end.open_from
            }
            for offset, (transaction, (count, outcome), before) in over.items():
                self.history.transactions.ends(transaction, commits=end.commits)
                del kept.pending[offset]
                if before is DeliveryState.ARCHIVING:
                    if end.commits:
                        self.history.letters.archives((key.topic_id, offset))
                        kept.by_offset[offset] = (count, outcome)
                    continue
                state = outcome if end.commits else DeliveryState.AVAILABLE
                self._delivers(key, kept, offset, (count, state))

    def _delivers(
        self, key: SharePartitionKey, kept: KeptState, offset: int, delivered: Delivered
    ) -> None:
        before = kept.by_offset.get(offset, delivered)
        if before > delivered:
            return  # an earlier write that arrives late
        # An acknowledgement whose answer was lost may be written, and the record delivered again.
        require(
            before == delivered or not self.history.is_answered(key, kept.state_epoch, offset),
            "a record whose acknowledgement was answered stays finished",
            f"{key}@{offset}: {delivered} after {before}",
        )
        state, letter = before[1], (key.topic_id, offset)
        self.history.letters.is_kept(letter, kept.state_epoch, state, delivered[1])
        kept.by_offset[offset] = delivered
        is_outranked = kept.is_outranked(offset, delivered)
        self.history.is_written(
            key, kept.state_epoch, offset, *delivered, is_outranked=is_outranked
        )

    def _moves_start(self, key: SharePartitionKey, kept: KeptState, start: int) -> None:
        for offset in range(kept.start, start) if kept.start != UNKNOWN_START else ():
            passed = kept.by_offset.pop(offset, NEVER)
            letter = (key.topic_id, offset)
            self.history.letters.is_passed(letter, kept.state_epoch, *passed)
            self.history.is_passed(key, kept.state_epoch, offset)
        kept.start = max(kept.start, start)  # a write that arrives late has an earlier start
        self.history.starts(key, kept.state_epoch, kept.start)

    def takes_over(self, owner: OwnerRecord) -> None:
        """Record a committed change of owner."""
        require(
            owner.owner_epoch >= self.owner_epoch,
            "the log has one owner after another",
            f"{self.name}: {owner.owner_epoch} after {self.owner_epoch}",
        )
        self.owner_epoch = owner.owner_epoch

    def remembers(self, owner: str, states: ShareStates) -> None:
        """Check the state that an owner holds while nothing of it waits to be written."""
        held = {key: _held(states.of(key)) for key in states.share_partitions()}
        kept = {
            key: (one.state_epoch, one.leader_epoch, one.start, one.by_offset, one.pending)
            for key, one in self.states.items()
        }
        require(
            held == kept,
            "an owner holds what the log says",
            f"{owner}: {held}, the log says {kept}",
        )

    def is_finished(self, key: SharePartitionKey, state_epoch: int, offset: int) -> bool:
        """Return True if the record is finished or a dead letter, or if the state has begun again
        since.
        """
        kept = self.states.get(key)
        if kept is None or kept.state_epoch != state_epoch or offset < kept.start:
            return True
        state = kept.by_offset.get(offset, NEVER)[1]
        return state in TERMINAL_STATES or state is DeliveryState.ARCHIVING


def _held(
    state: ShareState | None,
) -> tuple[int, int, int, dict[int, Delivered], dict[int, Held]] | None:
    if state is None:
        return None
    by_offset = dict(_by_offset(state.batches, state.start_offset))
    pending = dict(_pending_by_offset(state.pending))
    return state.state_epoch, state.leader_epoch, state.start_offset, by_offset, pending


def _by_offset(batches: tuple[StateBatch, ...], start: int) -> Iterator[tuple[int, Delivered]]:
    for first, last, state, count in batches:
        for offset in range(max(first, start), last + 1):
            yield offset, (count, state)


def _pending_by_offset(batches: tuple[PendingBatch, ...]) -> Iterator[tuple[int, Held]]:
    for one in batches:
        for offset in range(one.first_offset, one.last_offset + 1):
            yield offset, (one.transaction, (one.delivery_count, one.outcome), one.before)
