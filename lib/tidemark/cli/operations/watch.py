"""Operations as rows, and waiting for the end of one."""

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

from tidemark.cli.failure import CommandError
from tidemark.cli.rest_client import RestClient, segment

COLUMNS: Final = ("id", "action", "subject", "state", "percent", "message", "created")
_FINISHED: Final = frozenset({"succeeded", "failed", "cancelled"})
_EVERY_S: Final = 0.5

Row = dict[str, Any]


def row_of(operation: Row) -> Row:
    """Return the row of one operation."""
    messages = operation["messages"]
    return {
        "id": operation["operation_id"],
        "action": operation["action"],
        "subject": operation["subject"],
        "state": operation["state"],
        "percent": round(100 * operation["progress"]),
        "message": messages[-1]["text"] if messages else None,
        "created": instant(operation["created_ms"]),
        "updated": instant(operation["updated_ms"]),
        "moves": operation["moves_count"],
        "principal": operation["principal"],
        "messages": [
            {"at": instant(one["at_ms"]), "text": one["text"]} for one in operation["messages"]
        ],
    }


def instant(at_ms: int) -> str:
    """Return a time, in UTC."""
    return datetime.fromtimestamp(at_ms / 1_000, UTC).isoformat(timespec="seconds")


def listed(rest: RestClient, state: str | None) -> list[Row]:
    """Return the rows of operations, the latest first."""
    return [row_of(one) for one in rest.call("GET", "/v3/operations", state=state)["data"]]


def shown(rest: RestClient, operation_id: str) -> Row:
    """Return the row of one operation. Raises CommandError."""
    return row_of(rest.call("GET", f"/v3/operations/{segment(operation_id)}"))


def cancelled(rest: RestClient, operation_id: str) -> Row:
    """Cancel an operation, and return its row. Raises CommandError."""
    return row_of(rest.call("DELETE", f"/v3/operations/{segment(operation_id)}"))


def ended(rest: RestClient, operation_id: str, advance: Callable[[int], None]) -> Row:
    """Wait until an operation has ended. Raises CommandError if it has not succeeded."""
    reached = 0
    while True:
        row = shown(rest, operation_id)
        advance(max(0, row["percent"] - reached))
        reached = max(reached, row["percent"])
        if row["state"] in _FINISHED:
            break
        time.sleep(_EVERY_S)
    if row["state"] != "succeeded":
        raise CommandError(
            f"operation {operation_id} has {row['state']}: {row['message']}",
            hint=f"tidemark operations show {operation_id}",
        )
    return row
