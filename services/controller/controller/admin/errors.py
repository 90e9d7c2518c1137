"""AdminError: a refusal with an HTTP status, the code of Confluent's REST v3, and a remedy."""

from collections.abc import Mapping
from typing import Final

from tidemark.client.errors import ClientError
from tidemark.model.errors import ErrorCode, TidemarkError

BAD_VALUE: Final = 40002
UNKNOWN_TOPIC: Final = 40403
FORBIDDEN: Final = 40301
CONFLICT: Final = 40901
CHANGED: Final = 41201
UNPROCESSABLE: Final = 42201
TOO_MANY: Final = 42901
INTERNAL: Final = 50002
TRY_AGAIN: Final = 50003


class AdminError(Exception):
    """Refusal. ``field`` is the part of the request that caused it, ``remedy`` a next step."""

    def __init__(
        self,
        status: int,
        error_code: int,
        message: str,
        *,
        field: str | None = None,
        remedy: str | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.error_code = error_code
        self.message = message
        self.field = field
        self.remedy = remedy


def bad_value(message: str, *, field: str | None = None, remedy: str | None = None) -> AdminError:
    """Return the error for a value that is not allowed."""
    return AdminError(400, BAD_VALUE, message, field=field, remedy=remedy)


def not_found(message: str, *, field: str | None = None, remedy: str | None = None) -> AdminError:
    """Return the error for a resource that does not exist."""
    return AdminError(404, 404, message, field=field, remedy=remedy)


def unknown_topic(topic: str, partition: int | None = None) -> AdminError:
    """Return the error for a topic or partition that does not exist."""
    what = f"topic {topic!r}" if partition is None else f"partition {partition} of topic {topic!r}"
    return AdminError(
        404,
        UNKNOWN_TOPIC,
        f"this cluster does not have {what}",
        field="topic_name" if partition is None else "partition_id",
        remedy="GET /v3/clusters/{cluster_id}/topics lists the topics",
    )


def conflict(message: str, *, field: str | None = None, remedy: str | None = None) -> AdminError:
    """Return the error for a state in which the request is not possible."""
    return AdminError(409, CONFLICT, message, field=field, remedy=remedy)


def changed(message: str) -> AdminError:
    """Return the error for an If-Match that does not match."""
    return AdminError(
        412, CHANGED, message, field="If-Match", remedy="read the resource again, and its ETag"
    )


def try_again(message: str, remedy: str = "repeat the request in a few seconds") -> AdminError:
    """Return the error for a failure that may pass."""
    return AdminError(503, TRY_AGAIN, message, remedy=remedy)


_NOT_FOUND: Final = frozenset(
    {
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
        ErrorCode.RESOURCE_NOT_FOUND,
        ErrorCode.UNKNOWN_MEMBER_ID,
    }
)
_CONFLICTS: Final = frozenset(
    {
        ErrorCode.NON_EMPTY_GROUP,
        ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_EPOCH,
    }
)
_FORBIDDEN: Final = frozenset(
    {
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)
_SPECIAL: Final[Mapping[ErrorCode, tuple[int, int]]] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: (404, UNKNOWN_TOPIC),
    ErrorCode.MESSAGE_TOO_LARGE: (413, 41301),
    ErrorCode.UNKNOWN_SERVER_ERROR: (502, INTERNAL),
}


def from_cluster(error: TidemarkError, *, field: str | None = None) -> AdminError:
    """Return the answer to an error of a broker, a coordinator or the controller."""
    message, remedy = error.message, None
    if isinstance(error, ClientError):
        what, advised, advice = error.message.rpartition("; ")
        message, remedy = (what, advice) if advised else (error.message, None)
    return AdminError(
        *_status(error.code), f"{message} ({error.code.name})", field=field, remedy=remedy
    )


def _status(code: ErrorCode) -> tuple[int, int]:
    if code in _SPECIAL:
        return _SPECIAL[code]
    if code in _NOT_FOUND:
        return 404, 404
    if code in _CONFLICTS:
        return 409, CONFLICT
    if code in _FORBIDDEN:
        return 403, FORBIDDEN
    return (503, TRY_AGAIN) if code.retriable else (400, BAD_VALUE)
