"""Both forms of a transaction answer the same questions."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from tidemark.codec.txn_records import HandleRecord, TransactionState, WriterRecord
from txn_coordinator.core import transaction
from txn_coordinator.core.multi_writer_transaction import MultiWriterTransaction
from txn_coordinator.core.requests import MarkersWritten
from txn_coordinator.core.transaction_forms import MultiWriter, SingleWriter, Transaction
from unit.txn_coordinator.worlds import ID, P0, P1, a_record

Form = Callable[[TransactionState], Transaction]
UPDATED_AT = 1_000
REPORT = MarkersWritten(ID, 1, 0, UPDATED_AT, (P0,))


def single(state: TransactionState) -> Transaction:
    written = frozenset({P0, P1})
    record = a_record(state=state, producer_id=1, producer_epoch=0, partitions=written)
    return SingleWriter(record, set(written))


def multi(state: TransactionState) -> Transaction:
    txn = MultiWriterTransaction(ID)
    txn.load(HandleRecord(ID, 1, 100, 60_000, state, UPDATED_AT, 150))
    txn.load(WriterRecord(ID, 0, 1, "w", 1, 0, partitions=frozenset({P0, P1})))
    txn.loaded()
    assert txn.record is not None
    return MultiWriter(txn.record, txn)


forms = pytest.mark.parametrize("form", [single, multi])


@forms
def test_a_prepared_transaction_has_a_marker_for_each_partition(form: Form) -> None:
    (markers,) = form(transaction.PREPARE_ABORT).markers()
    assert (markers.partitions, markers.commit, markers.prepared_at) == (
        (P0, P1),
        False,
        UPDATED_AT,
    )


@forms
def test_it_is_complete_with_its_last_marker(form: Form) -> None:
    txn = form(transaction.PREPARE_COMMIT)
    assert txn.is_reported(REPORT)
    assert not txn.markers_written(REPORT)
    assert txn.markers_written(replace(REPORT, partitions=(P1,)))
    assert txn.completed(UPDATED_AT).state is transaction.COMPLETE_COMMIT


@forms
@pytest.mark.parametrize(
    "report", [replace(REPORT, producer_id=2), replace(REPORT, prepared_at=UPDATED_AT - 1)]
)
def test_a_report_about_another_transaction_is_recognized(
    form: Form, report: MarkersWritten
) -> None:
    assert not form(transaction.PREPARE_COMMIT).is_reported(report)


@forms
def test_a_timeout_aborts(form: Form) -> None:
    assert form(transaction.ONGOING).timed_out(UPDATED_AT).state is transaction.PREPARE_ABORT


@forms
def test_an_unused_id_expires_and_an_open_transaction_never_does(form: Form) -> None:
    complete = form(transaction.COMPLETE_ABORT)
    assert complete.tombstones(UPDATED_AT - 1) == ()
    assert {one.transactional_id for one in complete.tombstones(UPDATED_AT)} == {ID}
    assert form(transaction.ONGOING).tombstones(UPDATED_AT) == ()
