"""State of the multi-writer transactions of one transactional id, from its records.

Writers have slots of the transactional id. A slot keeps its producer id from transaction to
transaction, and raises its epoch each time it is assigned. Slots are assigned from the first on, so
there are never more than one transaction had writers. One ``HandleRecord`` decides the outcome of
all writers. From then on the writers' own records, which come before it in the log, cannot change.
"""

from collections.abc import Iterator
from typing import Final

from tidemark.codec.txn_records import (
    HandleRecord,
    HandleTombstone,
    TransactionState,
    WriterRecord,
    WriterTombstone,
)
from tidemark.model.topics import TopicPartition

from txn_coordinator.core import transaction
from txn_coordinator.core.effects import SendMarkers

NOTHING: Final[frozenset[TopicPartition]] = frozenset()


class MultiWriterTransaction:
    """State that changes by replay, and by ``markers_written``, which is not logged.

    Invariant: the slots of the current transaction are the first ``enlisted_count`` ones.
    """

    def __init__(self, transactional_id: str) -> None:
        self.transactional_id = transactional_id
        self.record: HandleRecord | None = None
        self.slots: dict[int, WriterRecord] = {}
        self.slot_of_writer: dict[str, int] = {}
        """Slots of the writers of the current transaction, without superseded slots."""
        self.slot_of_producer: dict[int, int] = {}
        self.enlisted_count = 0
        self.pair_count = 0
        """Number of (writer, partition) pairs of the current transaction."""
        self.outstanding: dict[int, set[TopicPartition]] = {}
        """Partitions without a marker of each producer id, while prepared."""

    @property
    def state(self) -> TransactionState:
        """State of the current transaction; Empty before the first."""
        return self.record.state if self.record is not None else transaction.EMPTY

    @property
    def is_open(self) -> bool:
        """True if readers may be waiting for the end of the transaction."""
        return self.state in transaction.OPEN

    def enlisted(self) -> Iterator[WriterRecord]:
        """Return the slots of the current transaction, in order."""
        return (self.slots[slot] for slot in range(self.enlisted_count))

    def is_enlisted(self, slot: WriterRecord) -> bool:
        """True if the slot is part of the current transaction."""
        return self.record is not None and slot.number == self.record.number

    def current_epoch(self, slot: WriterRecord) -> int:
        """Return the lowest epoch that is not fenced. The epoch of a slot is valid until its
        transaction is decided, or its writer gets another slot.
        """
        is_held = self.is_enlisted(slot) and not slot.superseded
        return slot.producer_epoch + (0 if is_held and self.state is transaction.ONGOING else 1)

    def partitions(self) -> frozenset[TopicPartition]:
        """Return the partitions of all writers of the open transaction."""
        if not self.is_open:
            return NOTHING
        return NOTHING.union(*(slot.partitions for slot in self.enlisted()))

    def markers(self, decided: HandleRecord) -> list[SendMarkers]:
        """Return the markers that a decision requires: of every writer, to each of its partitions.
        Their epoch is above the writer's (KIP-890). A transaction that begins and ends in one
        decision has none.
        """
        if self.record is None or decided.number != self.record.number:
            return []
        winners = frozenset(decided.winners)
        return [
            SendMarkers(
                self.transactional_id,
                slot.producer_id,
                slot.producer_epoch + 1,
                decided.updated_at,
                slot.slot in winners,
                tuple(sorted(slot.partitions)),
                2,
            )
            for slot in self.enlisted()
            if slot.partitions
        ]

    def markers_written(self, producer_id: int, partitions: tuple[TopicPartition, ...]) -> bool:
        """Note written markers of a producer. True if no marker is outstanding."""
        waiting = self.outstanding.get(producer_id)
        if waiting is not None:
            waiting.difference_update(partitions)
            if not waiting:
                del self.outstanding[producer_id]
        return not self.outstanding

    def load(self, record: HandleRecord | HandleTombstone | WriterRecord | WriterTombstone) -> None:
        """Take a record of the log. The state that follows from the records is found at the end of
        the log: compaction may have removed one of them and left an older one of another key.
        """
        match record:
            case HandleRecord():
                self.record = record
            case HandleTombstone():
                self.record = None
            case WriterRecord():
                self.slots[record.slot] = record
            case WriterTombstone():
                self.slots.pop(record.slot, None)

    def loaded(self) -> None:
        """Find the state that follows from the records, once the whole log is read."""
        if self.record is None:
            self.slots.clear()
        self.slot_of_producer = {slot.producer_id: slot.slot for slot in self.slots.values()}
        if self.record is not None:
            self._become_current(self.record.number)
            self._expect_markers(self.record)

    def replay_handle(self, record: HandleRecord) -> None:
        """Apply a new state of the current transaction, or the beginning of the next one."""
        is_next = self.record is None or record.number != self.record.number
        assert transaction.may_move(self.state, record.state), (self.record, record)
        self.record = record
        if is_next:
            self._become_current(record.number)
        self._expect_markers(record)

    def replay_writer(self, record: WriterRecord) -> None:
        """Apply the assignment of a slot, or an addition of partitions to it."""
        assert self.record is not None, record
        assert self.state is transaction.ONGOING, record
        assert record.number == self.record.number, record
        before = self.slots.get(record.slot)
        if before is not None:
            del self.slot_of_producer[before.producer_id]
        self.slots[record.slot] = record
        self.slot_of_producer[record.producer_id] = record.slot
        if before is not None and before.number == record.number:
            self.pair_count -= len(before.partitions)
        else:
            self.enlisted_count += 1
        self.pair_count += len(record.partitions)
        self._name(record)

    def replay_writer_tombstone(self, slot: int) -> None:
        """Remove a slot, before the whole id is removed."""
        assert not self.is_open, self.record
        gone = self.slots.pop(slot)
        del self.slot_of_producer[gone.producer_id]
        if self.is_enlisted(gone):
            self.enlisted_count -= 1
            self.pair_count -= len(gone.partitions)
            if not gone.superseded:
                del self.slot_of_writer[gone.writer]

    def tombstones(self) -> tuple[HandleTombstone | WriterTombstone, ...]:
        """Return the records that remove this id from the log. If an append stops in between, the
        first slots and their handle are left.
        """
        slots = sorted(self.slots, reverse=True)
        return (
            *(WriterTombstone(self.transactional_id, slot) for slot in slots),
            HandleTombstone(self.transactional_id),
        )

    def check(self) -> None:
        """Assert every invariant."""
        assert set(self.slot_of_producer.values()) == set(self.slots)
        assert len(self.slot_of_producer) == len(self.slots)
        enlisted = [slot for slot in self.slots.values() if self.is_enlisted(slot)]
        assert sorted(slot.slot for slot in enlisted) == list(range(self.enlisted_count))
        assert self.pair_count == sum(len(slot.partitions) for slot in enlisted)
        named = {slot.writer: slot.slot for slot in enlisted if not slot.superseded}
        assert self.slot_of_writer == named
        assert not self.outstanding or self.state in transaction.PREPARED
        for producer_id, partitions in self.outstanding.items():
            assert partitions
            assert partitions <= self.slots[self.slot_of_producer[producer_id]].partitions

    def _become_current(self, number: int) -> None:
        enlisted = [slot for slot in self.slots.values() if slot.number == number]
        self.enlisted_count = len(enlisted)
        self.pair_count = sum(len(slot.partitions) for slot in enlisted)
        self.slot_of_writer = {}
        for slot in enlisted:
            self._name(slot)

    def _expect_markers(self, record: HandleRecord) -> None:
        self.outstanding = {}
        if record.state in transaction.PREPARED:
            self.outstanding = {
                slot.producer_id: set(slot.partitions)
                for slot in self.enlisted()
                if slot.partitions
            }

    def _name(self, slot: WriterRecord) -> None:
        if not slot.superseded:
            self.slot_of_writer[slot.writer] = slot.slot
        elif self.slot_of_writer.get(slot.writer) == slot.slot:
            del self.slot_of_writer[slot.writer]
