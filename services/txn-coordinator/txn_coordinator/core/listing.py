"""Views of transactions for operators: DescribeTransactions and ListTransactions."""

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from tidemark.codec.txn_records import TransactionRecord, TransactionState, WriterRecord
from tidemark.model.errors import ErrorCode

from txn_coordinator.core import sink_rules, transaction
from txn_coordinator.core.id_pattern import compile_id_pattern, matches
from txn_coordinator.core.multi_writer_rules import handle_of
from txn_coordinator.core.multi_writer_transaction import MultiWriterTransaction
from txn_coordinator.core.requests import (
    ListTransactions,
    TransactionView,
    WriterView,
)

STATES_BY_TITLE: Final = {state.title: state for state in TransactionState}


def view(
    transactional_id: str, record: TransactionRecord | None, txn: MultiWriterTransaction | None
) -> TransactionView:
    """Return the full view of an id. If it was used by Kafka's API and for multi-writer
    transactions in turn, the open transaction counts, otherwise the one that changed last. The
    state of a sink's batches is always a part of the view.
    """
    sink = sink_rules.view(txn.record) if txn is not None and txn.record is not None else None
    if txn is not None and txn.record is not None and _multi_writer_counts(record, txn):
        return replace(_view_multi_writer(txn, record), sink=sink)
    if record is not None:
        return replace(_view_single(record), sink=sink)
    message = f"{transactional_id!r} is not known"
    return TransactionView(transactional_id, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, message)


def summary(full: TransactionView) -> TransactionView:
    """Return the part of a view that is in a listing."""
    return replace(full, partitions=(), writers=(), handle="", sink=None)


def filter_of(request: ListTransactions, wall_ms: int) -> Callable[[TransactionView], bool]:
    """Return the predicate of the ids that a listing includes. Raises IdPatternError.

    As in Kafka, a duration counts from the last start, whatever the state, and an id without any
    transaction is older than every duration.
    """
    states = {title for title in request.states if title in STATES_BY_TITLE}
    pattern = (
        compile_id_pattern(request.transactional_id_pattern)
        if request.transactional_id_pattern
        else None
    )
    producer_ids, duration_ms = frozenset(request.producer_ids), request.duration_ms_min

    def is_included(full: TransactionView) -> bool:
        return (
            (not request.states or full.state in states)
            and (not producer_ids or not producer_ids.isdisjoint(_producer_ids(full)))
            and (duration_ms < 0 or wall_ms - full.started_ms > duration_ms)
            and (pattern is None or matches(pattern, full.transactional_id))
        )

    return is_included


def _producer_ids(full: TransactionView) -> set[int]:
    return {full.producer_id, *(writer.producer_id for writer in full.writers)}


def _multi_writer_counts(record: TransactionRecord | None, txn: MultiWriterTransaction) -> bool:
    assert txn.record is not None
    if record is None or txn.is_open:
        return True
    return record.state not in transaction.OPEN and txn.record.updated_at > record.updated_at


def _view_single(record: TransactionRecord) -> TransactionView:
    is_open = record.state in transaction.OPEN
    partitions = tuple(sorted(record.partitions))
    writer = WriterView("", record.producer_id, record.producer_epoch, partitions)
    return TransactionView(
        record.transactional_id,
        ErrorCode.NONE,
        state=record.state.title,
        timeout_ms=record.timeout_ms,
        started_ms=record.started_at,
        producer_id=record.producer_id,
        producer_epoch=record.producer_epoch,
        partitions=partitions,
        writers=(writer,) if is_open else (),
    )


def _view_multi_writer(
    txn: MultiWriterTransaction, record: TransactionRecord | None
) -> TransactionView:
    assert txn.record is not None
    is_open = txn.is_open
    return TransactionView(
        txn.transactional_id,
        ErrorCode.NONE,
        state=txn.state.title,
        timeout_ms=txn.record.timeout_ms,
        started_ms=txn.record.started_at,
        producer_id=record.producer_id if record is not None else -1,
        producer_epoch=record.producer_epoch if record is not None else -1,
        partitions=tuple(sorted(txn.partitions())),
        writers=tuple(_view_writer(slot) for slot in txn.enlisted()) if is_open else (),
        handle=handle_of(txn.record) if is_open else "",
    )


def _view_writer(slot: WriterRecord) -> WriterView:
    partitions = tuple(sorted(slot.partitions))
    return WriterView(slot.writer, slot.producer_id, slot.producer_epoch, partitions)
