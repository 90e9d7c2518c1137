"""Sinks: multi-writer transactions that are the batches of a streaming query, each committed once.

A batch is identified by (sink, query, batch id). One record commits its transaction and marks the
batch as committed. A new query takes the sink over, and the query before is retired: its batches
are refused from then on. None of this expires, except of a sink that was begun as one that does.
"""

from dataclasses import replace
from typing import Final

from tidemark.codec.sink_state import NO_BATCH, SinkState
from tidemark.codec.txn_handle import parse_handle
from tidemark.codec.txn_records import EndKind, HandleRecord
from tidemark.model.errors import ErrorCode

from txn_coordinator.core import multi_writer_rules, transaction
from txn_coordinator.core.multi_writer_transaction import MultiWriterTransaction
from txn_coordinator.core.requests import (
    BatchRefusal,
    EnlistInBatch,
    EnlistInBatchReply,
    EnlistWriter,
    EnlistWriterReply,
    FinishBatch,
    FinishBatchReply,
    ForgetSink,
    ForgetSinkReply,
    KeepBatchAlive,
    KeepBatchAliveReply,
    SinkView,
)
from txn_coordinator.core.ruling import Ruling
from txn_coordinator.core.sessions import id_problem, timeout_problem
from txn_coordinator.core.settings import TxnSettings

NOTE_BYTES_MAX: Final = 4_096
QUERY_ID_BYTES_MAX: Final = 255
EMPTY_BATCH_TIMEOUT_MS: Final = 60_000
"""Timeout of a batch that its commit opens. It runs out only if the append of both was torn."""
_BEING_ENDED: Final = "the last transaction is being ended"
_ABORTED_FIRST: Final = "the open batch is aborted first"
_IN_USE: Final = "a transaction of another kind is open under the sink's id"

_Refused = tuple[ErrorCode, str, BatchRefusal]


def enlist(
    txn: MultiWriterTransaction | None, request: EnlistInBatch, wall_ms: int, settings: TxnSettings
) -> Ruling:
    """Assign a slot of the batch's transaction, and open the transaction if it is not."""
    problem = _enlist_request_problem(request, settings)
    if problem is not None:
        return Ruling(EnlistInBatchReply(*problem))
    record = txn.record if txn is not None else None
    refused = _refused(record, request.query_id, request.batch_id)
    if refused is not None:
        return Ruling(EnlistInBatchReply(*refused))
    sink = _taken_over(record, request, settings)
    if sink.committed_batch_id == request.batch_id:
        return Ruling(EnlistInBatchReply(ErrorCode.NONE, committed=True, note=sink.note))
    if txn is not None and _is_open(record, request.query_id, request.batch_id):
        return _join(txn, sink, request, settings)
    waiting = _make_room(txn, sink, wall_ms)
    if waiting is not None:
        message, records = waiting
        reply = EnlistInBatchReply(ErrorCode.CONCURRENT_TRANSACTIONS, message)
        return Ruling(reply, records)
    return _open(txn, sink, request, wall_ms)


def keep_alive_problem(
    txn: MultiWriterTransaction | None, request: KeepBatchAlive
) -> KeepBatchAliveReply | None:
    """Return the refusal if there is no open batch to keep alive, else None."""
    handle = parse_handle(request.handle)
    problem = multi_writer_rules.handle_problem(txn, handle)
    if problem is not None:
        return KeepBatchAliveReply(*problem)
    assert handle is not None
    assert txn is not None
    record = txn.record
    assert record is not None
    if handle.number != record.number or record.state is not transaction.ONGOING:
        ending = multi_writer_rules.ending_of(record, handle.number)
        return KeepBatchAliveReply(ErrorCode.INVALID_TXN_STATE, f"the batch {ending}")
    if record.sink is None:
        return KeepBatchAliveReply(ErrorCode.INVALID_REQUEST, "this transaction is not a batch")
    return None


def finish(
    txn: MultiWriterTransaction | None, request: FinishBatch, wall_ms: int, settings: TxnSettings
) -> Ruling:
    """Decide the outcome of a batch, or return the one that was decided. The first commit of a
    batch is its only one.
    """
    problem = _finish_request_problem(request)
    if problem is not None:
        return Ruling(FinishBatchReply(ErrorCode.INVALID_REQUEST, problem))
    record = txn.record if txn is not None else None
    refused = _refused(record, request.query_id, request.batch_id)
    if refused is not None:
        return Ruling(FinishBatchReply(*refused))
    sink = _taken_over(record, request, settings)
    if sink.committed_batch_id == request.batch_id:
        is_same = multi_writer_rules.winners_crc(request.writers) == sink.winners_crc
        reply = FinishBatchReply(
            ErrorCode.NONE,
            committed=True,
            note=sink.note,
            same_writers=request.commit and is_same,
        )
        return Ruling(reply)
    if txn is not None and _is_open(record, request.query_id, request.batch_id):
        return _decide(txn, sink, request, wall_ms)
    if not request.commit:
        return Ruling(FinishBatchReply(ErrorCode.NONE))
    if request.writers:
        message = _why_not_open(record, sink, request)
        return Ruling(FinishBatchReply(ErrorCode.INVALID_TXN_STATE, message))
    return _commit_empty(txn, sink, request, wall_ms)


def forget(txn: MultiWriterTransaction | None, request: ForgetSink, wall_ms: int) -> Ruling:
    """Remove the state of the sink, with its slots."""
    record = txn.record if txn is not None else None
    if txn is None or record is None:
        return Ruling(ForgetSinkReply(ErrorCode.NONE))
    if record.sink is None:
        message = f"{request.sink_id!r} is used for transactions other than batches"
        return Ruling(ForgetSinkReply(ErrorCode.INVALID_REQUEST, message))
    if record.state in transaction.PREPARED:
        return Ruling(ForgetSinkReply(ErrorCode.CONCURRENT_TRANSACTIONS, _BEING_ENDED))
    if record.state is not transaction.ONGOING:
        return Ruling(ForgetSinkReply(ErrorCode.NONE, forgotten=True), txn.tombstones())
    if not request.abort_open:
        message = f"batch {record.sink.batch_id} of query {record.sink.query_id!r} is open"
        return Ruling(ForgetSinkReply(ErrorCode.INVALID_TXN_STATE, message))
    aborting = multi_writer_rules.force_abort(txn, EndKind.SUPERSEDED, wall_ms)
    reply = ForgetSinkReply(ErrorCode.CONCURRENT_TRANSACTIONS, _ABORTED_FIRST)
    return Ruling(reply, (aborting,))


def in_use(
    request: EnlistInBatch | FinishBatch,
) -> EnlistInBatchReply | FinishBatchReply:
    """Return a refusal that clients retry soon: Kafka's API has a transaction open under the id."""
    code = ErrorCode.CONCURRENT_TRANSACTIONS
    if isinstance(request, EnlistInBatch):
        return EnlistInBatchReply(code, _IN_USE)
    return FinishBatchReply(code, _IN_USE)


def view(record: HandleRecord) -> SinkView | None:
    """Return the view for operators; None if the id is not a sink's."""
    sink = record.sink
    if sink is None:
        return None
    is_open = record.state is transaction.ONGOING
    return SinkView(
        sink.query_id,
        sink.committed_batch_id,
        sink.note,
        sink.retired,
        sink.batch_id if is_open else NO_BATCH,
    )


def _enlist_request_problem(
    request: EnlistInBatch, settings: TxnSettings
) -> tuple[ErrorCode, str] | None:
    problem = _names_problem(request) or multi_writer_rules.name_problem(request.writer)
    if problem is not None:
        return ErrorCode.INVALID_REQUEST, problem
    problem = timeout_problem(request.transaction_timeout_ms, settings)
    return (ErrorCode.INVALID_TRANSACTION_TIMEOUT, problem) if problem is not None else None


def _finish_request_problem(request: FinishBatch) -> str | None:
    problem = _names_problem(request)
    if problem is None and len(request.note.encode()) > NOTE_BYTES_MAX:
        return f"a note has at most {NOTE_BYTES_MAX} bytes"
    return problem


def _names_problem(request: EnlistInBatch | FinishBatch) -> str | None:
    problem = id_problem(request.sink_id)
    if problem is not None:
        return problem
    if not 0 < len(request.query_id.encode()) <= QUERY_ID_BYTES_MAX:
        return f"a query's id has from 1 to {QUERY_ID_BYTES_MAX} bytes"
    if request.batch_id < 0:
        return "batches are counted from 0"
    return None


def _refused(record: HandleRecord | None, query_id: str, batch_id: int) -> _Refused | None:
    """Return why this batch is refused for all time; None if it is not."""
    sink = record.sink if record is not None else None
    if record is None or sink is None:
        return None
    if query_id in sink.retired:
        message = (
            f"query {query_id!r} no longer has sink {record.transactional_id!r}:"
            f" query {sink.query_id!r} took it over"
        )
        return ErrorCode.PRODUCER_FENCED, message, BatchRefusal.RETIRED_QUERY
    if query_id != sink.query_id:
        return None
    newest, state = sink.committed_batch_id, "was committed"
    if record.state is transaction.ONGOING and sink.batch_id > newest:
        newest, state = sink.batch_id, "is open"
    if batch_id >= newest or batch_id == sink.committed_batch_id:
        return None
    message = (
        f"batch {batch_id} is older than batch {newest} of query {query_id!r}, which {state}:"
        " the checkpoint is older than what the sink has"
    )
    return ErrorCode.INVALID_TXN_STATE, message, BatchRefusal.STALE_BATCH


def _taken_over(
    record: HandleRecord | None, request: EnlistInBatch | FinishBatch, settings: TxnSettings
) -> SinkState:
    """Return the state of the sink once this query, which is not retired, has it. A sink that was
    to be kept still is; one that expires does so until a query wants to keep it.
    """
    sink = record.sink if record is not None else None
    if sink is None:
        return SinkState(request.query_id, expires=request.expires)
    expires = sink.expires and request.expires
    if sink.query_id == request.query_id:
        return replace(sink, expires=expires)
    retired = (*sink.retired, sink.query_id)[-settings.retired_queries_max :]
    return SinkState(request.query_id, retired=retired, expires=expires)


def _is_open(record: HandleRecord | None, query_id: str, batch_id: int) -> bool:
    sink = record.sink if record is not None else None
    return (
        record is not None
        and sink is not None
        and record.state is transaction.ONGOING
        and (sink.query_id, sink.batch_id) == (query_id, batch_id)
    )


def _make_room(
    txn: MultiWriterTransaction | None, sink: SinkState, wall_ms: int
) -> tuple[str, tuple[HandleRecord, ...]] | None:
    """Return why the next transaction cannot begin yet, and the records that make room for it: they
    abort an older batch, or one of the query that this retires. None if it can begin.
    """
    record = txn.record if txn is not None else None
    if txn is None or record is None:
        return None
    if record.state in transaction.PREPARED:
        return _BEING_ENDED, ()
    if record.state is not transaction.ONGOING:
        return None
    if record.sink is None:
        return _IN_USE, ()
    aborting = multi_writer_rules.force_abort(txn, EndKind.SUPERSEDED, wall_ms)
    return _ABORTED_FIRST, (replace(aborting, sink=sink),)


def _join(
    txn: MultiWriterTransaction, sink: SinkState, request: EnlistInBatch, settings: TxnSettings
) -> Ruling:
    assert txn.record is not None
    handle = multi_writer_rules.handle_of(txn.record)
    ruling = multi_writer_rules.enlist_open(txn, _as_enlist(request, handle), settings)
    return _enlisted(ruling, sink, handle)


def _open(
    txn: MultiWriterTransaction | None, sink: SinkState, request: EnlistInBatch, wall_ms: int
) -> Ruling:
    """Open the batch with its first writer."""
    begun = _begun(txn, sink, request, request.transaction_timeout_ms, wall_ms)
    handle = multi_writer_rules.handle_of(begun)
    ruling = multi_writer_rules.assign_at(txn, 0, begun, _as_enlist(request, handle))
    if not ruling.records:
        return _enlisted(ruling, sink, handle)
    return _enlisted(ruling._replace(records=(begun, *ruling.records)), sink, handle)


def _begun(
    txn: MultiWriterTransaction | None,
    sink: SinkState,
    request: EnlistInBatch | FinishBatch,
    timeout_ms: int,
    wall_ms: int,
) -> HandleRecord:
    last = txn.record if txn is not None else None
    begun = multi_writer_rules.begun(last, request.sink_id, timeout_ms, wall_ms)
    return replace(begun, sink=replace(sink, batch_id=request.batch_id))


def _as_enlist(request: EnlistInBatch, handle: str) -> EnlistWriter:
    return EnlistWriter(handle, request.writer, request.spare_producer_id)


def _enlisted(ruling: Ruling, sink: SinkState, handle: str) -> Ruling:
    """Return the ruling on EnlistInBatch that corresponds to one on EnlistWriter."""
    reply = ruling.reply
    assert isinstance(reply, EnlistWriterReply)
    if reply.error_code is not ErrorCode.NONE:
        return Ruling(EnlistInBatchReply(reply.error_code, reply.error_message))
    is_new = sink.committed_batch_id == NO_BATCH
    enlisted = EnlistInBatchReply(
        ErrorCode.NONE,
        handle=handle,
        producer_id=reply.producer_id,
        producer_epoch=reply.producer_epoch,
        retired_query_id=sink.retired[-1] if is_new and sink.retired else "",
    )
    return Ruling(enlisted, ruling.records)


def _decide(
    txn: MultiWriterTransaction, sink: SinkState, request: FinishBatch, wall_ms: int
) -> Ruling:
    if not request.commit:
        aborting = multi_writer_rules.force_abort(txn, EndKind.ABORTED, wall_ms)
        return Ruling(FinishBatchReply(ErrorCode.NONE), (aborting,))
    problem = multi_writer_rules.winners_problem(txn, request.writers)
    if problem is not None:
        code, message = problem
        if code is ErrorCode.INVALID_PRODUCER_ID_MAPPING:
            message += " in this transaction of the batch; was one aborted? Write it again"
        return Ruling(FinishBatchReply(code, message))
    committing = multi_writer_rules.committed(txn, request.writers, wall_ms)
    return _committed(replace(committing, sink=_done(sink, request)), request)


def _commit_empty(
    txn: MultiWriterTransaction | None, sink: SinkState, request: FinishBatch, wall_ms: int
) -> Ruling:
    """Commit a batch without data: its transaction begins and ends at once."""
    waiting = _make_room(txn, sink, wall_ms)
    if waiting is not None:
        message, records = waiting
        return Ruling(FinishBatchReply(ErrorCode.CONCURRENT_TRANSACTIONS, message), records)
    begun = _begun(txn, sink, request, EMPTY_BATCH_TIMEOUT_MS, wall_ms)
    crc = multi_writer_rules.winners_crc(())
    committing = multi_writer_rules.ended(begun, EndKind.COMMITTED, wall_ms, winners_crc=crc)
    ruling = _committed(replace(committing, sink=_done(sink, request)), request)
    return Ruling(ruling.reply, (begun, *ruling.records))


def _done(sink: SinkState, request: FinishBatch) -> SinkState:
    return replace(
        sink,
        batch_id=request.batch_id,
        committed_batch_id=request.batch_id,
        winners_crc=multi_writer_rules.winners_crc(request.writers),
        note=request.note,
    )


def _committed(committing: HandleRecord, request: FinishBatch) -> Ruling:
    reply = FinishBatchReply(
        ErrorCode.NONE, committed=True, first=True, note=request.note, same_writers=True
    )
    return Ruling(reply, (committing,))


def _why_not_open(record: HandleRecord | None, sink: SinkState, request: FinishBatch) -> str:
    """Return why a commit that names writers finds no open transaction."""
    batch = f"batch {request.batch_id} of query {request.query_id!r}"
    if record is not None and sink.batch_id == request.batch_id:
        return f"{batch} {multi_writer_rules.ending_of(record, record.number)}: write it again"
    return f"{batch} is not open: no writer enlisted in it, or it was aborted"
