"""Batches: enlist, keep alive, finish, forget; queries that take over a sink or are refused."""

import pytest
from tidemark.codec.txn_records import EndKind, HandleRecord
from tidemark.model.errors import ErrorCode
from txn_coordinator.core.requests import (
    BatchRefusal,
    CountedWriter,
    EnlistInBatch,
    EnlistInBatchReply,
    SinkView,
)
from txn_coordinator.core.settings import TxnSettings
from txn_coordinator.core.sink_rules import NOTE_BYTES_MAX, QUERY_ID_BYTES_MAX
from unit.txn_coordinator.worlds import ID, P0, P1, TIMEOUT_MS, World

CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS


def sink_of(world: World) -> SinkView:
    sink = world.view().sink
    assert sink is not None
    return sink


def outcome_of(world: World) -> list[EndKind]:
    """Return how each transaction of the sink ended."""
    last = [record for record in world.log if isinstance(record, HandleRecord)][-1]
    return [outcome.kind for outcome in last.outcomes]


class TestEnlist:
    def test_the_first_writer_opens_the_batch(self) -> None:
        world = World()
        reply = world.enlist_in(3)
        assert (reply.error_code, reply.committed) == (ErrorCode.NONE, False)
        assert world.state() == "Ongoing"
        assert sink_of(world) == SinkView("q", -1, "", (), 3)

    def test_others_join_it(self) -> None:
        world = World()
        first, second = world.enlist_in(3, "a"), world.enlist_in(3, "b")
        assert first.handle == second.handle
        assert first.producer_id != second.producer_id

    def test_a_name_that_wrote_nothing_is_handed_out_again_with_the_next_epoch(self) -> None:
        world = World()
        first, second = world.enlist_in(3), world.enlist_in(3)
        assert second.producer_id == first.producer_id
        assert second.producer_epoch == first.producer_epoch + 1

    def test_the_next_batch_uses_the_same_producer_beyond_its_markers(self) -> None:
        world = World()
        before = world.committed_batch(0)
        after = world.batch_writer(1, "b")
        assert after.producer_id == before.producer_id
        assert after.producer_epoch > before.producer_epoch + 1

    def test_a_committed_batch_is_reported_as_committed(self) -> None:
        world = World()
        world.committed_batch(3, note="ten rows")
        reply = world.enlist_in(3)
        assert (reply.committed, reply.note) == (True, "ten rows")
        assert reply.producer_id == -1

    def test_a_batch_is_done_before_its_markers_are_written(self) -> None:
        world = World()
        world.finish_batch(3, world.batch_writer(3, "a", P0))
        assert world.state() == "PrepareCommit"
        assert world.enlist_in(3).committed

    def test_an_older_batch_than_the_committed_one_is_refused(self) -> None:
        world = World()
        world.committed_batch(3)
        reply = world.enlist_in(2)
        assert reply.error_code is ErrorCode.INVALID_TXN_STATE
        assert reply.refusal is BatchRefusal.STALE_BATCH
        assert "batch 2 is older than batch 3 of query 'q', which was committed" in (
            reply.error_message
        )

    def test_an_older_batch_than_the_open_one_is_refused(self) -> None:
        world = World()
        world.enlist_in(4)
        reply = world.enlist_in(3)
        assert reply.refusal is BatchRefusal.STALE_BATCH
        assert sink_of(world).open_batch_id == 4

    def test_an_older_batch_than_an_aborted_one_is_taken(self) -> None:
        world = World()
        world.enlist_in(4)
        world.finish_batch(4, commit=False)
        assert world.enlist_in(3).error_code is ErrorCode.NONE

    def test_an_older_open_batch_is_aborted_first(self) -> None:
        world = World()
        world.batch_writer(3, "a", P0)
        assert world.enlist_in(4).error_code is CONCURRENT
        assert world.enlist_in(4).error_code is CONCURRENT
        world.all_written()
        assert world.enlist_in(4).error_code is ErrorCode.NONE
        assert outcome_of(world) == [EndKind.SUPERSEDED]

    def test_the_next_batch_waits_for_the_markers_of_the_last(self) -> None:
        world = World()
        world.finish_batch(3, world.batch_writer(3, "a", P0))
        assert world.enlist_in(4).error_code is CONCURRENT
        world.all_written()
        assert world.enlist_in(4).error_code is ErrorCode.NONE

    def test_batches_may_be_left_out(self) -> None:
        world = World()
        world.committed_batch(3)
        assert world.enlist_in(9).error_code is ErrorCode.NONE

    def test_without_a_producer_id_no_batch_is_opened(self) -> None:
        world = World()
        request = EnlistInBatch(ID, "q", 0, "a", TIMEOUT_MS, -1)
        reply = world.ask(request, EnlistInBatchReply)
        assert reply.error_code is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert world.log == []

    def test_there_is_a_bound_to_writers(self) -> None:
        world = World(TxnSettings(writers_max=1))
        world.enlist_in(0, "a")
        assert world.enlist_in(0, "b").error_code is ErrorCode.POLICY_VIOLATION

    @pytest.mark.parametrize(
        ("request_", "code"),
        [
            (EnlistInBatch("", "q", 0, "a", 1_000, 5), ErrorCode.INVALID_REQUEST),
            (EnlistInBatch(ID, "", 0, "a", 1_000, 5), ErrorCode.INVALID_REQUEST),
            (
                EnlistInBatch(ID, "q" * (QUERY_ID_BYTES_MAX + 1), 0, "a", 1_000, 5),
                ErrorCode.INVALID_REQUEST,
            ),
            (EnlistInBatch(ID, "q", -1, "a", 1_000, 5), ErrorCode.INVALID_REQUEST),
            (EnlistInBatch(ID, "q", 0, "", 1_000, 5), ErrorCode.INVALID_REQUEST),
            (EnlistInBatch(ID, "q", 0, "a", 0, 5), ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ],
    )
    def test_malformed_requests_change_nothing(
        self, request_: EnlistInBatch, code: ErrorCode
    ) -> None:
        world = World()
        reply = world.ask(request_, EnlistInBatchReply)
        assert reply.error_code is code
        assert world.log == []


class TestTakeOver:
    def test_a_new_query_retires_the_former_one(self) -> None:
        world = World()
        world.committed_batch(7, query="old")
        reply = world.enlist_in(0, query="new")
        assert reply.retired_query_id == "old"
        assert sink_of(world) == SinkView("new", -1, "", ("old",), 0)

    def test_all_writers_get_the_retired_query_until_the_first_commit(self) -> None:
        world = World()
        world.committed_batch(7, query="old")
        winner = world.batch_writer(0, "a", P0, query="new")
        assert world.enlist_in(0, "b", query="new").retired_query_id == "old"
        world.finish_batch(0, winner, query="new")
        world.all_written()
        assert world.enlist_in(1, query="new").retired_query_id == ""

    def test_the_open_batch_of_the_former_query_is_aborted(self) -> None:
        world = World()
        left_open = world.batch_writer(7, "a", P0, query="old")
        assert world.enlist_in(0, query="new").error_code is CONCURRENT
        refused = world.finish_batch(7, left_open, query="old")
        assert refused.refusal is BatchRefusal.RETIRED_QUERY
        world.all_written()
        assert world.enlist_in(0, query="new").retired_query_id == "old"
        assert outcome_of(world) == [EndKind.SUPERSEDED]

    @pytest.mark.parametrize("batch_id", [0, 7, 8])
    def test_a_retired_query_is_refused_whatever_it_asks(self, batch_id: int) -> None:
        world = World()
        world.committed_batch(7, query="old")
        world.enlist_in(0, query="new")
        replies = (
            world.enlist_in(batch_id, query="old"),
            world.finish_batch(batch_id, query="old"),
            world.finish_batch(batch_id, query="old", commit=False),
        )
        assert {reply.error_code for reply in replies} == {ErrorCode.PRODUCER_FENCED}
        assert {reply.refusal for reply in replies} == {BatchRefusal.RETIRED_QUERY}

    def test_batches_of_the_new_query_are_counted_by_themselves(self) -> None:
        world = World()
        world.committed_batch(7, query="old")
        world.committed_batch(2, query="new")
        assert world.enlist_in(7, query="new").committed is False

    def test_an_empty_commit_takes_over_too(self) -> None:
        world = World()
        world.committed_batch(7, query="old")
        assert world.finish_batch(0, query="new").first
        assert sink_of(world).retired_query_ids == ("old",)

    def test_an_abort_or_a_commit_of_a_batch_that_is_not_open_takes_nothing_over(self) -> None:
        world = World()
        winner = world.committed_batch(7, query="old")
        assert world.finish_batch(0, query="new", commit=False).committed is False
        refused = world.finish_batch(0, winner, query="new")
        assert refused.error_code is ErrorCode.INVALID_TXN_STATE
        assert sink_of(world).query_id == "old"

    def test_the_oldest_of_very_many_retired_queries_is_forgotten(self) -> None:
        world = World(TxnSettings(retired_queries_max=2))
        for query in ("a", "b", "c", "d"):
            world.committed_batch(0, query=query)
        assert sink_of(world).retired_query_ids == ("b", "c")


class TestKeepAlive:
    def test_the_timeout_counts_from_now(self) -> None:
        world = World()
        handle = world.enlist_in(0).handle
        for _ in range(3):
            world.advance(TIMEOUT_MS - 1)
            assert world.keep_alive(handle).error_code is ErrorCode.NONE
        assert world.state() == "Ongoing"
        world.advance(TIMEOUT_MS)
        assert outcome_of(world) == [EndKind.TIMED_OUT]

    @pytest.mark.parametrize("by", ["another writer", "a partition"])
    def test_a_run_that_joins_the_batch_has_a_whole_timeout(self, by: str) -> None:
        """The driver was down for nearly a timeout, and no writer has kept the batch alive yet."""
        world = World()
        first = world.batch_writer(0, "a")
        world.advance(TIMEOUT_MS - 1)
        if by == "another writer":
            writers = [world.batch_writer(0, "b", P0)]
        else:
            writers = [first]
            world.add((first.producer_id, first.producer_epoch), P0, v2=True)
        world.advance(TIMEOUT_MS - 1)
        writers.append(world.batch_writer(0, "c", P0))
        assert world.finish_batch(0, *writers).committed
        assert outcome_of(world) == [EndKind.COMMITTED]

    def test_nothing_is_logged(self) -> None:
        world = World()
        handle = world.enlist_in(0).handle
        before = list(world.log)
        world.keep_alive(handle)
        assert world.log == before

    def test_after_a_reload_there_is_a_whole_timeout(self) -> None:
        world = World()
        handle = world.enlist_in(0).handle
        world.advance(TIMEOUT_MS - 1)
        world.keep_alive(handle)
        world.advance(TIMEOUT_MS - 1)
        world.crash()
        world.advance(TIMEOUT_MS - 1)
        assert world.state() == "Ongoing"
        world.advance(1)
        assert world.state() == "CompleteAbort"

    def test_a_batch_that_ended_is_not_kept(self) -> None:
        world = World()
        handle = world.enlist_in(0).handle
        world.finish_batch(0, commit=False)
        reply = world.keep_alive(handle)
        assert reply.error_code is ErrorCode.INVALID_TXN_STATE
        assert reply.error_message == "the batch was aborted by request"

    def test_an_earlier_batch_is_not_kept_by_its_follower(self) -> None:
        world = World()
        handle = world.enlist_in(0).handle
        world.finish_batch(0, commit=False)
        world.enlist_in(1)
        assert world.keep_alive(handle).error_code is ErrorCode.INVALID_TXN_STATE

    @pytest.mark.parametrize(
        ("handle", "code"),
        [
            ("", ErrorCode.INVALID_REQUEST),
            (f"1.1.9.{ID}", ErrorCode.TRANSACTIONAL_ID_NOT_FOUND),
        ],
    )
    def test_there_must_be_such_a_batch(self, handle: str, code: ErrorCode) -> None:
        assert World().keep_alive(handle).error_code is code

    def test_a_transaction_with_a_handle_has_a_fixed_timeout(self) -> None:
        world = World()
        assert world.keep_alive(world.handle()).error_code is ErrorCode.INVALID_REQUEST


class TestFinish:
    def test_winners_are_committed_and_all_others_aborted(self) -> None:
        world = World()
        winner = world.batch_writer(0, "a", P0)
        world.batch_writer(0, "b", P1)
        reply = world.finish_batch(0, winner, note="n")
        assert (reply.committed, reply.first, reply.note) == (True, True, "n")
        ended = {markers.partitions: markers.commit for markers in world.markers}
        assert ended == {(P0,): True, (P1,): False}

    def test_the_first_commit_is_the_only_one(self) -> None:
        world = World()
        winner, late = world.batch_writer(0, "a", P0), world.batch_writer(0, "b", P1)
        world.finish_batch(0, winner, note="first")
        before = list(world.log)
        reply = world.finish_batch(0, late, note="second")
        assert (reply.committed, reply.first, reply.note) == (True, False, "first")
        assert not reply.same_writers
        assert world.log == before

    def test_a_repeated_commit_has_the_same_writers(self) -> None:
        world = World()
        winner = world.batch_writer(0, "a", P0)
        world.finish_batch(0, winner)
        reply = world.finish_batch(0, winner)
        assert (reply.first, reply.same_writers) == (False, True)

    def test_a_committed_batch_cannot_be_aborted(self) -> None:
        world = World()
        world.committed_batch(0, note="n")
        reply = world.finish_batch(0, commit=False)
        assert (reply.error_code, reply.committed, reply.note) == (ErrorCode.NONE, True, "n")
        assert not reply.same_writers

    def test_an_aborted_batch_is_written_again(self) -> None:
        world = World()
        world.batch_writer(0, "a", P0)
        assert world.finish_batch(0, commit=False).committed is False
        world.all_written()
        world.committed_batch(0)
        assert outcome_of(world) == [EndKind.ABORTED, EndKind.COMMITTED]

    @pytest.mark.parametrize("batch_id", [0, 5])
    def test_an_abort_of_a_batch_that_is_not_open_changes_nothing(self, batch_id: int) -> None:
        world = World()
        world.enlist_in(0)
        world.finish_batch(0, commit=False)
        before = list(world.log)
        reply = world.finish_batch(batch_id, commit=False)
        assert (reply.error_code, reply.committed) == (ErrorCode.NONE, False)
        assert world.log == before

    def test_a_batch_that_timed_out_must_be_written_again(self) -> None:
        world = World()
        winner = world.batch_writer(0, "a", P0)
        world.advance(TIMEOUT_MS)
        reply = world.finish_batch(0, winner)
        assert reply.error_code is ErrorCode.INVALID_TXN_STATE
        assert reply.error_message == (
            "batch 0 of query 'q' was aborted: it ran longer than its timeout: write it again"
        )

    def test_writers_of_an_aborted_attempt_do_not_count_in_the_next(self) -> None:
        world = World()
        zombie = world.batch_writer(0, "a", P0)
        world.finish_batch(0, commit=False)
        world.all_written()
        world.batch_writer(0, "a", P0)
        assert world.finish_batch(0, zombie).error_code is ErrorCode.PRODUCER_FENCED
        assert sink_of(world).open_batch_id == 0

    def test_a_writer_that_was_never_enlisted_does_not_count(self) -> None:
        world = World()
        world.batch_writer(0, "a", P0)
        reply = world.finish_batch(0, CountedWriter("b", 1, 0))
        assert reply.error_code is ErrorCode.INVALID_PRODUCER_ID_MAPPING
        assert reply.error_message == (
            "writer 'b' was never enlisted in this transaction of the batch;"
            " was one aborted? Write it again"
        )

    def test_an_older_batch_is_refused(self) -> None:
        world = World()
        world.committed_batch(3)
        replies = (world.finish_batch(2), world.finish_batch(2, commit=False))
        assert {reply.refusal for reply in replies} == {BatchRefusal.STALE_BATCH}

    def test_without_winners_all_is_aborted_and_the_batch_done(self) -> None:
        world = World()
        world.batch_writer(0, "a", P0)
        assert world.finish_batch(0).first
        assert [markers.commit for markers in world.markers] == [False]
        assert world.enlist_in(0).committed

    def test_a_note_has_a_bound(self) -> None:
        world = World()
        assert world.finish_batch(0, note="é" * (NOTE_BYTES_MAX // 2)).first
        reply = world.finish_batch(1, note="n" * (NOTE_BYTES_MAX + 1))
        assert reply.error_code is ErrorCode.INVALID_REQUEST


class TestEmptyBatches:
    @pytest.mark.parametrize("before", [None, 3])
    def test_a_batch_without_writers_is_committed(self, before: int | None) -> None:
        world = World()
        if before is not None:
            world.committed_batch(before)
        reply = world.finish_batch(4, note="nothing")
        assert (reply.committed, reply.first, reply.note) == (True, True, "nothing")
        assert world.state() == "CompleteCommit"
        assert world.enlist_in(4).note == "nothing"

    def test_no_marker_is_sent_for_it(self) -> None:
        world = World()
        world.committed_batch(3)
        world.finish_batch(4)
        assert world.markers == []

    def test_it_waits_for_the_markers_of_the_last(self) -> None:
        world = World()
        world.finish_batch(3, world.batch_writer(3, "a", P0))
        assert world.finish_batch(4).error_code is CONCURRENT
        world.all_written()
        assert world.finish_batch(4).first

    def test_an_older_open_batch_is_aborted_first(self) -> None:
        world = World()
        world.batch_writer(3, "a", P0)
        assert world.finish_batch(4).error_code is CONCURRENT
        world.all_written()
        assert world.finish_batch(4).first
        assert outcome_of(world) == [EndKind.SUPERSEDED, EndKind.COMMITTED]

    def test_torn_from_its_beginning_it_is_committed_by_the_next_asking(self) -> None:
        world = World()
        world.committed_batch(3)
        before = len(world.log)
        world.finish_batch(4)
        del world.log[before + 1 :]
        world.crash()
        assert sink_of(world).open_batch_id == 4
        assert world.finish_batch(4).first


class TestForget:
    def test_everything_is_lost(self) -> None:
        world = World()
        world.committed_batch(3, query="old")
        world.committed_batch(0)
        assert world.forget().forgotten
        assert world.view().error_code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        world.crash()
        assert world.enlist_in(0, query="old").error_code is ErrorCode.NONE

    def test_a_second_time_there_is_nothing_to_forget(self) -> None:
        world = World()
        world.committed_batch(0)
        world.forget()
        reply = world.forget()
        assert (reply.error_code, reply.forgotten) == (ErrorCode.NONE, False)

    def test_an_open_batch_is_not_lost_by_accident(self) -> None:
        world = World()
        world.batch_writer(4, "a", P0)
        reply = world.forget()
        assert reply.error_code is ErrorCode.INVALID_TXN_STATE
        assert reply.error_message == "batch 4 of query 'q' is open"

    def test_an_open_batch_is_aborted_first_on_request(self) -> None:
        world = World()
        world.batch_writer(4, "a", P0)
        assert world.forget(abort_open=True).error_code is CONCURRENT
        assert world.forget(abort_open=True).error_code is CONCURRENT
        world.all_written()
        assert world.forget(abort_open=True).forgotten

    def test_after_a_torn_append_it_can_be_repeated(self) -> None:
        world = World()
        world.finish_batch(0, world.batch_writer(0, "a", P0), world.batch_writer(0, "b", P1))
        world.all_written()
        before = len(world.log)
        world.forget()
        del world.log[before + 1 :]
        world.crash()
        assert sink_of(world).committed_batch_id == 0
        assert world.forget().forgotten

    def test_other_transactional_ids_are_left_alone(self) -> None:
        world = World()
        world.handle()
        assert world.forget().error_code is ErrorCode.INVALID_REQUEST
