"""Errors as clients see them."""

import pytest
from broker.core.share.answers import MAY_PASS, NOT_READY, OVERTAKEN_BY, client_error
from broker.core.share.states import Phase
from tidemark.model.errors import ErrorCode


@pytest.mark.parametrize(
    ("code", "told"),
    [
        (ErrorCode.NONE, ErrorCode.NONE),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.FENCED_STATE_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.GROUP_ID_NOT_FOUND),
        (ErrorCode.INVALID_REQUEST, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_errors_of_the_coordinator(code: ErrorCode, told: ErrorCode) -> None:
    assert client_error(code) is told


@pytest.mark.parametrize("phase", Phase)
def test_every_phase_but_the_active_one_has_an_answer(phase: Phase) -> None:
    assert (phase in NOT_READY) == (phase is not Phase.ACTIVE)


def test_an_error_passes_or_fences_but_not_both() -> None:
    assert not MAY_PASS & OVERTAKEN_BY
