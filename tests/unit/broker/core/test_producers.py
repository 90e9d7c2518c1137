"""Idempotence against its plain twin: remember every record ever sent."""

import pytest
from broker.core.producers import (
    ACCEPTED,
    BATCHES_KEPT,
    Duplicate,
    ProducerTable,
    Refused,
    Verdict,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from tidemark.codec.record_batch import BatchHeader
from tidemark.model.errors import ErrorCode

LAST = 2**31 - 1


def header(sequence: int, records: int = 1, *, epoch: int = 0, producer_id: int = 7) -> BatchHeader:
    return BatchHeader(0, 0, 0, 2, 0, 0, records - 1, 5, 5, producer_id, epoch, sequence, records)


def sent(table: ProducerTable, batch: BatchHeader, offset: int, now: int = 0) -> Verdict:
    verdict = table.check(batch, now)
    if verdict is ACCEPTED:
        table.appended(batch, offset, now)
    return verdict


def code(verdict: Verdict) -> ErrorCode:
    assert isinstance(verdict, Refused), verdict
    return verdict.error_code


@pytest.mark.feature("K02", "K03", "K04", "K05", "K06")
@given(
    st.integers(0, LAST),
    st.lists(st.tuples(st.integers(-8, 3), st.integers(1, 3)), max_size=25),
)
@settings(max_examples=60)
def test_each_sequence_is_appended_once_and_in_order(
    first: int, moves: list[tuple[int, int]]
) -> None:
    """``moves``: how far from the next sequence a batch begins, and its records."""
    table, appended = ProducerTable(), [(first, 1)]
    table.appended(header(first), 0, 0)
    following, offset = first + 1, 1
    for move, records in moves:
        batch = header((following + move) % 2**31, records)
        verdict = sent(table, batch, offset)
        if move == 0:
            assert verdict is ACCEPTED
            appended.append((following, records))
            following, offset = following + records, offset + records
        elif (following + move, records) in appended[-BATCHES_KEPT:]:
            assert isinstance(verdict, Duplicate)
            assert verdict.base_offset == following + move - first
            assert verdict.last_offset == verdict.base_offset + records - 1
        elif following + move + records <= appended[-BATCHES_KEPT:][0][0]:
            assert code(verdict) == ErrorCode.DUPLICATE_SEQUENCE_NUMBER
        else:
            assert code(verdict) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_an_older_epoch_is_fenced() -> None:
    table = ProducerTable()
    sent(table, header(0, epoch=3), 0)
    assert code(table.check(header(1, epoch=2), 0)) == ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_newer_epoch_begins_at_zero() -> None:
    table = ProducerTable()
    sent(table, header(0, 5), 0)
    refused = table.check(header(5, epoch=1), 0)
    assert code(refused) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert sent(table, header(0, epoch=1), 5) is ACCEPTED
    assert code(table.check(header(5), 0)) == ErrorCode.INVALID_PRODUCER_EPOCH


def test_an_unknown_producer_may_begin_anywhere() -> None:
    assert sent(ProducerTable(), header(1_000), 0) is ACCEPTED


def test_sequences_go_on_at_zero_after_the_last() -> None:
    table = ProducerTable()
    sent(table, header(LAST - 1, 2), 0)
    assert sent(table, header(0, 2), 2) is ACCEPTED
    assert isinstance(table.check(header(LAST - 1, 2), 0), Duplicate)


def test_silent_producers_expire() -> None:
    table = ProducerTable()
    sent(table, header(0), 0, now=10)
    sent(table, header(0, producer_id=8), 1, now=500)
    assert table.expire(now=600, expiration_ms=500) == 1
    assert [entry.producer_id for entry in table.statistics()] == [8]


def test_a_snapshot_keeps_the_whole_window() -> None:
    table, restored = ProducerTable(), ProducerTable()
    for sequence in range(7):
        sent(table, header(sequence), sequence, now=sequence)
    restored.restore(table.entries())
    assert restored.entries() == table.entries()
    assert restored.check(header(2), 0) == Duplicate(2, 2, 5)
    assert code(restored.check(header(1), 0)) == ErrorCode.DUPLICATE_SEQUENCE_NUMBER


def test_a_control_batch_moves_the_epoch_and_no_sequence() -> None:
    table = ProducerTable()
    sent(table, header(0), 0)
    marker = header(-1, epoch=1)._replace(attributes=0x30)
    table.replay(marker, now=9)
    (entry,) = table.entries()
    assert (entry.producer_epoch, entry.last_sequence, entry.updated_at) == (1, -1, 9)
