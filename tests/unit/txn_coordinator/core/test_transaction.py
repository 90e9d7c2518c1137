"""The table of states, cell by cell, and the moves that records make."""

from collections.abc import Callable
from contextlib import nullcontext
from itertools import product

import pytest
from tidemark.codec.txn_records import TransactionRecord, TransactionState
from txn_coordinator.core import transaction
from unit.txn_coordinator.worlds import P0, P1, a_record

WALL_MS = 5_000
MOVES: dict[TransactionState, Callable[[TransactionRecord], TransactionRecord]] = {
    transaction.EMPTY: lambda r: transaction.next_session(r, 1, WALL_MS, last_producer_epoch=-1),
    transaction.ONGOING: lambda r: transaction.extended(
        r, frozenset({P0}), WALL_MS, client_version=2
    ),
    transaction.PREPARE_COMMIT: lambda r: transaction.prepared_v1(r, WALL_MS, commit=True),
    transaction.PREPARE_ABORT: lambda r: transaction.prepared_v1(r, WALL_MS, commit=False),
    transaction.PREPARE_EPOCH_FENCE: transaction.fenced,
}


@pytest.mark.parametrize(("previous", "following"), list(product(TransactionState, sorted(MOVES))))
def test_a_move_outside_the_table_fails(
    previous: TransactionState, following: TransactionState
) -> None:
    allowed = previous in transaction.VALID_PREVIOUS[following]
    with nullcontext() if allowed else pytest.raises(AssertionError):
        moved = MOVES[following](a_record(state=previous))
        assert moved.state is following


def test_only_a_prepared_transaction_is_completed() -> None:
    for previous in TransactionState:
        allowed = previous in transaction.PREPARED
        with nullcontext() if allowed else pytest.raises(AssertionError):
            transaction.completed(a_record(state=previous), WALL_MS)


def test_every_state_has_its_row() -> None:
    assert set(transaction.VALID_PREVIOUS) == set(TransactionState)


@pytest.mark.feature("L08")
@pytest.mark.parametrize("outcome", sorted(transaction.PREPARED))
def test_an_outcome_has_one_way_out(outcome: TransactionState) -> None:
    following = [s for s in TransactionState if transaction.may_move(outcome, s)]
    name = outcome.name.replace("PREPARE", "COMPLETE")
    assert following == [TransactionState[name]]


def test_a_record_is_always_later_than_the_one_before() -> None:
    record = a_record(updated_at=9_000)
    assert transaction.extended(record, frozenset({P0}), 1, client_version=0).updated_at == 9_001


def test_an_open_transaction_keeps_its_start() -> None:
    opened = transaction.extended(a_record(), frozenset({P0}), 5_000, client_version=0)
    more = transaction.extended(opened, frozenset({P1}), 6_000, client_version=0)
    assert more.started_at == 5_000
    assert more.partitions == {P0, P1}


def test_the_next_transaction_begins_without_the_partitions_of_the_last() -> None:
    ended = a_record(state=transaction.COMPLETE_COMMIT, started_at=1)
    opened = transaction.extended(ended, frozenset({P1}), 6_000, client_version=0)
    assert opened.started_at == 6_000
    assert opened.partitions == {P1}


def test_an_end_of_transactions_v1_keeps_the_epoch() -> None:
    record = a_record(state=transaction.ONGOING)
    assert transaction.prepared_v1(record, 1, commit=True).producer_epoch == 3


def test_an_end_of_transactions_v2_raises_the_epoch() -> None:
    record = a_record(state=transaction.ONGOING)
    prepared = transaction.prepared_v2(record, 1, commit=True, next_producer_id=-1)
    assert prepared.producer_epoch == 4
    assert transaction.successor(prepared) == (7, 4)


def test_after_the_last_epoch_a_new_producer_id_takes_over() -> None:
    record = a_record(state=transaction.ONGOING, producer_epoch=transaction.CLIENT_EPOCH_MAX)
    prepared = transaction.prepared_v2(record, 1, commit=True, next_producer_id=99)
    assert prepared.producer_epoch == transaction.EPOCH_MAX
    ended = transaction.completed(prepared, 2)
    assert (ended.producer_id, ended.producer_epoch) == (99, 0)
    assert ended.previous_producer_id == 7


def test_the_highest_epoch_only_fences() -> None:
    record = a_record(producer_epoch=transaction.EPOCH_MAX)
    assert not transaction.may_write(record, transaction.EPOCH_MAX)
    assert transaction.may_write(a_record(producer_epoch=5), 5)
    assert not transaction.may_write(a_record(producer_epoch=5), 6)
