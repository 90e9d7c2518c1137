"""Views of an id for operators, and the ids that a listing includes."""

import pytest
from tidemark.model.errors import ErrorCode
from txn_coordinator.core import listing, transaction
from txn_coordinator.core.requests import ListTransactions, SinkView, TransactionView
from unit.txn_coordinator.worlds import ID, P0, P1, World, a_record

WALL_MS = 10_000


def a_view(**changes: object) -> TransactionView:
    fields: dict[str, object] = {"state": "Ongoing", "started_ms": 4_000, "producer_id": 7}
    return TransactionView(ID, ErrorCode.NONE, **{**fields, **changes})  # type: ignore[arg-type]


def test_an_unknown_id_is_not_found() -> None:
    assert listing.view(ID, None, None).error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


@pytest.mark.feature("L07")
def test_an_open_transaction_shows_its_writer_and_partitions() -> None:
    record = a_record(state=transaction.ONGOING, started_at=50, partitions=frozenset({P1, P0}))
    view = listing.view(ID, record, None)
    assert view.started_ms == 50
    assert view.partitions == (P0, P1)
    assert view.writers[0].producer_id == 7


def test_an_ended_transaction_keeps_its_start_and_has_no_writer() -> None:
    record = a_record(state=transaction.COMPLETE_ABORT, started_at=50)
    view = listing.view(ID, record, None)
    assert (view.started_ms, view.writers) == (50, ())


def test_a_handle_shows_all_of_its_writers() -> None:
    world = World()
    handle = world.handle()
    world.writer(handle, "a", P0)
    world.writer(handle, "b", P0, P1)
    view = world.view()
    assert view.handle == handle
    assert [writer.writer for writer in view.writers] == ["a", "b"]
    assert view.partitions == (P0, P1)


def test_the_later_of_two_that_ended_is_shown() -> None:
    world = World()
    world.session()
    world.finish(world.handle())
    assert world.state() == "CompleteCommit"
    world.advance(10)
    world.session()
    assert world.state() == "Empty"


def test_a_summary_leaves_the_parts_out() -> None:
    assert listing.summary(a_view(partitions=(P0,), handle="h")) == a_view()


@pytest.mark.parametrize(
    ("request_", "included"),
    [
        (ListTransactions(), True),
        (ListTransactions(states=("Ongoing", "Empty")), True),
        (ListTransactions(states=("Empty",)), False),
        (ListTransactions(states=("Nonsense",)), False),
        (ListTransactions(producer_ids=(6, 7)), True),
        (ListTransactions(producer_ids=(6,)), False),
        (ListTransactions(duration_ms_min=5_999), True),
        (ListTransactions(duration_ms_min=6_000), False),
        (ListTransactions(transactional_id_pattern="pay.*"), True),
        (ListTransactions(transactional_id_pattern="pay"), False),
    ],
)
def test_all_filters_must_match(request_: ListTransactions, included: bool) -> None:
    assert listing.filter_of(request_, WALL_MS)(a_view()) is included


def test_a_duration_counts_whatever_the_state_as_in_kafka() -> None:
    is_included = listing.filter_of(ListTransactions(duration_ms_min=1_000), WALL_MS)
    assert is_included(a_view(state="CompleteCommit"))
    assert is_included(a_view(state="Empty", started_ms=-1))
    assert not is_included(a_view(state="CompleteCommit", started_ms=9_000))


def test_a_sink_is_shown_whatever_changed_last() -> None:
    world = World()
    world.committed_batch(7, note="n")
    world.advance(1_000)
    world.session()
    view = world.view()
    assert view.state == "Empty"
    assert view.sink == SinkView("q", 7, "n", (), -1)
    assert listing.summary(view).sink is None
