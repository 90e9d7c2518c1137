"""EndTxn: the outcome is decided once, by the record that prepares it.

Transactions v1 keep the epoch: a late request of one transaction looks like one of the next. A
repeated request for the decided outcome gets the same reply at once: markers may wait for a
partition without a leader, long after the coordinator moved or its reply was lost.
Transactions v2 (KIP-890) raise the epoch with every transaction: a request with the epoch before is
a repetition, and gets the reply of the first.

             of the epoch before          of the current epoch            (v2, nothing open)
               abort       commit           abort          commit
Empty          fenced      fenced           epoch raised   refused
CompleteAbort  repeated    refused          epoch raised   refused
CompleteCommit refused     repeated         epoch raised   refused
PrepareAbort   repeated    refused          later          later
PrepareCommit  refused     repeated         later          later
"""

from tidemark.codec.txn_records import TransactionRecord
from tidemark.model.errors import ErrorCode

from txn_coordinator.core import transaction
from txn_coordinator.core.requests import NO_PRODUCER_ID, EndTransaction, EndTransactionReply
from txn_coordinator.core.ruling import Ruling


def end_transaction(
    record: TransactionRecord | None, request: EndTransaction, wall_ms: int
) -> Ruling:
    """Rule on a request; ``record`` is the one in force."""
    if record is None:
        return Ruling(_unknown(request))
    if request.transactions_v2:
        return _end_v2(record, request, wall_ms)
    return _end_v1(record, request, wall_ms)


def abort_forced(record: TransactionRecord, wall_ms: int) -> TransactionRecord:
    """Return the record that aborts a transaction after its timeout, or in favour of another one.
    It fences the producer, whose later requests have an old epoch.
    """
    return transaction.prepared_abort_of_fenced(transaction.fenced(record), wall_ms)


def _end_v1(record: TransactionRecord, request: EndTransaction, wall_ms: int) -> Ruling:
    if request.producer_id != record.producer_id:
        return Ruling(_unknown(request))
    if not transaction.may_write(record, request.producer_epoch):
        return Ruling(_fenced(record))
    if record.state is transaction.ONGOING:
        prepared = transaction.prepared_v1(record, wall_ms, commit=request.commit)
        return Ruling(EndTransactionReply(ErrorCode.NONE), (prepared,))
    if not _has_ended(record, commit=request.commit):
        return Ruling(_invalid(record, request))
    return Ruling(EndTransactionReply(ErrorCode.NONE))


def _end_v2(record: TransactionRecord, request: EndTransaction, wall_ms: int) -> Ruling:
    if _is_repeated(record, request):
        if _has_ended(record, commit=request.commit):
            return Ruling(_granted(record))
        return Ruling(_invalid(record, request))
    if transaction.is_followed_by(record, request.producer_id, request.producer_epoch):
        # The request is of the next transaction, which the client aborts before it sends anything.
        return Ruling(
            _refused(ErrorCode.CONCURRENT_TRANSACTIONS, "the last transaction is being ended")
        )
    if request.producer_id != record.producer_id:
        return Ruling(_unknown(request))
    if not transaction.may_write(record, request.producer_epoch):
        return Ruling(_fenced(record))
    if request.commit and record.state is not transaction.ONGOING:
        return Ruling(_invalid(record, request))
    next_producer_id = NO_PRODUCER_ID
    if transaction.is_exhausted(record.producer_epoch):
        next_producer_id = request.spare_producer_id
        if next_producer_id == NO_PRODUCER_ID:
            return Ruling(
                _refused(ErrorCode.COORDINATOR_NOT_AVAILABLE, "no new producer id is available")
            )
    prepared = transaction.prepared_v2(
        record, wall_ms, commit=request.commit, next_producer_id=next_producer_id
    )
    return Ruling(_granted(prepared), (prepared,))


def _is_repeated(record: TransactionRecord, request: EndTransaction) -> bool:
    """True if the request is a repetition of the one that ended the transaction of ``record``. A
    forced abort keeps no epoch of a request, so a producer that it fenced gets no other epoch.
    """
    if record.state not in transaction.PREPARED and record.state not in _COMPLETE:
        return False
    if request.producer_epoch != record.last_producer_epoch:
        return False
    if transaction.successor(record)[1] > transaction.CLIENT_EPOCH_MAX:
        return False
    if request.producer_id == record.producer_id:
        return record.producer_epoch == request.producer_epoch + 1
    return request.producer_id == record.previous_producer_id and record.producer_epoch == 0


_COMPLETE = frozenset({transaction.COMPLETE_COMMIT, transaction.COMPLETE_ABORT})
_COMMITTED = frozenset({transaction.PREPARE_COMMIT, transaction.COMPLETE_COMMIT})
_ABORTED = frozenset({transaction.PREPARE_ABORT, transaction.COMPLETE_ABORT})


def _has_ended(record: TransactionRecord, *, commit: bool) -> bool:
    return record.state in (_COMMITTED if commit else _ABORTED)


def _granted(record: TransactionRecord) -> EndTransactionReply:
    producer_id, producer_epoch = transaction.successor(record)
    return EndTransactionReply(
        ErrorCode.NONE, producer_id=producer_id, producer_epoch=producer_epoch
    )


def _unknown(request: EndTransaction) -> EndTransactionReply:
    return _refused(
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        f"producer id {request.producer_id} is not that of {request.transactional_id!r}",
    )


def _fenced(record: TransactionRecord) -> EndTransactionReply:
    return _refused(
        ErrorCode.PRODUCER_FENCED, f"the present producer epoch is {record.producer_epoch}"
    )


def _invalid(record: TransactionRecord, request: EndTransaction) -> EndTransactionReply:
    verb = "commit" if request.commit else "abort"
    return _refused(
        ErrorCode.INVALID_TXN_STATE, f"cannot {verb}: the transaction is {record.state.title}"
    )


def _refused(code: ErrorCode, message: str) -> EndTransactionReply:
    return EndTransactionReply(code, message)
