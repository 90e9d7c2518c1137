"""One shard as a whole: its replies, its records and its markers."""

from dataclasses import replace

import pytest
from tidemark.model.errors import ErrorCode
from tidemark.protocol.shard import Writer
from txn_coordinator.core.requests import (
    AddOffsets,
    AddOffsetsReply,
    FinishBatch,
    FinishBatchReply,
    InitTransactionalId,
    InitTransactionalIdReply,
    ListIds,
    ListIdsReply,
    ListSlice,
    ListTransactions,
    ListTransactionsReply,
)
from txn_coordinator.core.settings import TxnSettings
from unit.txn_coordinator.worlds import ID, P0, P1, Q0, TIMEOUT_MS, World, a_record

DAY_MS = 24 * 3_600_000
USED_ONCE = FinishBatch(ID, "once", 0, commit=True, expires=True)


@pytest.fixture
def world() -> World:
    return World()


@pytest.mark.feature("L01", "K01")
def test_the_first_session_of_an_id_has_a_new_producer_id(world: World) -> None:
    assert world.session("a") == (1_000, 0)
    assert world.session("b") == (1_001, 0)


@pytest.mark.feature("L01", "L02", "L03")
def test_the_next_session_of_an_id_has_its_producer_id_and_the_next_epoch(world: World) -> None:
    first = world.session()
    assert world.session() == (first[0], first[1] + 1)
    assert world.add(first, P0).error_code == ErrorCode.PRODUCER_FENCED


@pytest.mark.feature("L01", "L06")
def test_a_session_outlives_its_coordinator(world: World) -> None:
    session = world.session()
    world.crash()
    assert world.add(session, P0).error_code == ErrorCode.NONE
    assert world.state() == "Ongoing"


@pytest.mark.feature("L08")
def test_markers_are_sent_by_the_decision_and_the_end_follows_them(world: World) -> None:
    session = world.session()
    world.add(session, P0, Q0)
    assert world.end(session).error_code == ErrorCode.NONE
    (markers,) = world.markers
    assert markers.commit
    assert markers.partitions == (P0, Q0)
    assert world.state() == "PrepareCommit"
    world.written(markers)
    assert world.state() == "CompleteCommit"


def test_the_end_waits_for_every_marker(world: World) -> None:
    session = world.session()
    world.add(session, P0, P1)
    world.end(session)
    world.written(world.markers[0], [P1])
    assert world.state() == "PrepareCommit"
    world.written(world.markers[0], [P1])
    assert world.state() == "PrepareCommit"
    world.written(world.markers[0], [P0])
    assert world.state() == "CompleteCommit"


def test_late_markers_of_one_transaction_do_not_end_the_next(world: World) -> None:
    """Transactions v1: both have the same epoch."""
    session = world.session()
    world.add(session, P0)
    world.end(session)
    late = world.markers[0]
    world.all_written()
    world.add(session, P0)
    world.end(session)
    world.written(late)
    assert world.state() == "PrepareCommit"


@pytest.mark.feature("L03", "L04")
def test_a_new_session_aborts_what_the_one_before_left_open(world: World) -> None:
    old = world.session()
    world.add(old, P0)
    assert world.init().error_code == ErrorCode.CONCURRENT_TRANSACTIONS
    (markers,) = world.markers
    assert not markers.commit
    assert markers.producer_epoch == old[1] + 1
    assert world.init().error_code == ErrorCode.CONCURRENT_TRANSACTIONS
    world.all_written()
    assert world.session() == (old[0], old[1] + 2)


@pytest.mark.feature("L04", "L13")
def test_a_new_session_waits_for_the_commit_of_the_one_before(world: World) -> None:
    old = world.session()
    world.add(old, P0)
    world.end(old)
    assert world.init().error_code == ErrorCode.CONCURRENT_TRANSACTIONS
    assert world.state() == "PrepareCommit"
    world.all_written()
    assert world.state() == "CompleteCommit"
    assert world.session()[1] == old[1] + 1


def test_a_decision_is_not_made_again_after_a_crash(world: World) -> None:
    session = world.session()
    world.add(session, P0, P1)
    world.end(session)
    before = world.markers
    world.written(before[0], [P0])
    world.crash()
    assert world.markers == before
    world.all_written()
    assert world.state() == "CompleteCommit"


def test_markers_that_the_owner_before_sent_count(world: World) -> None:
    session = world.session()
    world.add(session, P0)
    world.end(session, commit=False)
    sent = world.markers[0]
    world.crash()
    world.written(sent)
    assert world.state() == "CompleteAbort"


def test_a_transaction_that_runs_too_long_is_aborted_and_its_producer_fenced(
    world: World,
) -> None:
    session = world.session()
    world.add(session, P0)
    world.advance(TIMEOUT_MS - 1)
    assert world.state() == "Ongoing"
    world.advance(1)
    assert world.state() == "PrepareAbort"
    assert world.markers[0].producer_epoch == session[1] + 1
    assert world.end(session).error_code == ErrorCode.PRODUCER_FENCED
    world.all_written()
    assert world.end(session, commit=False).error_code == ErrorCode.PRODUCER_FENCED


def test_a_new_owner_keeps_the_timeout_of_an_open_transaction(world: World) -> None:
    world.add(world.session(), P0)
    world.advance(TIMEOUT_MS // 2)
    world.crash()
    world.advance(TIMEOUT_MS // 2 - 1)
    assert world.state() == "Ongoing"
    world.advance(1)
    assert world.state() == "PrepareAbort"


def test_an_ended_transaction_does_not_time_out(world: World) -> None:
    session = world.session()
    world.add(session, P0)
    world.end(session)
    world.all_written()
    world.advance(2 * TIMEOUT_MS)
    assert world.state() == "CompleteCommit"


def test_more_timeouts_than_one_decision_takes(world: World) -> None:
    ids = [f"id-{number}" for number in range(300)]
    for transactional_id in ids:
        session = world.session(transactional_id)
        world.add(session, P0, transactional_id=transactional_id)
    world.advance(TIMEOUT_MS)
    assert {world.state(transactional_id) for transactional_id in ids} == {"PrepareAbort"}


def test_an_idle_id_is_forgotten_after_a_week(world: World) -> None:
    session = world.session()
    world.advance(6 * DAY_MS)
    assert world.state() == "Empty"
    world.advance(2 * DAY_MS)
    assert world.view().error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert world.add(session, P0).error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    world.crash()
    assert world.view().error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert world.session()[0] != session[0]


def test_an_unfinished_id_is_never_forgotten() -> None:
    world = World(TxnSettings(transactional_id_expiration_ms=1, expiry_interval_ms=10))
    world.add(world.session(), P0)
    world.advance(TIMEOUT_MS)
    assert world.state() == "PrepareAbort"
    world.advance(TIMEOUT_MS)
    assert world.state() == "PrepareAbort"


def test_expiry_comes_to_every_id() -> None:
    world = World(TxnSettings(transactional_id_expiration_ms=1, expiry_interval_ms=10))
    for number in range(5_000):
        world.shard.replay(a_record(transactional_id=f"id-{number}", producer_id=number), None)
    world.advance(10)
    assert world.shard.statistics().transactional_ids == 0


@pytest.mark.feature("L07")
def test_offsets_of_a_group_are_a_partition_of_the_transaction(world: World) -> None:
    session = world.session()
    reply = world.ask(AddOffsets(ID, *session, "readers"), AddOffsetsReply)
    assert reply.error_code == ErrorCode.NONE
    (partition,) = world.view().partitions
    assert partition.topic == "__consumer_offsets"
    assert 0 <= partition.partition < 50


def test_offsets_of_a_fenced_producer_are_refused(world: World) -> None:
    old = world.session()
    world.session()
    reply = world.ask(AddOffsets(ID, *old, "readers"), AddOffsetsReply)
    assert reply.error_code == ErrorCode.PRODUCER_FENCED


def test_a_session_may_not_ask_for_a_timeout_beyond_the_limit(world: World) -> None:
    for timeout_ms in (0, -1, 15 * 60_000 + 1):
        request = InitTransactionalId(ID, timeout_ms, 1)
        reply = world.ask(request, InitTransactionalIdReply)
        assert reply.error_code == ErrorCode.INVALID_TRANSACTION_TIMEOUT


def test_a_listing_says_what_is_open_and_for_how_long(world: World) -> None:
    world.session("idle")
    world.add(world.session("busy"), P0, transactional_id="busy")
    world.advance(1_000)
    wanted = ListTransactions(states=("Ongoing",), duration_ms_min=999)
    ids = world.ask(ListIds(), ListIdsReply).transactional_ids
    assert sorted(ids) == ["busy", "idle"]
    listed = world.ask(ListSlice(wanted, ("gone", *ids)), ListTransactionsReply)
    assert [(entry.transactional_id, entry.state) for entry in listed.transactions] == [
        ("busy", "Ongoing")
    ]
    assert world.shard.statistics().oldest_open_started_at == world.wall - 1_000


def test_a_listing_refuses_a_pattern_it_cannot_read(world: World) -> None:
    filters = ListTransactions(transactional_id_pattern="(a")
    listed = world.ask(ListSlice(filters, ()), ListTransactionsReply)
    assert listed.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION


def test_a_listing_names_states_that_do_not_exist(world: World) -> None:
    world.session()
    filters = ListTransactions(states=("Open", "Empty"))
    listed = world.ask(ListSlice(filters, (ID,)), ListTransactionsReply)
    assert listed.unknown_states == ("Open",)
    assert len(listed.transactions) == 1


def test_statistics_count_states_and_markers(world: World) -> None:
    session = world.session("a")
    world.session("b")
    world.add(session, P0, P1, transactional_id="a")
    world.end(session, transactional_id="a")
    counted = world.shard.statistics()
    assert counted.transactional_ids == 2
    assert counted.markers_outstanding == 2
    assert {state.title for state in counted.by_state} == {"Empty", "PrepareCommit"}


def test_a_marker_that_strayed_into_the_log_of_transactions_ends_nothing(world: World) -> None:
    session = world.session()
    world.add(session, P0)
    world.shard.replay_end(Writer(*session), commits=True)
    assert world.state() == "Ongoing"


@pytest.mark.feature("Y02")
def test_a_sink_never_expires() -> None:
    world = World(TxnSettings(transactional_id_expiration_ms=1, expiry_interval_ms=10))
    world.committed_batch(3)
    world.advance(100 * DAY_MS)
    assert world.enlist_in(3).committed


def test_a_sink_that_is_used_once_expires_when_it_is_unused() -> None:
    world = World(TxnSettings(transactional_id_expiration_ms=10, expiry_interval_ms=1))
    assert world.ask(replace(USED_ONCE, commit=False), FinishBatchReply).error_code == 0
    assert world.ask(USED_ONCE, FinishBatchReply).first
    assert not world.ask(USED_ONCE, FinishBatchReply).first
    world.crash()
    world.advance(20)
    assert world.view().error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


def test_a_sink_that_a_later_query_keeps_never_expires() -> None:
    world = World(TxnSettings(transactional_id_expiration_ms=10, expiry_interval_ms=1))
    assert world.ask(USED_ONCE, FinishBatchReply).first
    world.committed_batch(0, query="kept")
    assert world.ask(replace(USED_ONCE, query_id="last"), FinishBatchReply).first
    world.advance(20)
    assert world.view().error_code == ErrorCode.NONE


def test_no_batch_opens_beside_a_transaction_of_kafkas_api(world: World) -> None:
    session = world.session()
    world.add(session, P0)
    concurrent = ErrorCode.CONCURRENT_TRANSACTIONS
    assert world.enlist_in(0).error_code == concurrent
    assert world.finish_batch(0).error_code == concurrent
    world.end(session)
    world.all_written()
    assert world.enlist_in(0).error_code == ErrorCode.NONE


def test_no_batch_opens_beside_a_transaction_with_a_handle(world: World) -> None:
    handle = world.handle()
    assert world.enlist_in(0).error_code == ErrorCode.CONCURRENT_TRANSACTIONS
    world.finish(handle)
    assert world.enlist_in(0).error_code == ErrorCode.NONE


def test_a_new_session_of_kafkas_api_aborts_the_open_batch(world: World) -> None:
    writer = world.batch_writer(0, "a", P0)
    assert world.init().error_code == ErrorCode.CONCURRENT_TRANSACTIONS
    assert world.finish_batch(0, writer).error_code == ErrorCode.INVALID_TXN_STATE
    world.all_written()
    world.session()
    assert world.enlist_in(0).error_code == ErrorCode.NONE
