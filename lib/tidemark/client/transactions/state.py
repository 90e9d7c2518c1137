"""States of a transactional producer, and the effect of failures. Pure.

An *abortable* failure ends with the transaction: after an abort the next one has a new epoch. After
a *fatal* failure the producer cannot write again: another one took over its transactional id, or it
lacks a permission.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import Enum, auto
from typing import Final

from tidemark.client.errors import (
    AbortableTransactionError,
    ClientError,
    InvalidTransactionStateError,
)
from tidemark.model.errors import ErrorCode


class Phase(Enum):
    """State between and within transactions."""

    NEW = auto()  # init() has not succeeded
    READY = auto()
    OPEN = auto()
    FAILED = auto()  # can only be aborted
    COMMITTING = auto()  # requested, perhaps more than once; the outcome is not known yet
    ABORTING = auto()
    FATAL = auto()


class Act(Enum):
    """Action or event that changes the state."""

    INIT = auto()
    BEGIN = auto()
    SEND = auto()
    COMMIT = auto()
    ABORT = auto()
    ENDED = auto()
    FAIL = auto()
    DIE = auto()


# fmt: off
NEXT_PHASE: Final[Mapping[tuple[Phase, Act], Phase]] = {
    (Phase.NEW,        Act.INIT):   Phase.READY,
    (Phase.READY,      Act.BEGIN):  Phase.OPEN,
    (Phase.OPEN,       Act.SEND):   Phase.OPEN,
    (Phase.OPEN,       Act.FAIL):   Phase.FAILED,
    (Phase.OPEN,       Act.COMMIT): Phase.COMMITTING,
    (Phase.OPEN,       Act.ABORT):  Phase.ABORTING,
    (Phase.FAILED,     Act.FAIL):   Phase.FAILED,
    (Phase.FAILED,     Act.ABORT):  Phase.ABORTING,
    (Phase.COMMITTING, Act.COMMIT): Phase.COMMITTING,  # repeated after a time-out
    (Phase.COMMITTING, Act.ENDED):  Phase.READY,
    (Phase.COMMITTING, Act.FAIL):   Phase.FAILED,
    (Phase.ABORTING,   Act.ABORT):  Phase.ABORTING,
    (Phase.ABORTING,   Act.FAIL):   Phase.ABORTING,    # batches that the abort itself fails
    (Phase.ABORTING,   Act.ENDED):  Phase.READY,
} | {(phase, Act.DIE): Phase.FATAL for phase in Phase}
# fmt: on

_FATAL: Final = frozenset(
    {
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
        ErrorCode.UNSUPPORTED_VERSION,
    }
)
_FATAL_AT_END: Final = _FATAL | {ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_TXN_STATE}
"""A partition's leader may have a newer epoch because the coordinator aborted a transaction that
timed out.

From the coordinator itself, the error means that the producer is fenced.
"""


class TransactionState:
    """State of one producer. ``failure`` prevents the commit, or any further transaction."""

    def __init__(self) -> None:
        self.phase = Phase.NEW
        self.failure: ClientError | None = None
        self._adding: list[str] = []
        """Calls that may yet add to the transaction."""

    def do(self, act: Act) -> None:
        """Apply an action.

        Raises InvalidTransactionStateError out of order, AbortableTransactionError in a failed
        transaction, and the fatal error in all later calls.
        """
        if self.phase is Phase.FATAL:
            assert self.failure is not None, "fatal without a reason"
            raise self.failure.with_traceback(None)
        after = NEXT_PHASE.get((self.phase, act))
        if after is None:
            raise self._refusal(act)
        if act is Act.COMMIT and self._adding:
            raise _unfinished(self._adding[0])
        self.phase = after
        if act is Act.BEGIN:
            self.failure = None

    def on_failure(self, problem: ClientError, *, at_end: bool = False) -> None:
        """Record a failure that was not retried. ``at_end``: from the coordinator, at the end."""
        if self.phase is Phase.FATAL:
            return
        if problem.code in (_FATAL_AT_END if at_end else _FATAL):
            self.failure = problem
            self.do(Act.DIE)
        elif (self.phase, Act.FAIL) in NEXT_PHASE:
            self.failure = self.failure or problem
            self.do(Act.FAIL)

    def check_sendable(self) -> None:
        """Raise unless a record may be added to the open transaction."""
        if self.phase is not Phase.OPEN:
            self.do(Act.SEND)

    @contextmanager
    def adding(self, call: str) -> Iterator[None]:
        """Refuse to commit while ``call`` adds to the transaction, and after it was cancelled or
        interrupted, when it may have added all, a part or nothing. Its errors are the caller's.
        """
        self.check_sendable()
        self._adding.append(call)
        try:
            yield
        except Exception:
            raise
        except BaseException:
            self.on_failure(_cancelled(call))
            raise
        finally:
            self._adding.remove(call)

    def abortable(self) -> AbortableTransactionError:
        """Return the error that prevents the commit."""
        assert self.failure is not None, "failed without a reason"
        code = self.failure.code
        what = f"the transaction failed and cannot commit: {self.failure.message}"
        error = AbortableTransactionError(ErrorCode.TRANSACTION_ABORTABLE, what)
        error.add_note(f"first failure: {code.name}")
        return error

    def _refusal(self, act: Act) -> ClientError:
        if self.phase is Phase.FAILED:
            return self.abortable()
        return InvalidTransactionStateError(
            ErrorCode.INVALID_TXN_STATE,
            f"{act.name.lower()} while the producer is {self.phase.name.lower()}",
        )


def _unfinished(call: str) -> ClientError:
    return InvalidTransactionStateError(
        ErrorCode.INVALID_TXN_STATE,
        f"commit while {call} has not returned",
        hint="await it first, or abort() the transaction",
    )


def _cancelled(call: str) -> ClientError:
    return AbortableTransactionError(
        ErrorCode.TRANSACTION_ABORTABLE,
        f"{call} was cancelled, and may or may not have added to the transaction",
    )
