"""Promises of a share group, as its members see them."""

from chaos.history import Partition
from chaos.share_history import (
    COPY_PROMISES,
    DELIVERIES_MAX,
    PROMISES,
    UNSEEN_MAX,
    Delivery,
    Place,
    ShareHistory,
    check_copies,
    check_shares,
)

PARTITION = Partition("t", 0)
AGAIN, LOST, BOUNDS = PROMISES
TWICE, MISSING = COPY_PROMISES


def at(offset: int) -> Place:
    return Place(PARTITION, offset)


def read_by_one(count: int) -> ShareHistory:
    """A consumer made at 1 receives so many records, and finishes them at 5."""
    history = ShareHistory()
    for offset in range(count):
        history.deliveries.append(Delivery(at(offset), 1, 1.0))
        history.finishing.add(at(offset))
        history.finished(at(offset), 5.0)
    return history


def broken(history: ShareHistory, start: int = 3, end: int = 3) -> dict[str, list[str]]:
    found = check_shares(history, {PARTITION: start}, {PARTITION: end})
    return {promise: lines for promise, lines in found.items() if lines}


def test_records_that_are_finished_once_keep_all_promises() -> None:
    assert broken(read_by_one(3)) == {}


def test_a_finished_record_that_a_later_consumer_receives_has_come_again() -> None:
    history = read_by_one(3)
    history.deliveries.append(Delivery(at(1), 2, 5.5))
    assert list(broken(history)) == [AGAIN]


def test_a_consumer_made_before_the_answer_may_receive_a_record_late() -> None:
    history = read_by_one(3)
    history.finished(at(1), 9.0)
    history.deliveries.append(Delivery(at(1), 2, 4.5))
    assert broken(history) == {}


def test_a_record_that_was_passed_without_an_outcome_is_lost() -> None:
    assert broken(read_by_one(2)) == {LOST: ["t-0@2: passed by, after delivery 0"]}


def test_a_record_that_was_delivered_too_often_is_not_lost() -> None:
    history = read_by_one(2)
    history.deliveries.append(Delivery(at(2), DELIVERIES_MAX - UNSEEN_MAX, 1.0))
    assert broken(history) == {}


def test_an_outcome_without_an_answer_may_hold() -> None:
    history = read_by_one(2)
    history.finishing.add(at(2))
    assert broken(history) == {}


def test_a_group_that_has_not_finished_the_log_has_lost_the_rest() -> None:
    assert broken(read_by_one(3), end=4) == {LOST: ["t-0: the group's start is 3, the end 4"]}


def test_a_delivery_has_a_count_within_the_limit() -> None:
    for count in (0, DELIVERIES_MAX + 1):
        history = read_by_one(3)
        history.deliveries.append(Delivery(at(0), count, 1.0))
        assert list(broken(history)) == [BOUNDS]


def copied(*copies: bytes, start: int = 3) -> dict[str, list[str]]:
    """Broken promises about copies of three records that were delivered once."""
    found = check_copies(read_by_one(3), copies, {PARTITION: start}, {PARTITION: 3})
    return {promise: lines for promise, lines in found.items() if lines}


def test_records_copied_once_keep_all_promises() -> None:
    assert copied(b"t-0@0", b"t-0@2", b"t-0@1") == {}


def test_a_record_with_two_committed_copies_was_acknowledged_without_its_transaction() -> None:
    assert copied(b"t-0@0", b"t-0@1", b"t-0@1", b"t-0@2") == {TWICE: ["t-0@1: 2 times"]}


def test_a_record_that_was_acknowledged_and_not_copied_is_missing() -> None:
    assert copied(b"t-0@0", b"t-0@2") == {MISSING: ["t-0@1: passed by, after delivery 1"]}
    assert list(copied(b"t-0@0", b"t-0@1", start=2)) == [MISSING]


def test_a_record_that_was_delivered_too_often_needs_no_copy() -> None:
    history = read_by_one(3)
    history.deliveries.append(Delivery(at(1), DELIVERIES_MAX - UNSEEN_MAX, 1.0))
    copies = [b"t-0@0", b"t-0@2"]
    found = check_copies(history, copies, {PARTITION: 3}, {PARTITION: 3})
    assert found == {TWICE: [], MISSING: []}
