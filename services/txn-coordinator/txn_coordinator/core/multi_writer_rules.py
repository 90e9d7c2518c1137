"""Multi-writer transactions: begin, enlist writers, add partitions, finish.

Any process that has the handle may enlist a writer or finish the transaction. A commit names the
writers that count, and the same record aborts all others. A repeated commit has the same result.
"""

import zlib
from dataclasses import replace
from typing import Final

from tidemark.codec.txn_handle import Handle, format_handle, parse_handle
from tidemark.codec.txn_records import EndKind, HandleRecord, Outcome, WriterRecord
from tidemark.model.errors import ErrorCode

from txn_coordinator.core import additions, transaction
from txn_coordinator.core.multi_writer_transaction import MultiWriterTransaction
from txn_coordinator.core.requests import (
    NO_PRODUCER_ID,
    AddPartitions,
    BeginTransaction,
    BeginTransactionReply,
    CountedWriter,
    EnlistWriter,
    EnlistWriterReply,
    FinishTransaction,
    FinishTransactionReply,
)
from txn_coordinator.core.ruling import Ruling
from txn_coordinator.core.sessions import id_problem, timeout_problem
from txn_coordinator.core.settings import TxnSettings

OUTCOMES_KEPT: Final = 64
"""Transactions of one id whose outcome is kept for a late FinishTransaction."""
WRITER_NAME_BYTES_MAX: Final = 255
ATTEMPT_ID_BYTES_MAX: Final = 16
_MARKER_STEP: Final = 1
"""Distance from the epoch of a writer to the epoch of its markers."""
_ASSIGNMENT_STEP: Final = 1 + _MARKER_STEP
"""Distance from the epoch of a slot in one transaction to that in the next, past its markers."""

_BY_BATCH: Final = "enlist in its batches and finish them, or forget the sink first"
_OUTCOMES: Final = {
    EndKind.COMMITTED: "was committed",
    EndKind.ABORTED: "was aborted by request",
    EndKind.TIMED_OUT: "was aborted: it ran longer than its timeout",
    EndKind.SUPERSEDED: "was aborted for a newer session or transaction of its id",
}


def begin_problem(request: BeginTransaction, settings: TxnSettings) -> BeginTransactionReply | None:
    """Return the refusal of a request that is invalid in any state, else None."""
    problem = id_problem(request.transactional_id)
    if problem is not None:
        return BeginTransactionReply(ErrorCode.INVALID_REQUEST, problem)
    problem = timeout_problem(request.transaction_timeout_ms, settings)
    if problem is not None:
        return BeginTransactionReply(ErrorCode.INVALID_TRANSACTION_TIMEOUT, problem)
    if len(request.attempt_id) > ATTEMPT_ID_BYTES_MAX:
        message = f"an attempt id has at most {ATTEMPT_ID_BYTES_MAX} bytes"
        return BeginTransactionReply(ErrorCode.INVALID_REQUEST, message)
    return None


def begun_before(
    txn: MultiWriterTransaction | None, request: BeginTransaction
) -> BeginTransactionReply | None:
    """Return the reply to a request that has begun the last transaction; None to any other. What
    has become of the transaction does not matter: the caller finds out with its handle.
    """
    record = txn.record if txn is not None else None
    if record is None or not request.attempt_id or record.attempt_id != request.attempt_id:
        return None
    return BeginTransactionReply(ErrorCode.NONE, handle=handle_of(record))


def begin(txn: MultiWriterTransaction | None, request: BeginTransaction, wall_ms: int) -> Ruling:
    """Open the next transaction. The caller has made sure that Kafka's API has none open."""
    last = txn.record if txn is not None else None
    if last is not None and last.sink is not None:
        message = f"{request.transactional_id!r} is a sink's: {_BY_BATCH}"
        return Ruling(BeginTransactionReply(ErrorCode.INVALID_TXN_STATE, message))
    if last is not None and last.state in transaction.PREPARED:
        return Ruling(_begin_later("the last transaction is being ended"))
    if last is not None and last.state is transaction.ONGOING:
        if not request.abort_previous:
            return Ruling(_begin_later("a transaction is open"))
        assert txn is not None
        aborting = force_abort(txn, EndKind.SUPERSEDED, wall_ms)
        return Ruling(_begin_later("the open transaction is aborted first"), (aborting,))
    record = begun(
        last,
        request.transactional_id,
        request.transaction_timeout_ms,
        wall_ms,
        attempt_id=request.attempt_id,
    )
    return Ruling(BeginTransactionReply(ErrorCode.NONE, handle=handle_of(record)), (record,))


def begun(
    last: HandleRecord | None,
    transactional_id: str,
    timeout_ms: int,
    wall_ms: int,
    *,
    attempt_id: bytes = b"",
) -> HandleRecord:
    """Return the record that opens the next transaction. ``last`` is complete, or None."""
    return HandleRecord(
        transactional_id,
        number=last.number + 1 if last is not None else 1,
        created_at=last.created_at if last is not None else wall_ms,
        timeout_ms=timeout_ms,
        state=transaction.ONGOING,
        updated_at=transaction.later(last.updated_at, wall_ms) if last is not None else wall_ms,
        started_at=wall_ms,
        outcomes=last.outcomes if last is not None else (),
        attempt_id=attempt_id,
    )


def handle_of(record: HandleRecord) -> str:
    """Return the handle of the record's transaction."""
    return format_handle(Handle(record.transactional_id, record.number, record.created_at))


def enlist(
    txn: MultiWriterTransaction | None, request: EnlistWriter, settings: TxnSettings
) -> Ruling:
    """Assign a slot to a writer."""
    problem = _enlist_problem(txn, request)
    if problem is not None:
        return Ruling(problem)
    assert txn is not None
    assert txn.record is not None
    if txn.record.sink is not None:
        message = f"{txn.transactional_id!r} is a sink's: {_BY_BATCH}"
        return Ruling(EnlistWriterReply(ErrorCode.INVALID_TXN_STATE, message))
    return enlist_open(txn, request, settings)


def enlist_open(
    txn: MultiWriterTransaction, request: EnlistWriter, settings: TxnSettings
) -> Ruling:
    """Assign a slot of the open transaction to a writer. A writer whose slot has data already gets
    another slot: the data of the first one is aborted, whatever happens with the second.
    """
    assert txn.state is transaction.ONGOING, txn.record
    held = txn.slot_of_writer.get(request.writer)
    if held is not None and not txn.slots[held].partitions:
        return _assign_again(txn.slots[held], request)
    if txn.enlisted_count >= settings.writers_max:
        message = f"a transaction has at most {settings.writers_max} writers"
        return Ruling(EnlistWriterReply(ErrorCode.POLICY_VIOLATION, message))
    ruling = _assign_next(txn, request)
    if held is None or not ruling.records:
        return ruling
    superseded = replace(txn.slots[held], superseded=True)
    return Ruling(ruling.reply, (superseded, *ruling.records))


def add_partitions(
    txn: MultiWriterTransaction,
    slot: WriterRecord,
    request: AddPartitions,
    settings: TxnSettings,
) -> Ruling:
    """Rule on a request of a writer's producer, or of a partition's leader for it."""
    epoch = txn.current_epoch(slot)
    if request.producer_epoch != epoch or epoch > transaction.CLIENT_EPOCH_MAX:
        return Ruling(additions.fenced(epoch))
    if txn.state is not transaction.ONGOING or epoch != slot.producer_epoch:
        # The request has the epoch of the markers, which no producer was given.
        return Ruling(additions.fenced(epoch + 1))
    if request.verify_only:
        return Ruling(additions.verify(slot.partitions, request))
    added = frozenset(request.partitions) - slot.partitions
    if not added:
        return Ruling(additions.all_added(request))
    following = replace(slot, partitions=slot.partitions | added)
    if txn.pair_count + len(added) > settings.writer_partitions_max:
        return Ruling(additions.too_large())
    if not additions.fits(following, settings):
        return Ruling(additions.too_large())
    return Ruling(additions.all_added(request), (following,))


def finish(txn: MultiWriterTransaction | None, request: FinishTransaction, wall_ms: int) -> Ruling:
    """Decide the outcome, or return the one that was decided."""
    handle = parse_handle(request.handle)
    problem = handle_problem(txn, handle)
    if problem is not None:
        return Ruling(FinishTransactionReply(*problem))
    assert handle is not None
    assert txn is not None
    assert txn.record is not None
    if handle.number == txn.record.number and txn.state is transaction.ONGOING:
        if txn.record.sink is not None:
            message = f"{txn.transactional_id!r} is a sink's: {_BY_BATCH}"
            return Ruling(FinishTransactionReply(ErrorCode.INVALID_TXN_STATE, message))
        return _decide(txn, request, wall_ms)
    return Ruling(_decided(txn.record, handle.number, request))


def force_abort(txn: MultiWriterTransaction, kind: EndKind, wall_ms: int) -> HandleRecord:
    """Return the record that aborts the open transaction, for a reason other than a request."""
    assert txn.record is not None
    return ended(txn.record, kind, wall_ms)


def completed(record: HandleRecord, wall_ms: int) -> HandleRecord:
    """Return the record of the transaction once all markers are written."""
    return replace(
        record,
        state=(
            transaction.COMPLETE_COMMIT
            if record.state is transaction.PREPARE_COMMIT
            else transaction.COMPLETE_ABORT
        ),
        updated_at=transaction.later(record.updated_at, wall_ms),
    )


def _begin_later(message: str) -> BeginTransactionReply:
    return BeginTransactionReply(ErrorCode.CONCURRENT_TRANSACTIONS, message)


def handle_problem(
    txn: MultiWriterTransaction | None, handle: Handle | None
) -> tuple[ErrorCode, str] | None:
    """Return why the handle identifies no transaction; None if it does."""
    if handle is None:
        return ErrorCode.INVALID_REQUEST, "this is not a transaction handle"
    record = txn.record if txn is not None else None
    if record is None or record.created_at != handle.created_at:
        message = f"{handle.transactional_id!r} has no transactions with a handle, or they expired"
        return ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, message
    if not 1 <= handle.number <= record.number:
        return ErrorCode.INVALID_REQUEST, f"there was never a transaction {handle.number}"
    return None


def _enlist_problem(
    txn: MultiWriterTransaction | None, request: EnlistWriter
) -> EnlistWriterReply | None:
    handle = parse_handle(request.handle)
    problem = handle_problem(txn, handle)
    if problem is not None:
        return EnlistWriterReply(*problem)
    assert handle is not None
    assert txn is not None
    assert txn.record is not None
    if handle.number != txn.record.number or txn.state is not transaction.ONGOING:
        ending = ending_of(txn.record, handle.number)
        message = f"transaction {handle.number} of {handle.transactional_id!r} {ending}"
        return EnlistWriterReply(ErrorCode.INVALID_TXN_STATE, message)
    wrong = name_problem(request.writer)
    return EnlistWriterReply(ErrorCode.INVALID_REQUEST, wrong) if wrong is not None else None


def name_problem(writer: str) -> str | None:
    """Return why a writer's name is invalid; None if it is not."""
    if 0 < len(writer.encode()) <= WRITER_NAME_BYTES_MAX:
        return None
    return f"a writer's name has from 1 to {WRITER_NAME_BYTES_MAX} bytes"


def _assign_again(slot: WriterRecord, request: EnlistWriter) -> Ruling:
    """Assign a slot without data again. The next epoch fences its last holder."""
    return _assign(slot, slot.producer_epoch + 1, request)


def _assign_next(txn: MultiWriterTransaction, request: EnlistWriter) -> Ruling:
    assert txn.record is not None
    return assign_at(txn, txn.enlisted_count, txn.record, request)


def assign_at(
    txn: MultiWriterTransaction | None, place: int, record: HandleRecord, request: EnlistWriter
) -> Ruling:
    """Assign the slot at ``place``, which has no writer in the transaction of ``record``."""
    slot = txn.slots.get(place) if txn is not None else None
    if slot is not None:
        vacant = replace(
            slot,
            number=record.number,
            writer=request.writer,
            superseded=False,
            partitions=frozenset(),
        )
        return _assign(vacant, slot.producer_epoch + _ASSIGNMENT_STEP, request)
    vacant = WriterRecord(
        record.transactional_id,
        place,
        record.number,
        request.writer,
        request.spare_producer_id,
        0,
    )
    if request.spare_producer_id == NO_PRODUCER_ID:
        return Ruling(_no_producer_id())
    return Ruling(_enlisted(vacant), (vacant,))


def _assign(slot: WriterRecord, producer_epoch: int, request: EnlistWriter) -> Ruling:
    """Assign the slot with this epoch, or with a new producer id if the epochs are used up."""
    record = replace(slot, producer_epoch=producer_epoch)
    if producer_epoch + _MARKER_STEP > transaction.EPOCH_MAX:
        if request.spare_producer_id == NO_PRODUCER_ID:
            return Ruling(_no_producer_id())
        record = replace(slot, producer_id=request.spare_producer_id, producer_epoch=0)
    return Ruling(_enlisted(record), (record,))


def _enlisted(slot: WriterRecord) -> EnlistWriterReply:
    return EnlistWriterReply(
        ErrorCode.NONE, producer_id=slot.producer_id, producer_epoch=slot.producer_epoch
    )


def _no_producer_id() -> EnlistWriterReply:
    return EnlistWriterReply(ErrorCode.COORDINATOR_NOT_AVAILABLE, "no new producer id is available")


def _decide(txn: MultiWriterTransaction, request: FinishTransaction, wall_ms: int) -> Ruling:
    if not request.commit:
        aborting = force_abort(txn, EndKind.ABORTED, wall_ms)
        return Ruling(FinishTransactionReply(ErrorCode.NONE), (aborting,))
    problem = winners_problem(txn, request.writers)
    if problem is not None:
        return Ruling(FinishTransactionReply(*problem))
    committing = committed(txn, request.writers, wall_ms)
    return Ruling(FinishTransactionReply(ErrorCode.NONE, committed=True), (committing,))


def committed(
    txn: MultiWriterTransaction, winners: tuple[CountedWriter, ...], wall_ms: int
) -> HandleRecord:
    """Return the record that commits these writers. ``winners_problem`` has found no problem."""
    assert txn.record is not None
    slots = tuple(sorted(txn.slot_of_writer[winner.writer] for winner in winners))
    crc = winners_crc(winners)
    return ended(txn.record, EndKind.COMMITTED, wall_ms, winners=slots, winners_crc=crc)


def winners_problem(
    txn: MultiWriterTransaction, winners: tuple[CountedWriter, ...]
) -> tuple[ErrorCode, str] | None:
    """Return why these writers cannot be committed; None if they can. A problem decides nothing:
    the transaction can still be committed with other writers.
    """
    if len({winner.writer for winner in winners}) != len(winners):
        return ErrorCode.INVALID_REQUEST, "a writer is named twice"
    for winner in winners:
        slot = txn.slot_of_writer.get(winner.writer)
        if slot is None:
            message = f"writer {winner.writer!r} was never enlisted"
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING, message
        held = txn.slots[slot]
        if (held.producer_id, held.producer_epoch) != (winner.producer_id, winner.producer_epoch):
            message = f"writer {winner.writer!r} was enlisted again since"
            return ErrorCode.PRODUCER_FENCED, message
    return None


def winners_crc(winners: tuple[CountedWriter, ...]) -> int:
    """Return a checksum of the writers of a commit, to compare commits after their records are
    gone.
    """
    lines = sorted(
        f"{winner.producer_id} {winner.producer_epoch} {winner.writer!r}" for winner in winners
    )
    return zlib.crc32("\n".join(lines).encode())


def ended(
    record: HandleRecord,
    kind: EndKind,
    wall_ms: int,
    *,
    winners: tuple[int, ...] = (),
    winners_crc: int = 0,
) -> HandleRecord:
    """Return the record that decides the outcome of all writers."""
    assert record.state is transaction.ONGOING, record
    is_commit = kind is EndKind.COMMITTED
    state = transaction.PREPARE_COMMIT if is_commit else transaction.PREPARE_ABORT
    outcomes = (*record.outcomes, Outcome(record.number, kind, winners_crc))
    return replace(
        record,
        state=state,
        updated_at=transaction.later(record.updated_at, wall_ms),
        winners=winners,
        outcomes=outcomes[-OUTCOMES_KEPT:],
    )


def _outcome(record: HandleRecord, number: int) -> Outcome | None:
    return next((outcome for outcome in record.outcomes if outcome.number == number), None)


def ending_of(record: HandleRecord, number: int) -> str:
    """Return how a transaction ended, for messages."""
    return _ending(_outcome(record, number))


def _ending(outcome: Outcome | None) -> str:
    return (
        _OUTCOMES[outcome.kind]
        if outcome is not None
        else "ended too long ago: its outcome is no longer known"
    )


def _decided(
    record: HandleRecord, number: int, request: FinishTransaction
) -> FinishTransactionReply:
    """Return the outcome that was decided: an error, if the request has another one."""
    outcome = _outcome(record, number)
    prefix = f"transaction {number} of {record.transactional_id!r}"
    if outcome is None:
        # INVALID_TXN_STATE comes with the outcome, which would be an abort here.
        message = f"{prefix} {_ending(outcome)}"
        return FinishTransactionReply(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, message)
    committed = outcome.kind is EndKind.COMMITTED
    if request.commit != committed:
        return FinishTransactionReply(
            ErrorCode.INVALID_TXN_STATE, f"{prefix} {_ending(outcome)}", committed
        )
    if committed and winners_crc(request.writers) != outcome.winners_crc:
        message = f"{prefix} was committed with other writers"
        return FinishTransactionReply(ErrorCode.INVALID_TXN_STATE, message, committed)
    return FinishTransactionReply(ErrorCode.NONE, committed=committed)
