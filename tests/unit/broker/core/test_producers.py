"""Idempotence compared with its plain twin, which stores every record ever sent."""

import pytest
from broker.core.open_txns import AbortedTxn
from broker.core.producers import (
    ACCEPTED,
    BATCHES_KEPT,
    ENDED,
    Duplicate,
    ProducerTable,
    Refused,
    Verdict,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from tidemark.codec.control_record import EndTxnMarker, OwnerRecord
from tidemark.codec.record_batch import TIMESTAMP_TYPE_BIT, TRANSACTIONAL_BIT, BatchHeader
from tidemark.model.errors import ErrorCode

LAST = 2**31 - 1


def header(sequence: int, records: int = 1, *, epoch: int = 0, producer_id: int = 7) -> BatchHeader:
    return BatchHeader(0, 0, 0, 2, 0, 0, records - 1, 5, 5, producer_id, epoch, sequence, records)


def sent(table: ProducerTable, batch: BatchHeader, offset: int, now: int = 0) -> Verdict:
    verdict = table.check(batch)
    if verdict is ACCEPTED:
        table.appended(batch, offset, now)
    return verdict


def code(verdict: object) -> ErrorCode:
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
        elif (
            len(appended) >= BATCHES_KEPT
            and following + move + records <= appended[-BATCHES_KEPT:][0][0]
        ):
            assert code(verdict) == ErrorCode.DUPLICATE_SEQUENCE_NUMBER
        else:
            assert code(verdict) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_an_older_epoch_is_fenced() -> None:
    table = ProducerTable()
    sent(table, header(0, epoch=3), 0)
    assert code(table.check(header(1, epoch=2))) == ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_newer_epoch_begins_at_zero() -> None:
    table = ProducerTable()
    sent(table, header(0, 5), 0)
    refused = table.check(header(5, epoch=1))
    assert code(refused) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert sent(table, header(0, epoch=1), 5) is ACCEPTED
    assert code(table.check(header(5))) == ErrorCode.INVALID_PRODUCER_EPOCH


def test_an_unknown_producer_may_begin_anywhere() -> None:
    assert sent(ProducerTable(), header(1_000), 0) is ACCEPTED


@pytest.mark.feature("K05")
def test_a_batch_before_the_first_one_here_is_no_repetition() -> None:
    """Of several batches in flight the first was refused for a moment, and the second was not.
    Clients take DUPLICATE_SEQUENCE_NUMBER for an acknowledgement, and the first would be lost.
    """
    table = ProducerTable()
    sent(table, header(2, 2), 0)
    assert code(table.check(header(0, 2))) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    for sequence in range(4, 4 + BATCHES_KEPT - 2):
        sent(table, header(sequence), sequence)
        assert code(table.check(header(0, 2))) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_sequences_go_on_at_zero_after_the_last() -> None:
    table = ProducerTable()
    sent(table, header(LAST - 1, 2), 0)
    assert sent(table, header(0, 2), 2) is ACCEPTED
    assert isinstance(table.check(header(LAST - 1, 2)), Duplicate)


def test_silent_producers_expire() -> None:
    table = ProducerTable()
    sent(table, header(0), 0, now=10)
    sent(table, header(0, producer_id=8), 1, now=500)
    assert table.expire(now=600, expiration_ms=500) == 1
    assert [entry.producer_id for entry in table.statistics()] == [8]


def test_an_append_without_sequences_has_a_time_too() -> None:
    """Otherwise a transaction that has just committed offsets would count as hanging."""
    table = ProducerTable()
    offsets = header(-1)._replace(attributes=TRANSACTIONAL_BIT, max_timestamp=1_000)
    table.replay(offsets, 1_000)
    assert [one.last_timestamp for one in table.statistics()] == [1_000]
    end = header(-1, epoch=1)._replace(max_timestamp=2_000)
    table.replay(end, 2_000, EndTxnMarker(commits=True, coordinator_epoch=1))
    assert [one.last_timestamp for one in table.statistics()] == [2_000]
    table.appended(header(0, epoch=1), 9, 3_000)
    assert [one.last_timestamp for one in table.statistics()] == [5]


@pytest.mark.parametrize(
    ("batch", "control", "written_at"),
    [
        (header(-1), EndTxnMarker(commits=True, coordinator_epoch=1), 5),
        (header(-1)._replace(attributes=TRANSACTIONAL_BIT), None, 5),
        (header(0)._replace(attributes=TIMESTAMP_TYPE_BIT), None, 5),
        (header(0), None, 900),  # the time of a producer is any time
        (header(-1)._replace(max_timestamp=-1), None, 900),
        (header(-1)._replace(max_timestamp=950), None, 900),  # of a leader whose clock is ahead
    ],
)
def test_a_replay_long_after_is_no_write(
    batch: BatchHeader, control: EndTxnMarker | None, written_at: int
) -> None:
    table = ProducerTable()
    table.replay(batch, 900, control)
    assert [one.updated_at for one in table.entries()] == [written_at]


def test_a_snapshot_keeps_the_whole_window() -> None:
    table, restored = ProducerTable(), ProducerTable()
    for sequence in range(7):
        sent(table, header(sequence), sequence, now=sequence)
    restored.restore(table.state())
    assert restored.entries() == table.entries()
    assert restored.check(header(2)) == Duplicate(2, 2, 5)
    assert code(restored.check(header(1))) == ErrorCode.DUPLICATE_SEQUENCE_NUMBER


def test_a_control_batch_moves_the_epoch_and_no_sequence() -> None:
    table = ProducerTable()
    sent(table, header(0), 0)
    marker = header(-1, epoch=1)._replace(attributes=0x30)
    table.replay(marker, 9, EndTxnMarker(commits=True, coordinator_epoch=1))
    (entry,) = table.entries()
    assert (entry.producer_epoch, entry.last_sequence, entry.updated_at) == (1, -1, 5)


def marker(offset: int, epoch: int = 0, *, producer_id: int = 7) -> BatchHeader:
    made = header(-1, epoch=epoch, producer_id=producer_id)
    return made._replace(attributes=0x30, base_offset=offset)


def in_transaction(table: ProducerTable, sequence: int, offset: int, *, epoch: int = 0) -> None:
    made = header(sequence, epoch=epoch)
    table.appended(made._replace(attributes=0x10), offset, 0)


@pytest.mark.feature("M01")
def test_a_transaction_is_open_from_its_first_record_until_its_marker_is_replicated() -> None:
    table = ProducerTable()
    in_transaction(table, 0, 10)
    in_transaction(table, 1, 11)
    assert table.txns.last_stable(20) == 10
    table.replay(marker(12), 0, EndTxnMarker(commits=True, coordinator_epoch=1))
    assert [table.txns.last_stable(end) for end in (12, 13)] == [10, 13]


def test_an_aborted_transaction_is_told_to_the_index() -> None:
    table = ProducerTable()
    in_transaction(table, 0, 10)
    table.replay(marker(12), 0, EndTxnMarker(commits=False, coordinator_epoch=1))
    assert table.newly_aborted == [AbortedTxn(7, 10, 12, 13)]


@pytest.mark.feature("L02")
@pytest.mark.feature("L16")
@pytest.mark.parametrize(
    ("epoch", "bumped", "heard"),
    [
        (4, False, ErrorCode.INVALID_PRODUCER_EPOCH),
        (5, False, ErrorCode.NONE),
        (5, True, ErrorCode.INVALID_PRODUCER_EPOCH),
        (6, True, ErrorCode.NONE),
    ],
)
def test_a_marker_of_an_older_transaction_ends_no_newer_one(
    epoch: int, bumped: bool, heard: ErrorCode
) -> None:
    table = ProducerTable()
    in_transaction(table, 0, 10, epoch=5)
    end = EndTxnMarker(commits=True, coordinator_epoch=1)
    verdict = table.check_marker(7, epoch, end, bumped=bumped)
    assert (verdict.error_code if isinstance(verdict, Refused) else ErrorCode.NONE) == heard


def test_a_repeated_marker_is_known() -> None:
    table, end = ProducerTable(), EndTxnMarker(commits=True, coordinator_epoch=1)
    in_transaction(table, 0, 10, epoch=5)
    table.replay(marker(12, 6), 0, end)
    assert table.check_marker(7, 6, end, bumped=True) == ENDED


def test_a_deposed_coordinator_ends_nothing() -> None:
    table = ProducerTable()
    table.replay(marker(12), 0, EndTxnMarker(commits=True, coordinator_epoch=3))
    verdict = table.check_marker(
        7, 0, EndTxnMarker(commits=True, coordinator_epoch=2), bumped=False
    )
    assert code(verdict) == ErrorCode.TRANSACTION_COORDINATOR_FENCED


@pytest.mark.parametrize(
    ("producer_id", "given", "kept"),
    [(7, 2, 2), (7, 3, 3), (7, 4, 3), (7, -1, -1), (8, 1, 0), (8, 0, 0), (8, -1, -1)],
)
def test_an_administrators_marker_raises_no_epoch(producer_id: int, given: int, kept: int) -> None:
    table = ProducerTable()
    table.replay(marker(12), 0, EndTxnMarker(commits=True, coordinator_epoch=3))
    end = EndTxnMarker(commits=False, coordinator_epoch=given)
    assert table.administrators_marker(producer_id, end) == end._replace(coordinator_epoch=kept)


def test_a_producer_with_an_open_transaction_writes_in_it() -> None:
    table = ProducerTable()
    in_transaction(table, 0, 10)
    assert code(table.check_transaction(header(1))) == ErrorCode.INVALID_TXN_STATE
    assert table.check_transaction(header(1)._replace(attributes=0x10)) is None


@pytest.mark.feature("L13", "L16")
def test_the_next_transaction_waits_for_the_marker_of_the_last() -> None:
    table = ProducerTable()
    in_transaction(table, 0, 10, epoch=1)
    following = header(0, epoch=2)._replace(attributes=0x10)
    assert not table.is_open(7, 2)
    assert code(table.check_transaction(following)) == ErrorCode.NOT_ENOUGH_REPLICAS


def test_an_abort_of_the_next_transaction_ends_what_a_lost_marker_left_open() -> None:
    table = ProducerTable()
    in_transaction(table, 0, 10, epoch=1)  # a new leader of an unclean election lacks its marker
    end = EndTxnMarker(commits=False, coordinator_epoch=1)
    assert table.check_marker(7, 3, end, bumped=True) is ACCEPTED
    table.replay(marker(12, 3), 0, end)
    assert table.newly_aborted == [AbortedTxn(7, 10, 12, 13)]
    assert table.check_transaction(header(0, epoch=3)._replace(attributes=0x10)) is None


def test_the_owner_of_a_shard_only_rises() -> None:
    table = ProducerTable()
    for epoch in (3, 2):
        table.replay(marker(0, -1, producer_id=-1), 0, OwnerRecord(epoch))
    assert table.owner_epoch == 3


@pytest.mark.feature("L10", "L13")
@pytest.mark.parametrize(
    ("epoch", "heard"),
    [
        (0, ErrorCode.INVALID_PRODUCER_EPOCH),
        (1, ErrorCode.NONE),
        (2, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
    ],
)
def test_positions_join_the_open_transaction_and_no_other(epoch: int, heard: ErrorCode) -> None:
    table = ProducerTable()
    in_transaction(table, 0, 10, epoch=1)
    assert table.check_offsets(7, epoch) == heard


HISTORY = st.lists(
    st.tuples(st.integers(7, 8), st.sampled_from(["write", "commit", "abort", "bump"])),
    max_size=30,
)


@given(HISTORY, st.integers(0, 30))
def test_a_log_that_loses_its_beginning_keeps_its_producers(
    steps: list[tuple[int, str]], start: int
) -> None:
    """What a replay from ``start`` on adds to the state below it is the state before."""
    whole, again = ProducerTable(), ProducerTable()
    batches = []
    epochs, sequences = {7: 0, 8: 0}, {7: 0, 8: 0}
    for offset, (producer_id, step) in enumerate(steps):
        if step == "bump":
            epochs[producer_id], sequences[producer_id] = epochs[producer_id] + 1, 0
        epoch, sequence = epochs[producer_id], sequences[producer_id]
        control = None if step == "write" else EndTxnMarker(step == "commit", 1)
        if control is None:
            sequences[producer_id] += 1
        batch = header(-1 if control else sequence, epoch=epoch, producer_id=producer_id)
        attributes = 0x30 if control else TRANSACTIONAL_BIT
        batch = batch._replace(base_offset=offset, attributes=attributes)
        batches.append((batch, control))
        whole.replay(batch, 1_000, control)
    again.restore(whole.state_below(start))
    for batch, control in batches[start:]:
        again.replay(batch, 1_000, control)
    assert set(again.entries()) == set(whole.entries())
