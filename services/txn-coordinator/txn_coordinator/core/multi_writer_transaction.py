"""The transactions of one transactional id that have several writers: what its records say.

Writers are slots of the transactional id. Each keeps its producer id from transaction to
transaction and raises its epoch at each hand-out; slots are handed out from the first on, so there
are never more of them than one transaction had writers. One ``HandleRecord`` decides the outcome of
all: from then on the writers' own records, which come before it in the log, cannot change.
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
    """Changed by replay, and by ``marker_written``, which the log need not know.

    Invariant: the slots of the present transaction are the first ``enlisted_count`` ones.
    """

    def __init__(self, transactional_id: str) -> None:
        self.transactional_id = transactional_id
        self.record: HandleRecord | None = None
        self.slots: dict[int, WriterRecord] = {}
        self.slot_of_writer: dict[str, int] = {}
        """Of the present transaction's names, those that are not superseded."""
        self.slot_of_producer: dict[int, int] = {}
        self.enlisted_count = 0
        self.pair_count = 0
        """(writer, partition) pairs of the present transaction."""
        self.outstanding: dict[int, set[TopicPartition]] = {}
        """By producer id, while prepared: where markers are not known to be."""

    @property
    def state(self) -> TransactionState:
        """Empty before the first transaction."""
        return self.record.state if self.record is not None else transaction.EMPTY

    @property
    def is_open(self) -> bool:
        """Whether readers may be waiting for its end."""
        return self.state in transaction.OPEN

    def enlisted(self) -> Iterator[WriterRecord]:
        """The slots of the present transaction, in their order."""
        return (self.slots[slot] for slot in range(self.enlisted_count))

    def is_enlisted(self, slot: WriterRecord) -> bool:
        """Whether the slot is part of the present transaction."""
        return self.record is not None and slot.number == self.record.number

    def present_epoch(self, slot: WriterRecord) -> int:
        """The lowest epoch that is not fenced: a hand-out counts until its transaction is decided
        or its name is handed out again.
        """
        is_held = self.is_enlisted(slot) and not slot.superseded
        return slot.producer_epoch + (0 if is_held and self.state is transaction.ONGOING else 1)

    def partitions(self) -> frozenset[TopicPartition]:
        """Of all writers of the open transaction."""
        if not self.is_open:
            return NOTHING
        return NOTHING.union(*(slot.partitions for slot in self.enlisted()))

    def markers(self, decided: HandleRecord) -> list[SendMarkers]:
        """What follows from a decision: every writer's marker to each of its partitions. Its epoch
        exceeds the writer's (KIP-890). Of a transaction that begins and ends in one decision there
        are none.
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
        """Whether no marker is outstanding now."""
        waiting = self.outstanding.get(producer_id)
        if waiting is not None:
            waiting.difference_update(partitions)
            if not waiting:
                del self.outstanding[producer_id]
        return not self.outstanding

    def load(self, record: HandleRecord | HandleTombstone | WriterRecord | WriterTombstone) -> None:
        """A record read back. What follows from the records is only known at the end of the log:
        compaction may have taken one of them and left an older one of another key.
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
        """All of the log is read: find what follows from it."""
        if self.record is None:
            self.slots.clear()
        self.slot_of_producer = {slot.producer_id: slot.slot for slot in self.slots.values()}
        if self.record is not None:
            self._become_present(self.record.number)
            self._expect_markers(self.record)

    def replay_handle(self, record: HandleRecord) -> None:
        """The state of the present transaction, or the beginning of the next one."""
        is_next = self.record is None or record.number != self.record.number
        assert transaction.may_move(self.state, record.state), (self.record, record)
        self.record = record
        if is_next:
            self._become_present(record.number)
        self._expect_markers(record)

    def replay_writer(self, record: WriterRecord) -> None:
        """A hand-out, or what was added to it."""
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
        """The slot is forgotten, before the whole id is."""
        assert not self.is_open, self.record
        gone = self.slots.pop(slot)
        del self.slot_of_producer[gone.producer_id]
        if self.is_enlisted(gone):
            self.enlisted_count -= 1
            self.pair_count -= len(gone.partitions)
            if not gone.superseded:
                del self.slot_of_writer[gone.writer]

    def tombstones(self) -> tuple[HandleTombstone | WriterTombstone, ...]:
        """Records that make the log forget this id. An append may stop in between: what is left
        then is again the first slots and their handle.
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

    def _become_present(self, number: int) -> None:
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
