"""The check accepts what keeps every promise, and rejects each history that breaks one."""

from dataclasses import replace

import pytest
from chaos.history import Partition, Record
from chaos.transactions import (
    ROWS,
    Bounds,
    Outcome,
    Seen,
    Transaction,
    TransactionFindings,
    TransactionHistory,
    check_transactions,
)
from chaos.values import Name, write_value
from hypothesis import given
from hypothesis import strategies as st

A, B, COPY = Partition("in", 0), Partition("other", 0), Partition("copies", 0)


def value(number: int, at: int) -> bytes:
    return write_value(Name("t1", str(number), at))


def transaction(number: int, outcome: Outcome = Outcome.COMMITTED) -> Transaction:
    """Two values in A and one in B; its commit was asked for at 10 s times its number."""
    asked_s = None if outcome is Outcome.ABORTED else 10.0 * number
    return Transaction("t1", number, (A, A, B), outcome, asked_s)


def log(*values: bytes, first: int = 0) -> list[Record]:
    return [Record(first + at, one) for at, one in enumerate(values)]


def history() -> TransactionHistory:
    """Number 1 committed, 2 aborted, 3 unknown and not there; all of it followed and copied."""
    committed = {
        A: log(value(1, 0), value(1, 1)),
        B: log(value(1, 2)),
        COPY: log(value(1, 0), value(1, 1)),
    }
    aborted = log(value(2, 0), value(2, 1), first=3)
    return TransactionHistory(
        transactions=[
            transaction(1),
            transaction(2, Outcome.ABORTED),
            transaction(3, Outcome.UNKNOWN),
        ],
        followed={
            one: [Seen(*record, at_s=11.0) for record in committed[one]] for one in committed
        },
        committed=committed,
        uncommitted={**committed, A: [*committed[A], *aborted]},
        bounds={A: Bounds(6, 6), B: Bounds(2, 2), COPY: Bounds(3, 3)},
    )


def with_read_back(one: TransactionHistory, **logs: list[Record]) -> TransactionHistory:
    """Both read-backs, and what was followed, show other logs."""
    for name, records in logs.items():
        partition = {"a": A, "b": B, "copies": COPY}[name]
        one.committed[partition] = one.uncommitted[partition] = records
        one.followed[partition] = [Seen(*record, at_s=99.0) for record in records]
    return one


def broken(one: TransactionHistory) -> set[str]:
    found = check_transactions(one)
    return {promise for promise, lines in vars(found).items() if lines}


def test_a_history_without_fault_is_accepted() -> None:
    assert check_transactions(history()) == TransactionFindings()


def test_every_promise_has_a_row() -> None:
    assert list(ROWS) == list(vars(TransactionFindings()))


def test_a_committed_transaction_that_is_not_there_is_lost() -> None:
    one = with_read_back(history(), a=[], b=[], copies=[])
    assert broken(one) == {"lost"}


def test_an_aborted_value_that_was_read_back_is_found() -> None:
    one = with_read_back(history(), b=log(value(1, 2), value(2, 2)))
    assert broken(one) == {"aborted_seen"}


def test_an_aborted_value_that_only_the_reader_saw_is_found() -> None:
    one = history()
    one.followed[A].append(Seen(3, value(2, 0), 21.0))
    assert broken(one) == {"aborted_seen", "unsaid"}


def test_an_aborted_value_that_was_copied_is_found() -> None:
    one = with_read_back(history(), copies=log(value(1, 0), value(1, 1), value(2, 0)))
    assert broken(one) == {"aborted_seen"}


@pytest.mark.parametrize("outcome", [Outcome.COMMITTED, Outcome.UNKNOWN])
def test_a_transaction_without_one_of_its_values_is_torn(outcome: Outcome) -> None:
    one = with_read_back(history(), b=[])
    one.transactions[0] = transaction(1, outcome)
    assert broken(one) == {"torn"}
    assert check_transactions(one).torn[0].endswith("has values [0, 1], lacks 2 (other-0)")


def test_an_unknown_outcome_may_be_all_of_it() -> None:
    one = with_read_back(
        history(),
        a=log(value(1, 0), value(1, 1), value(3, 0), value(3, 1)),
        b=log(value(1, 2), value(3, 2)),
        copies=log(value(1, 0), value(1, 1), value(3, 0), value(3, 1)),
    )
    assert broken(one) == set()


def test_a_value_seen_before_its_commit_was_asked_for_is_found() -> None:
    one = history()
    one.followed[A][0] = one.followed[A][0]._replace(at_s=9.9)
    assert broken(one) == {"open_seen"}


def test_a_value_whose_commit_nobody_asked_for_is_found() -> None:
    one = history()
    one.transactions[0] = replace(transaction(1, Outcome.UNKNOWN), asked_s=None)
    assert broken(one) == {"open_seen"}


def test_a_second_copy_is_found() -> None:
    one = with_read_back(history(), copies=log(value(1, 0), value(1, 1), value(1, 0)))
    assert broken(one) == {"copied_twice"}


def test_an_input_without_a_copy_is_found() -> None:
    one = with_read_back(history(), copies=log(value(1, 0)))
    assert check_transactions(one).not_copied == ["t1/1/1"]


def test_a_last_stable_offset_that_stays_behind_is_found() -> None:
    one = history()
    one.bounds[B] = Bounds(1, 2)
    assert check_transactions(one).hanging == ["other-0: last stable offset 1, end 2"]


def test_a_committed_value_that_is_there_twice_is_found() -> None:
    one = with_read_back(history(), b=log(value(1, 2), value(1, 2)))
    assert broken(one) == {"repeated"}


@pytest.mark.parametrize("other", [b"?", value(1, 3), value(4, 0), value(1, 2)])
def test_a_value_that_nobody_wrote_there_is_found(other: bytes) -> None:
    records = log(value(1, 0), value(1, 1), other)
    assert broken(with_read_back(history(), a=records, copies=records)) == {"invented"}


def test_a_copy_of_nothing_is_found() -> None:
    one = with_read_back(history(), copies=log(value(1, 0), value(1, 1), value(3, 0)))
    assert broken(one) == {"invented"}


def test_a_wrong_order_is_found() -> None:
    assert broken(with_read_back(history(), a=log(value(1, 1), value(1, 0)))) == {"out_of_order"}


def test_what_was_committed_and_is_not_among_the_uncommitted_is_found() -> None:
    one = history()
    one.uncommitted[B] = []
    assert broken(one) == {"unsaid"}


def test_a_committed_value_that_the_reader_left_out_is_found() -> None:
    one = history()
    del one.followed[A][0]
    assert broken(one) == {"skipped"}


def test_a_reader_that_went_back_is_found() -> None:
    one = history()
    one.followed[A].append(one.followed[A][0])
    assert broken(one) == {"skipped"}


def test_what_the_reader_has_not_reached_is_not_missed() -> None:
    one = history()
    del one.followed[A][1]
    assert broken(one) == set()


@given(st.sets(st.integers(0, 2), min_size=1, max_size=2))
def test_any_part_of_a_transaction_is_torn(present: set[int]) -> None:
    one = with_read_back(
        history(),
        a=log(*(value(1, at) for at in sorted(present & {0, 1}))),
        b=log(*(value(1, at) for at in sorted(present & {2}))),
        copies=log(*(value(1, at) for at in sorted(present & {0, 1}))),
    )
    assert broken(one) == {"torn"}
