"""Errors of a share-partition as clients see them."""

from collections.abc import Hashable
from typing import Final, NamedTuple

from tidemark.model.errors import ErrorCode

from broker.core.share.acknowledgement import Answer
from broker.core.share.states import Phase


class Settled(NamedTuple):
    """Answer to requests that waited for a write."""

    answer: Answer
    requests: tuple[Hashable, ...]
    refused: tuple[Hashable, ...] = ()
    """Requests whose transaction is not open: they are answered with ``answers.NOT_OPEN``."""


OVERTAKEN_BY: Final = frozenset(
    {
        ErrorCode.FENCED_STATE_EPOCH,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
"""Errors of the share-coordinator after which the share-partition is fenced."""
MAY_PASS: Final = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NETWORK_EXCEPTION,
    }
)
"""Errors of the share-coordinator, and of calls to it, that a later call may not meet."""
NOT_OPEN: Final = Answer(
    ErrorCode.INVALID_TXN_STATE, "the transaction of the acknowledgements is not open"
)
_FENCED_ANSWERS: Final = {
    ErrorCode.FENCED_STATE_EPOCH: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.FENCED_LEADER_EPOCH: ErrorCode.NOT_LEADER_OR_FOLLOWER,
}
_LOADING: Final = Answer(ErrorCode.LEADER_NOT_AVAILABLE, "the share-partition is being loaded")
NOT_READY: Final = {
    Phase.EMPTY: _LOADING,
    Phase.INITIALIZING: _LOADING,
    Phase.FAILED: Answer(
        ErrorCode.UNKNOWN_SERVER_ERROR, "the state of the share-partition could not be read"
    ),
    Phase.FENCED: Answer(
        ErrorCode.NOT_LEADER_OR_FOLLOWER, "the share-partition was taken over or reset"
    ),
}
"""Answers to requests in every phase but ACTIVE."""


def client_error(error_code: ErrorCode) -> ErrorCode:
    """Error for a client where the share-coordinator answered this one."""
    if error_code in MAY_PASS:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if error_code in OVERTAKEN_BY:
        return _FENCED_ANSWERS.get(error_code, error_code)
    return ErrorCode.NONE if error_code is ErrorCode.NONE else ErrorCode.UNKNOWN_SERVER_ERROR
