"""Sessions of a transactional id: InitProducerId, which fences all earlier sessions (KIP-98), or
continues the current one after an error (KIP-360).

An open transaction of the session before is aborted first. Until its markers are written, the reply
is CONCURRENT_TRANSACTIONS, and the client retries.
"""

from typing import Final

from tidemark.codec.txn_records import TransactionRecord
from tidemark.model.errors import ErrorCode

from txn_coordinator.core import transaction
from txn_coordinator.core.requests import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    InitTransactionalId,
    InitTransactionalIdReply,
)
from txn_coordinator.core.ruling import Ruling
from txn_coordinator.core.settings import TxnSettings

ID_BYTES_MAX: Final = 2**15 - 1
"""Longest transactional id that the key of a record can hold."""


def timeout_problem(timeout_ms: int, settings: TxnSettings) -> str | None:
    """Return why a requested timeout is invalid; None if it is not."""
    if 0 < timeout_ms <= settings.transaction_max_timeout_ms:
        return None
    most = settings.transaction_max_timeout_ms
    return f"a transaction timeout is from 1 to {most} ms (transaction.max.timeout.ms)"


def id_problem(transactional_id: str) -> str | None:
    """Return why a transactional id is invalid; None if it is not."""
    if not transactional_id:
        return "the transactional id is empty"
    if len(transactional_id.encode()) > ID_BYTES_MAX:
        return f"a transactional id has at most {ID_BYTES_MAX} bytes"
    return None


def request_problem(
    request: InitTransactionalId, settings: TxnSettings
) -> InitTransactionalIdReply | None:
    """Return the refusal of a request that is invalid in any state, else None."""
    problem = id_problem(request.transactional_id)
    if problem is not None:
        return _refused(ErrorCode.INVALID_REQUEST, problem)
    if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_PRODUCER_EPOCH):
        return _refused(ErrorCode.INVALID_REQUEST, "a producer id comes with its epoch (KIP-360)")
    problem = timeout_problem(request.transaction_timeout_ms, settings)
    if problem is not None:
        return _refused(ErrorCode.INVALID_TRANSACTION_TIMEOUT, problem)
    return None


def init_session(
    record: TransactionRecord | None, request: InitTransactionalId, wall_ms: int
) -> Ruling:
    """Rule on a request that is well-formed; ``record`` is the one in force."""
    if record is None:
        return _first_session(request, wall_ms)
    if request.producer_id != NO_PRODUCER_ID and not _is_known(record, request):
        return Ruling(_fenced(record))
    if record.state in transaction.PREPARED:
        return Ruling(concurrent("the last transaction is being ended"))
    if record.state is transaction.ONGOING:
        return _abort_previous(record, request, wall_ms)
    return _next_session(record, request, wall_ms)


def concurrent(message: str) -> InitTransactionalIdReply:
    """Return a refusal that clients retry soon."""
    return _refused(ErrorCode.CONCURRENT_TRANSACTIONS, message)


def _first_session(request: InitTransactionalId, wall_ms: int) -> Ruling:
    """Begin the first session. A producer id in the request is of an id that has expired here."""
    if request.spare_producer_id == NO_PRODUCER_ID:
        return Ruling(_no_producer_id())
    timeout_ms = request.transaction_timeout_ms
    record = transaction.new_session(
        request.transactional_id, request.spare_producer_id, timeout_ms, wall_ms
    )
    return Ruling(_granted(record), (record,))


def _is_known(record: TransactionRecord, request: InitTransactionalId) -> bool:
    """True if the request is of the current session. It may have the producer id that came with the
    end of a transaction, while markers are written; or repeat a request that took a new one, and
    whose reply was lost.
    """
    if request.producer_id == record.producer_id:
        return True
    if transaction.is_followed_by(record, request.producer_id, request.producer_epoch):
        return True
    return request.producer_id == record.previous_producer_id and transaction.is_exhausted(
        request.producer_epoch
    )


def _abort_previous(
    record: TransactionRecord, request: InitTransactionalId, wall_ms: int
) -> Ruling:
    """Abort the open transaction. The epoch of the abort is given only to the session whose
    transaction it was, which recovers by repeating the request.
    """
    is_same = request.producer_id != NO_PRODUCER_ID
    if is_same and (request.producer_id, request.producer_epoch) != (
        record.producer_id,
        record.producer_epoch,
    ):
        return Ruling(_fenced(record))
    last = record.producer_epoch if is_same else transaction.NO_EPOCH
    fenced = transaction.fenced(record, last_producer_epoch=last)
    aborting = transaction.prepared_abort_of_fenced(fenced, wall_ms)
    return Ruling(concurrent("the open transaction is aborted first"), (aborting,))


def _next_session(record: TransactionRecord, request: InitTransactionalId, wall_ms: int) -> Ruling:
    """Begin the next session, while no transaction is open, by Kafka's rules of
    TransactionMetadata.prepareIncrementProducerEpoch and prepareProducerIdRotation.
    """
    epoch = request.producer_epoch
    is_same = request.producer_id != NO_PRODUCER_ID
    if is_same and epoch not in (record.producer_epoch, record.last_producer_epoch):
        return Ruling(_fenced(record))
    timeout_ms, last = request.transaction_timeout_ms, epoch if is_same else transaction.NO_EPOCH
    is_repeated = is_same and epoch != record.producer_epoch
    if is_repeated and record.producer_epoch <= transaction.CLIENT_EPOCH_MAX:
        return Ruling(_granted(record))
    if transaction.is_exhausted(record.producer_epoch):
        if request.spare_producer_id == NO_PRODUCER_ID:
            return Ruling(_no_producer_id())
        rotated = transaction.rotated_session(
            record, request.spare_producer_id, timeout_ms, wall_ms, last_producer_epoch=last
        )
        return Ruling(_granted(rotated), (rotated,))
    following = transaction.next_session(record, timeout_ms, wall_ms, last_producer_epoch=last)
    return Ruling(_granted(following), (following,))


def _granted(record: TransactionRecord) -> InitTransactionalIdReply:
    return InitTransactionalIdReply(
        ErrorCode.NONE, producer_id=record.producer_id, producer_epoch=record.producer_epoch
    )


def _fenced(record: TransactionRecord) -> InitTransactionalIdReply:
    return _refused(
        ErrorCode.PRODUCER_FENCED,
        f"a newer session has producer id {record.producer_id}, epoch {record.producer_epoch}",
    )


def _no_producer_id() -> InitTransactionalIdReply:
    return _refused(ErrorCode.COORDINATOR_NOT_AVAILABLE, "no new producer id is available")


def _refused(code: ErrorCode, message: str) -> InitTransactionalIdReply:
    return InitTransactionalIdReply(code, message)
