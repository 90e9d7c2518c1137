"""State that follows from the records: timeouts, outstanding markers, counts."""

from dataclasses import replace

import pytest
from tidemark.codec.txn_records import TransactionTombstone
from tidemark.model.ids import InstantMs, WallMs
from tidemark.protocol.shard import Moment
from txn_coordinator.core import transaction
from txn_coordinator.core.requests import MarkersWritten
from txn_coordinator.core.table import TxnTable
from unit.txn_coordinator.worlds import ID, P0, P1, World, a_record

NOW = Moment(InstantMs(100), WallMs(5_000))


def test_a_deadline_is_counted_from_the_start_by_the_wall_clock() -> None:
    table = TxnTable()
    table.load(a_record(state=transaction.ONGOING, started_at=4_000, timeout_ms=1_500))
    table.loaded(NOW)
    assert table.timeouts.first() == 600
    table.check()


def test_a_timeout_in_the_past_is_due_now() -> None:
    table = TxnTable()
    table.load(a_record(state=transaction.ONGOING, started_at=1, timeout_ms=1))
    table.loaded(NOW)
    assert table.timeouts.first() == 100


def test_a_clock_that_is_behind_gives_one_timeout_more_at_most() -> None:
    table = TxnTable()
    table.load(a_record(state=transaction.ONGOING, started_at=99_000, timeout_ms=1_500))
    table.loaded(NOW)
    assert table.timeouts.first() == 1_600


def test_the_last_record_of_a_key_counts() -> None:
    table = TxnTable()
    table.load(a_record(state=transaction.ONGOING, partitions=frozenset({P0})))
    table.load(a_record(state=transaction.PREPARE_ABORT, partitions=frozenset({P0, P1})))
    table.load(a_record(transactional_id="gone"))
    table.load(TransactionTombstone("gone"))
    table.loaded(NOW)
    table.check()
    assert table.outstanding == {ID: {P0, P1}}
    assert table.statistics().transactional_ids == 1


def test_a_record_that_the_table_of_states_forbids_fails() -> None:
    table = TxnTable()
    table.load(a_record(state=transaction.PREPARE_ABORT, partitions=frozenset({P0})))
    table.loaded(NOW)
    with pytest.raises(AssertionError):
        table.replay(a_record(state=transaction.COMPLETE_COMMIT), NOW)


def test_markers_are_outstanding_until_written() -> None:
    table = TxnTable()
    table.load(a_record(state=transaction.PREPARE_ABORT, partitions=frozenset({P0, P1})))
    table.loaded(NOW)
    (single,) = table.transactions(ID)
    report = MarkersWritten(ID, 1, 0, 0, (P0,))
    assert not single.markers_written(report)
    assert single.markers_written(replace(report, partitions=(P1,)))


def test_sinks_are_counted_until_they_are_forgotten() -> None:
    world = World()
    world.committed_batch(0)
    world.handle("other")
    assert world.shard.statistics().sinks == 1
    world.forget()
    assert world.shard.statistics().sinks == 0
