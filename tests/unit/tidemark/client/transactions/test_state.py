from contextlib import AbstractContextManager, nullcontext
from itertools import product

import pytest
from tidemark.client.errors import (
    AbortableTransactionError,
    ClientError,
    InvalidTransactionStateError,
    ProducerFencedError,
    error_for,
)
from tidemark.client.transactions.state import NEXT_PHASE, Act, Phase, TransactionState
from tidemark.model.errors import ErrorCode


def failure(code: ErrorCode) -> ClientError:
    return error_for(code, "it failed")


def in_phase(phase: Phase) -> TransactionState:
    state = TransactionState()
    state.phase = phase
    if phase in (Phase.FAILED, Phase.FATAL):
        state.failure = failure(ErrorCode.PRODUCER_FENCED)
    return state


@pytest.mark.parametrize(("phase", "act"), list(product(Phase, Act)))
def test_a_move_outside_the_table_is_refused(phase: Phase, act: Act) -> None:
    state = in_phase(phase)
    allowed = (phase, act) in NEXT_PHASE and phase is not Phase.FATAL
    expected: AbstractContextManager[object] = nullcontext()
    if not allowed:
        expected = pytest.raises(ClientError)
    with expected:
        state.do(act)
    assert state.phase is (NEXT_PHASE[phase, act] if allowed else phase)


def opened() -> TransactionState:
    state = TransactionState()
    state.do(Act.INIT)
    state.do(Act.BEGIN)
    return state


def test_a_failed_transaction_can_only_be_aborted() -> None:
    state = opened()
    state.on_failure(failure(ErrorCode.MESSAGE_TOO_LARGE))
    with pytest.raises(AbortableTransactionError, match="it failed"):
        state.check_sendable()
    with pytest.raises(AbortableTransactionError):
        state.do(Act.COMMIT)
    state.do(Act.ABORT)
    state.do(Act.ENDED)
    state.do(Act.BEGIN)
    assert state.failure is None


def test_a_newer_epoch_at_a_partition_may_be_mended_and_at_the_coordinator_not() -> None:
    state = opened()
    state.on_failure(failure(ErrorCode.INVALID_PRODUCER_EPOCH))
    assert state.phase is Phase.FAILED
    state.do(Act.ABORT)
    state.on_failure(failure(ErrorCode.INVALID_PRODUCER_EPOCH), at_end=True)
    with pytest.raises(ProducerFencedError):
        state.do(Act.BEGIN)


@pytest.mark.parametrize("code", [ErrorCode.PRODUCER_FENCED, ErrorCode.UNSUPPORTED_VERSION])
def test_what_is_fatal_is_told_ever_after(code: ErrorCode) -> None:
    state = opened()
    state.on_failure(failure(code))
    for act in (Act.SEND, Act.ABORT, Act.BEGIN):
        with pytest.raises(ClientError, match="it failed"):
            state.do(act)


def test_out_of_order_says_what_the_order_is() -> None:
    with pytest.raises(InvalidTransactionStateError, match="the order is begin"):
        TransactionState().do(Act.BEGIN)
