"""What the records of several writers say together, in whatever order they are read back."""

import pytest
from tidemark.codec.txn_records import (
    HandleRecord,
    TransactionState,
    WriterRecord,
    WriterTombstone,
)
from txn_coordinator.core import transaction
from txn_coordinator.core.shared_transaction import SharedTransaction
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
    shared = SharedTransaction(ID)
    shared.load(a_writer(0, partitions=frozenset({P0, P1})))
    shared.load(a_writer(1))
    shared.load(a_handle(1, transaction.PREPARE_COMMIT))
    shared.loaded()
    shared.check()
    assert shared.outstanding == {10: {P0, P1}}


def test_what_compaction_left_of_an_older_transaction_does_not_count() -> None:
    """The slot was handed out again, but its record of before and the older decision are read
    first.
    """
    shared = SharedTransaction(ID)
    shared.load(a_writer(1, 1, partitions=frozenset({P1})))
    shared.load(a_handle(1, transaction.PREPARE_ABORT))
    shared.load(a_handle(2))
    shared.load(a_writer(0, 2, partitions=frozenset({P0})))
    shared.loaded()
    shared.check()
    assert shared.partitions() == {P0}
    assert [slot.slot for slot in shared.enlisted()] == [0]


def test_slots_without_their_handle_are_gone() -> None:
    shared = SharedTransaction(ID)
    shared.load(a_writer(0))
    shared.loaded()
    assert shared.slots == {}


def test_the_epoch_of_a_hand_out_counts_until_the_decision() -> None:
    shared = SharedTransaction(ID)
    shared.replay_handle(a_handle())
    shared.replay_writer(a_writer(0, producer_epoch=4, partitions=frozenset({P0})))
    assert shared.present_epoch(shared.slots[0]) == 4
    shared.replay_handle(a_handle(1, transaction.PREPARE_ABORT))
    assert shared.present_epoch(shared.slots[0]) == 5


def test_a_superseded_hand_out_is_fenced() -> None:
    shared = SharedTransaction(ID)
    shared.replay_handle(a_handle())
    shared.replay_writer(a_writer(0, producer_epoch=4))
    shared.replay_writer(a_writer(0, producer_epoch=4, superseded=True))
    shared.replay_writer(a_writer(1, writer="w0"))
    shared.check()
    assert shared.present_epoch(shared.slots[0]) == 5
    assert shared.slot_of_writer == {"w0": 1}


def test_a_writer_cannot_change_once_it_is_decided() -> None:
    shared = SharedTransaction(ID)
    shared.replay_handle(a_handle())
    shared.replay_handle(a_handle(1, transaction.PREPARE_ABORT))
    with pytest.raises(AssertionError):
        shared.replay_writer(a_writer(0))


def test_an_outcome_cannot_change() -> None:
    shared = SharedTransaction(ID)
    shared.replay_handle(a_handle())
    shared.replay_handle(a_handle(1, transaction.PREPARE_ABORT))
    with pytest.raises(AssertionError):
        shared.replay_handle(a_handle(1, transaction.PREPARE_COMMIT))


def test_markers_count_once() -> None:
    shared = SharedTransaction(ID)
    shared.replay_handle(a_handle())
    shared.replay_writer(a_writer(0, partitions=frozenset({P0, P1})))
    shared.replay_handle(a_handle(1, transaction.PREPARE_ABORT))
    assert not shared.markers_written(10, (P0,))
    assert not shared.markers_written(10, (P0,))
    assert not shared.markers_written(99, (P1,))
    assert shared.markers_written(10, (P1,))


def test_an_id_is_forgotten_from_its_last_slot_on() -> None:
    """An append may stop anywhere: the rest must still make sense."""
    shared = SharedTransaction(ID)
    shared.replay_handle(a_handle())
    for slot in range(3):
        shared.replay_writer(a_writer(slot, partitions=frozenset({P0})))
    shared.replay_handle(a_handle(1, transaction.PREPARE_ABORT))
    shared.replay_handle(a_handle(1, transaction.COMPLETE_ABORT))
    for tombstone in shared.tombstones()[:2]:
        assert isinstance(tombstone, WriterTombstone)
        shared.replay_writer_tombstone(tombstone.slot)
    shared.check()
    assert list(shared.slots) == [0]


def test_what_begins_and_ends_at_once_has_no_markers() -> None:
    shared = SharedTransaction(ID)
    shared.load(a_writer(0, partitions=frozenset({P0})))
    shared.load(a_handle(1, transaction.COMPLETE_COMMIT))
    shared.loaded()
    assert shared.markers(a_handle(2, transaction.PREPARE_COMMIT)) == []
