"""Verified producers of a partition, until another event voids the verification."""

import pytest
from broker.core.txn_verification import ASKED_MAX, TxnVerifications


@pytest.mark.feature("L16")
def test_a_producer_may_begin_once_the_coordinator_said_so() -> None:
    asked = TxnVerifications()
    guard = asked.ask(7, 2)
    assert not asked.is_verified(7, 2)
    assert asked.answer(7, guard)
    assert asked.is_verified(7, 2)
    assert not asked.is_verified(7, 3)


@pytest.mark.feature("L16")
def test_an_answer_from_before_a_marker_does_not_count() -> None:
    asked = TxnVerifications()
    guard = asked.ask(7, 2)
    asked.forget(7)
    assert not asked.answer(7, guard)
    assert not asked.is_verified(7, 2)


def test_only_the_latest_question_counts() -> None:
    asked = TxnVerifications()
    first, second = asked.ask(7, 2), asked.ask(7, 3)
    assert not asked.answer(7, first)
    assert asked.answer(7, second)


def test_questions_are_bounded() -> None:
    asked = TxnVerifications()
    guards = [asked.ask(producer_id, 0) for producer_id in range(ASKED_MAX + 1)]
    assert not asked.answer(0, guards[0])
    assert asked.answer(1, guards[1])


def test_a_producer_begins_with_the_lowest_sequence_of_what_was_asked_in_its_epoch() -> None:
    asked = TxnVerifications()
    asked.ask(7, 2, 40)
    asked.ask(7, 2, 20)
    asked.ask(7, 2, 60)
    assert asked.first_sequence(7) == 20
    asked.ask(7, 3, 80)
    assert asked.first_sequence(7) == 80
