"""State that follows from the records of several writers, in whatever order they are read."""

import pytest
from tidemark.codec.txn_records import (
    HandleRecord,
    TransactionState,
    WriterRecord,
    WriterTombstone,
)
from txn_coordinator.core import transaction
from txn_coordinator.core.multi_writer_transaction import MultiWriterTransaction
from unit.txn_coordinator.worlds import ID, P0, P1


def a_handle(number: int = 1, state: TransactionState = transaction.ONGOING) -> HandleRecord:
    return HandleRecord(ID, number, 100, 60_000, state, 200 + number, 150)


def a_writer(slot: int, number: int = 1, **changes: object) -> WriterRecord:
    fields: dict[str, object] = {
        "writer": f"w{slot}",
        "producer_id": 10 + slot,
        "producer_epoch": 0,
    }
    return WriterRecord(ID, slot, number, **{**fields, **changes})  # type: ignore[arg-type]


def test_a_decision_stands_behind_the_records_of_its_writers() -> None:
    txn = MultiWriterTransaction(ID)
    txn.load(a_writer(0, partitions=frozenset({P0, P1})))
    txn.load(a_writer(1))
    txn.load(a_handle(1, transaction.PREPARE_COMMIT))
    txn.loaded()
    txn.check()
    assert txn.outstanding == {10: {P0, P1}}


def test_records_of_an_older_transaction_after_compaction_do_not_count() -> None:
    """The slot was handed out again, but its record of before and the older decision are read
    first.
    """
    txn = MultiWriterTransaction(ID)
    txn.load(a_writer(1, 1, partitions=frozenset({P1})))
    txn.load(a_handle(1, transaction.PREPARE_ABORT))
    txn.load(a_handle(2))
    txn.load(a_writer(0, 2, partitions=frozenset({P0})))
    txn.loaded()
    txn.check()
    assert txn.partitions() == {P0}
    assert [slot.slot for slot in txn.enlisted()] == [0]


def test_slots_without_their_handle_are_gone() -> None:
    txn = MultiWriterTransaction(ID)
    txn.load(a_writer(0))
    txn.loaded()
    assert txn.slots == {}


def test_the_epoch_of_a_hand_out_counts_until_the_decision() -> None:
    txn = MultiWriterTransaction(ID)
    txn.replay_handle(a_handle())
    txn.replay_writer(a_writer(0, producer_epoch=4, partitions=frozenset({P0})))
    assert txn.current_epoch(txn.slots[0]) == 4
    txn.replay_handle(a_handle(1, transaction.PREPARE_ABORT))
    assert txn.current_epoch(txn.slots[0]) == 5


def test_a_superseded_hand_out_is_fenced() -> None:
    txn = MultiWriterTransaction(ID)
    txn.replay_handle(a_handle())
    txn.replay_writer(a_writer(0, producer_epoch=4))
    txn.replay_writer(a_writer(0, producer_epoch=4, superseded=True))
    txn.replay_writer(a_writer(1, writer="w0"))
    txn.check()
    assert txn.current_epoch(txn.slots[0]) == 5
    assert txn.slot_of_writer == {"w0": 1}


def test_a_writer_cannot_change_once_it_is_decided() -> None:
    txn = MultiWriterTransaction(ID)
    txn.replay_handle(a_handle())
    txn.replay_handle(a_handle(1, transaction.PREPARE_ABORT))
    with pytest.raises(AssertionError):
        txn.replay_writer(a_writer(0))


def test_an_outcome_cannot_change() -> None:
    txn = MultiWriterTransaction(ID)
    txn.replay_handle(a_handle())
    txn.replay_handle(a_handle(1, transaction.PREPARE_ABORT))
    with pytest.raises(AssertionError):
        txn.replay_handle(a_handle(1, transaction.PREPARE_COMMIT))


def test_markers_count_once() -> None:
    txn = MultiWriterTransaction(ID)
    txn.replay_handle(a_handle())
    txn.replay_writer(a_writer(0, partitions=frozenset({P0, P1})))
    txn.replay_handle(a_handle(1, transaction.PREPARE_ABORT))
    assert not txn.markers_written(10, (P0,))
    assert not txn.markers_written(10, (P0,))
    assert not txn.markers_written(99, (P1,))
    assert txn.markers_written(10, (P1,))


def test_an_id_is_forgotten_from_its_last_slot_on() -> None:
    """An append may stop anywhere: the rest must still make sense."""
    txn = MultiWriterTransaction(ID)
    txn.replay_handle(a_handle())
    for slot in range(3):
        txn.replay_writer(a_writer(slot, partitions=frozenset({P0})))
    txn.replay_handle(a_handle(1, transaction.PREPARE_ABORT))
    txn.replay_handle(a_handle(1, transaction.COMPLETE_ABORT))
    for tombstone in txn.tombstones()[:2]:
        assert isinstance(tombstone, WriterTombstone)
        txn.replay_writer_tombstone(tombstone.slot)
    txn.check()
    assert list(txn.slots) == [0]


def test_a_transaction_that_begins_and_ends_at_once_has_no_markers() -> None:
    txn = MultiWriterTransaction(ID)
    txn.load(a_writer(0, partitions=frozenset({P0})))
    txn.load(a_handle(1, transaction.COMPLETE_COMMIT))
    txn.loaded()
    assert txn.markers(a_handle(2, transaction.PREPARE_COMMIT)) == []
