"""Transactions with several writers: any process may finish one, and it ends once."""

from dataclasses import replace

import pytest
from tidemark.codec.txn_records import WriterRecord
from tidemark.model.errors import ErrorCode
from txn_coordinator.core.multi_writer_rules import OUTCOMES_KEPT
from txn_coordinator.core.requests import (
    AddOffsets,
    AddOffsetsReply,
    BeginTransaction,
    BeginTransactionReply,
    CountedWriter,
)
from txn_coordinator.core.settings import TxnSettings
from txn_coordinator.core.transaction import EPOCH_MAX
from unit.txn_coordinator.worlds import ID, P0, P1, P2, Q0, TIMEOUT_MS, World

FENCED = ErrorCode.PRODUCER_FENCED
INVALID_STATE = ErrorCode.INVALID_TXN_STATE


@pytest.fixture
def world() -> World:
    return World()


@pytest.mark.feature("Y04", "K01")
def test_every_writer_has_its_own_producer_id(world: World) -> None:
    handle = world.handle()
    first, second = world.enlist(handle, "a"), world.enlist(handle, "b")
    assert first.error_code == ErrorCode.NONE
    assert first.producer_id != second.producer_id


@pytest.mark.feature("Y04")
def test_a_commit_names_the_writers_that_count(world: World) -> None:
    handle = world.handle()
    winner = world.writer(handle, "a", P0, P1)
    loser = world.writer(handle, "b", P1)
    assert world.finish(handle, winner).committed
    markers = {marker.producer_id: marker for marker in world.markers}
    assert markers[winner.producer_id].commit
    assert markers[winner.producer_id].partitions == (P0, P1)
    assert not markers[loser.producer_id].commit
    assert markers[loser.producer_id].partitions == (P1,)


@pytest.mark.feature("Y04")
def test_a_repeated_commit_is_the_same_commit(world: World) -> None:
    handle = world.handle()
    winner = world.writer(handle, "a", P0)
    first = world.finish(handle, winner)
    sent = len(world.markers)
    assert world.finish(handle, winner) == first
    assert len(world.markers) == sent
    world.all_written()
    assert world.finish(handle, winner) == first
    world.handle()
    assert world.finish(handle, winner) == first


@pytest.mark.feature("Y04")
def test_a_handle_outlives_its_coordinator(world: World) -> None:
    handle = world.handle()
    winner = world.writer(handle, "a", P0)
    world.writer(handle, "b", P1)
    world.crash()
    assert world.finish(handle, winner).committed
    before = world.markers
    world.crash()
    assert world.markers == before
    world.all_written()
    assert world.state() == "CompleteCommit"
    assert world.finish(handle, winner).committed


def test_markers_have_epochs_beyond_their_writers(world: World) -> None:
    handle = world.handle()
    winner = world.writer(handle, "a", P0)
    world.finish(handle, winner)
    (markers,) = world.markers
    assert markers.producer_epoch == winner.producer_epoch + 1
    assert markers.transaction_version == 2


def test_a_slot_keeps_its_producer_id_and_passes_its_markers_epoch(world: World) -> None:
    handle = world.handle()
    first = world.writer(handle, "a", P0)
    world.finish(handle, first)
    world.all_written()
    second = world.writer(world.handle(), "z", P0)
    assert second.producer_id == first.producer_id
    assert second.producer_epoch == first.producer_epoch + 2


def test_a_writer_enlisted_again_fences_its_last_holder(world: World) -> None:
    handle = world.handle()
    first = world.writer(handle, "a")
    second = world.writer(handle, "a")
    assert second.producer_id == first.producer_id
    assert second.producer_epoch == first.producer_epoch + 1
    old = (first.producer_id, first.producer_epoch)
    assert world.add(old, P0, v2=True).error_code == FENCED
    assert world.finish(handle, first).error_code == FENCED
    assert world.finish(handle, second).committed


def test_data_of_a_writer_from_before_it_was_enlisted_again_is_aborted(world: World) -> None:
    handle = world.handle()
    first = world.writer(handle, "a", P0)
    second = world.writer(handle, "a", P0)
    old = (first.producer_id, first.producer_epoch)
    assert world.add(old, P1, v2=True).error_code == FENCED
    assert world.finish(handle, second).committed
    outcomes = {marker.producer_id: marker.commit for marker in world.markers}
    assert outcomes == {first.producer_id: False, second.producer_id: True}


def test_a_refused_commit_decides_nothing(world: World) -> None:
    handle = world.handle()
    winner = world.writer(handle, "a", P0)
    stranger = CountedWriter("b", 5, 0)
    unknown = ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert world.finish(handle, winner, stranger).error_code == unknown
    assert world.finish(handle, winner, winner).error_code == ErrorCode.INVALID_REQUEST
    assert world.state() == "Ongoing"
    assert world.finish(handle, winner).committed


def test_a_commit_with_other_writers_is_not_the_same_commit(world: World) -> None:
    handle = world.handle()
    one, other = world.writer(handle, "a", P0), world.writer(handle, "b", P1)
    world.finish(handle, one)
    reply = world.finish(handle, other)
    assert reply.error_code == INVALID_STATE
    assert reply.committed
    assert "other writers" in reply.error_message


@pytest.mark.feature("Y04")
def test_nothing_joins_a_transaction_that_is_decided(world: World) -> None:
    handle = world.handle()
    winner = world.writer(handle, "a", P0)
    session = (winner.producer_id, winner.producer_epoch)
    world.finish(handle, winner)
    assert world.add(session, P1, v2=True).error_code == FENCED
    assert world.enlist(handle, "b").error_code == INVALID_STATE
    world.all_written()
    assert world.add(session, P1, v2=True).error_code == FENCED
    assert world.add((session[0], session[1] + 1), P1, v2=True).error_code == FENCED


@pytest.mark.feature("Y04")
def test_a_transaction_that_timed_out_says_so(world: World) -> None:
    handle = world.handle()
    winner = world.writer(handle, "a", P0)
    world.advance(TIMEOUT_MS)
    assert world.state() == "PrepareAbort"
    reply = world.finish(handle, winner)
    assert reply.error_code == INVALID_STATE
    assert not reply.committed
    assert "timeout" in reply.error_message
    assert world.finish(handle, commit=False).error_code == ErrorCode.NONE


def test_an_abort_of_what_was_committed_is_refused(world: World) -> None:
    handle = world.handle()
    world.finish(handle, world.writer(handle, "a", P0))
    reply = world.finish(handle, commit=False)
    assert reply.error_code == INVALID_STATE
    assert reply.committed


def test_a_transaction_in_which_nothing_was_written_ends_at_once(world: World) -> None:
    handle = world.handle()
    assert world.finish(handle, world.writer(handle, "a")).committed
    assert world.markers == []
    assert world.state() == "CompleteCommit"


@pytest.mark.feature("L13")
def test_one_transaction_of_an_id_is_open_at_a_time(world: World) -> None:
    handle = world.handle()
    world.writer(handle, "a", P0)
    assert world.begin().error_code == ErrorCode.CONCURRENT_TRANSACTIONS
    assert world.state() == "Ongoing"
    assert world.begin(abort_previous=True).error_code == ErrorCode.CONCURRENT_TRANSACTIONS
    assert world.begin(abort_previous=True).error_code == ErrorCode.CONCURRENT_TRANSACTIONS
    world.all_written()
    assert world.begin(abort_previous=True).error_code == ErrorCode.NONE
    assert "newer" in world.finish(handle).error_message


@pytest.mark.feature("L04")
@pytest.mark.parametrize("abort_previous", [False, True])
def test_a_repeated_begin_gets_the_same_handle(world: World, *, abort_previous: bool) -> None:
    begun = world.begin(abort_previous=abort_previous, attempt=b"one")
    world.crash()
    assert world.begin(abort_previous=abort_previous, attempt=b"one") == begun
    assert world.finish(begun.handle, world.writer(begun.handle, "a", P0)).committed
    assert world.begin(attempt=b"one") == begun, "late, it begins nothing"
    world.all_written()
    assert world.begin(attempt=b"two").handle not in ("", begun.handle)


def test_attempts_of_others_and_without_an_id_meet_the_open_transaction(world: World) -> None:
    world.begin(attempt=b"one")
    for attempt in (b"two", b""):
        assert world.begin(attempt=attempt).error_code == ErrorCode.CONCURRENT_TRANSACTIONS
    assert world.begin(attempt=bytes(17)).error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.feature("L03", "L04")
def test_a_new_session_of_kafkas_api_aborts_an_open_handle(world: World) -> None:
    handle = world.handle()
    world.writer(handle, "a", P0)
    assert world.init().error_code == ErrorCode.CONCURRENT_TRANSACTIONS
    world.all_written()
    world.session()
    assert world.finish(handle).error_code == INVALID_STATE


def test_a_handle_waits_for_a_transaction_of_kafkas_api(world: World) -> None:
    session = world.session()
    world.add(session, P0)
    assert world.begin().error_code == ErrorCode.CONCURRENT_TRANSACTIONS
    assert world.state() == "Ongoing"
    assert world.begin(abort_previous=True).error_code == ErrorCode.CONCURRENT_TRANSACTIONS
    world.all_written()
    assert world.state() == "CompleteAbort"
    assert world.begin().error_code == ErrorCode.NONE
    fenced = (session[0], session[1] + 1)
    assert world.add(fenced, P0).error_code == ErrorCode.CONCURRENT_TRANSACTIONS


def test_a_writer_does_not_end_the_transaction_alone(world: World) -> None:
    winner = world.writer(world.handle(), "a", P0)
    reply = world.end((winner.producer_id, winner.producer_epoch), v2=True)
    assert reply.error_code == INVALID_STATE
    assert world.state() == "Ongoing"


def test_a_writer_may_commit_offsets(world: World) -> None:
    winner = world.writer(world.handle(), "a")
    request = AddOffsets(ID, winner.producer_id, winner.producer_epoch, "readers")
    assert world.ask(request, AddOffsetsReply).error_code == ErrorCode.NONE
    assert [partition.topic for partition in world.view().partitions] == ["__consumer_offsets"]


def test_a_leader_may_verify_what_a_writer_added(world: World) -> None:
    winner = world.writer(world.handle(), "a", P0)
    session = (winner.producer_id, winner.producer_epoch)
    reply = world.add(session, P0, P1, verify=True, v2=True)
    assert [result.error_code for result in reply.results] == [
        ErrorCode.NONE,
        ErrorCode.TRANSACTION_ABORTABLE,
    ]


@pytest.mark.feature("Y04")
def test_writers_and_their_partitions_have_limits() -> None:
    world = World(TxnSettings(writers_max=2, writer_partitions_max=3))
    handle = world.handle()
    winner = world.writer(handle, "a", P0, P1)
    world.writer(handle, "b", P0)
    assert world.enlist(handle, "c").error_code == ErrorCode.POLICY_VIOLATION
    session = (winner.producer_id, winner.producer_epoch)
    assert world.add(session, P2, v2=True).error_code == ErrorCode.POLICY_VIOLATION
    assert world.add(session, P1, v2=True).error_code == ErrorCode.NONE


@pytest.mark.parametrize("name", ["", "x" * 256])
def test_a_writers_name_has_a_length(world: World, name: str) -> None:
    assert world.enlist(world.handle(), name).error_code == ErrorCode.INVALID_REQUEST


def test_handles_of_no_transaction_are_refused(world: World) -> None:
    assert world.finish("junk").error_code == ErrorCode.INVALID_REQUEST
    missing = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert world.finish("1.1.5.nobody").error_code == missing
    assert world.enlist("1.1.5.nobody", "a").error_code == missing
    handle = world.handle()
    assert world.finish(handle.replace("1.1.", "1.2.")).error_code == ErrorCode.INVALID_REQUEST


def test_an_old_outcome_is_not_known(world: World) -> None:
    """INVALID_TXN_STATE would say that the transaction, which was committed, was aborted."""
    first = world.handle()
    world.finish(first)
    for _ in range(OUTCOMES_KEPT):
        world.finish(world.handle())
    reply = world.finish(first)
    assert reply.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert "too long ago" in reply.error_message


def test_a_handle_does_not_name_a_transaction_of_another_life() -> None:
    world = World(TxnSettings(transactional_id_expiration_ms=1_000, expiry_interval_ms=1_000))
    old = world.handle()
    world.finish(old, world.writer(old, "a"))
    world.advance(3_000)
    world.crash()
    assert world.handle() != old
    assert world.finish(old).error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


def test_used_up_epochs_bring_a_new_producer_id(world: World) -> None:
    handle = world.handle()
    first = world.writer(handle, "a")
    record = world.log[-1]
    assert isinstance(record, WriterRecord)
    world.shard.replay(replace(record, producer_epoch=EPOCH_MAX - 1), None)
    second = world.writer(handle, "a", Q0)
    assert second.producer_id != first.producer_id
    assert second.producer_epoch == 0
    assert world.add((first.producer_id, EPOCH_MAX - 1), P0).error_code == (
        ErrorCode.INVALID_PRODUCER_ID_MAPPING
    )


def test_a_timeout_beyond_the_limit_is_refused(world: World) -> None:
    request = BeginTransaction(ID, 15 * 60_000 + 1)
    reply = world.ask(request, BeginTransactionReply)
    assert reply.error_code == ErrorCode.INVALID_TRANSACTION_TIMEOUT
    assert world.begin("").error_code == ErrorCode.INVALID_REQUEST


def test_a_sinks_id_is_not_used_by_its_handles() -> None:
    world = World()
    handle = world.enlist_in(0).handle
    codes = {
        world.begin().error_code,
        world.enlist(handle, "b").error_code,
        world.finish(handle).error_code,
        world.finish(handle, commit=False).error_code,
    }
    assert codes == {ErrorCode.INVALID_TXN_STATE}
    assert world.state() == "Ongoing"
