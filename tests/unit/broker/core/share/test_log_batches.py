"""Reads of the log from headers: limits, ends, and batches without records for the group."""

import pytest
from broker.core.open_txns import AbortedTxn
from broker.core.share.acquisition import AcquiredRecords, ReadPlan
from broker.core.share.log_batches import HeaderWalk, ReadLimits, span_of
from tidemark.codec.record_batch import CONTROL_BIT, TRANSACTIONAL_BIT, BatchHeader
from tidemark.model.ids import Offset

BATCH_BYTES = 112


def header(first: int, last: int, attributes: int = 0, producer_id: int = -1) -> BatchHeader:
    size = BATCH_BYTES - 12
    counts = (last - first, 0, 0, producer_id, 0, 0, last - first + 1)
    return BatchHeader(first, size, 0, 2, 0, attributes, *counts)


def walk(
    *headers: BatchHeader,
    first: int = 0,
    plan_end: int | None = None,
    end: int = 1_000,
    records_max: int = 1_000,
    bytes_max: int = 10_000,
    may_exceed: bool = True,
) -> HeaderWalk:
    plan = ReadPlan(Offset(first), None if plan_end is None else Offset(plan_end))
    walked = HeaderWalk(plan, ReadLimits(Offset(end), records_max, bytes_max, may_exceed))
    for one in headers:
        if not walked.take(one):
            return walked
    walked.exhausted()
    return walked


TENS = [header(first, first + 9) for first in range(0, 50, 10)]


def shown(walked: HeaderWalk) -> tuple[int, int] | None:
    """Number of batches and end of the read."""
    read = walked.read()
    return None if read is None else (len(read.batches), read.end)


def test_a_read_ends_where_its_batches_do() -> None:
    assert shown(walk(*TENS)) == (5, 50)


def test_a_batch_that_begins_behind_the_end_is_not_read() -> None:
    assert shown(walk(*TENS, end=25)) == (3, 30)


def test_no_more_batches_are_read_than_have_the_records_that_are_requested() -> None:
    assert shown(walk(*TENS, records_max=10)) == (1, 10)
    assert shown(walk(*TENS, first=5, records_max=10)) == (2, 20)


def test_bytes_are_bounded_and_the_first_batch_may_exceed_them() -> None:
    assert shown(walk(*TENS, bytes_max=2 * BATCH_BYTES)) == (2, 20)
    assert shown(walk(*TENS, bytes_max=1)) == (1, 10)
    assert shown(walk(*TENS, bytes_max=1, may_exceed=False)) is None


def test_offsets_that_compaction_removed_are_part_of_the_read() -> None:
    assert shown(walk(header(20, 29), plan_end=10, end=10)) == (0, 10)
    assert shown(walk(header(0, 3), header(20, 29), plan_end=10, end=10)) == (1, 10)
    assert shown(walk(plan_end=10, end=10)) == (0, 10)


def test_a_read_that_was_cut_says_nothing_of_offsets_behind_it() -> None:
    walked = walk(*TENS, plan_end=40, end=40, bytes_max=BATCH_BYTES)
    assert shown(walked) == (1, 10)


def test_a_walk_is_over_once_a_further_header_is_not_needed() -> None:
    assert not walk(header(0, 3), end=10).is_over
    assert walk(header(0, 9), header(10, 19), end=20).is_over
    assert walk(header(0, 9), records_max=10).is_over
    assert not walk().is_over


def test_an_open_end_shows_no_more_than_its_batches() -> None:
    assert shown(walk(header(0, 3))) == (1, 4)
    assert shown(walk()) is None


def test_nothing_is_said_of_offsets_that_are_not_readable_yet() -> None:
    assert shown(walk(plan_end=40, end=0)) is None


@pytest.mark.parametrize(
    ("attributes", "producer_id", "has_records"),
    [
        (0, -1, True),
        (CONTROL_BIT | TRANSACTIONAL_BIT, 7, False),
        (TRANSACTIONAL_BIT, 7, False),
        (TRANSACTIONAL_BIT, 8, True),
        (0, 7, True),
    ],
)
def test_control_batches_and_aborted_ones_have_no_records(
    attributes: int, producer_id: int, has_records: bool
) -> None:
    read = walk(header(0, 9, attributes, producer_id)).read([AbortedTxn(7, 0, 10, 11)])
    assert read is not None
    assert [one.has_records for one in read.batches] == [has_records]


def test_a_later_transaction_of_the_same_producer_is_read() -> None:
    read = walk(header(20, 29, TRANSACTIONAL_BIT, 7)).read([AbortedTxn(7, 0, 10, 11)])
    assert read is not None
    assert read.batches[0].has_records


def test_an_answer_has_whole_batches_from_the_first_acquired_record_to_the_last() -> None:
    acquired = [
        AcquiredRecords(Offset(12), Offset(14), 1),
        AcquiredRecords(Offset(30), Offset(31), 1),
    ]
    assert span_of(TENS, acquired) == slice(1, 4)
    assert span_of(TENS, acquired[1:]) == slice(3, 4)
