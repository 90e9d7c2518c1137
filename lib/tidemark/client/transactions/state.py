"""What a transactional producer may do next, and what a failure means for its transaction. Pure.

A failure is *abortable* when aborting mends it: the next transaction has a new epoch, and starts
clean. It is *fatal* when this producer can never write again: another took over its transactional
id, or may not.
"""

from collections.abc import Mapping
from enum import Enum, auto
from typing import Final

from tidemark.client.errors import (
    AbortableTransactionError,
    ClientError,
    InvalidTransactionStateError,
)
from tidemark.model.errors import ErrorCode


class Phase(Enum):
    """Where a producer is between transactions."""

    NEW = auto()  # init() has not succeeded
    READY = auto()
    OPEN = auto()
    FAILED = auto()  # can only be aborted
    COMMITTING = auto()  # asked for, perhaps more than once; the outcome is not known yet
    ABORTING = auto()
    FATAL = auto()


class Act(Enum):
    """What is done, or happens."""

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
    (Phase.COMMITTING, Act.COMMIT): Phase.COMMITTING,  # asked again after a time-out
    (Phase.COMMITTING, Act.ENDED):  Phase.READY,
    (Phase.COMMITTING, Act.FAIL):   Phase.FAILED,
    (Phase.ABORTING,   Act.ABORT):  Phase.ABORTING,
    (Phase.ABORTING,   Act.FAIL):   Phase.ABORTING,    # batches that fail by the abort
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
"""A partition's leader may know a newer epoch because the coordinator aborted us for taking too
long; when the coordinator itself says so, we are fenced.
"""


class TransactionState:
    """One producer's. ``failure``: why the transaction cannot commit, or the producer not go on."""

    def __init__(self) -> None:
        self.phase = Phase.NEW
        self.failure: ClientError | None = None

    def do(self, act: Act) -> None:
        """Move on. Raises InvalidTransactionStateError out of order, AbortableTransactionError in a
        failed transaction, and the fatal error ever after.
        """
        if self.phase is Phase.FATAL:
            assert self.failure is not None, "fatal without a reason"
            raise self.failure.with_traceback(None)
        after = NEXT_PHASE.get((self.phase, act))
        if after is None:
            raise self._refusal(act)
        self.phase = after
        if act is Act.BEGIN:
            self.failure = None

    def on_failure(self, problem: ClientError, *, at_end: bool = False) -> None:
        """Something of this transaction failed for good. ``at_end``: the coordinator's own
        answer.
        """
        if self.phase is Phase.FATAL:
            return
        if problem.code in (_FATAL_AT_END if at_end else _FATAL):
            self.failure = problem
            self.do(Act.DIE)
        elif (self.phase, Act.FAIL) in NEXT_PHASE:
            self.failure = self.failure or problem
            self.do(Act.FAIL)

    def check_sendable(self) -> None:
        """Raise unless a record may be taken into the open transaction."""
        if self.phase is not Phase.OPEN:
            self.do(Act.SEND)

    def abortable(self) -> AbortableTransactionError:
        """Why the transaction cannot commit."""
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
