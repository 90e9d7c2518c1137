"""Calls of ``tidemark debug requests``, and rows of their results."""

from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any, NamedTuple

from tidemark.cli import settings
from tidemark.cli.security import security_over_grpc
from tidemark.client.admin.slow_requests import SlowRequests, SlowRequestsOfBroker
from tidemark.client.errors import ClientError

Row = dict[str, Any]


class Slow(NamedTuple):
    """Requests as rows, the slowest first, and notes about brokers."""

    rows: list[Row]
    notes: list[str]
    failures: list[ClientError]


async def slow_requests(
    bootstrap: str, broker_ids: Sequence[int], *, api: str | None, count: int
) -> Slow:
    """Return the slowest requests that brokers remember. ``bootstrap``: gRPC addresses. Raises
    ClientError.
    """
    timeout_ms = settings.whole_number("timeout-ms")
    given = {"request_timeout_ms": min(30_000, timeout_ms), **security_over_grpc(bootstrap)}
    async with SlowRequests(bootstrap, **given) as client:
        answers = await client.list(broker_ids or None)
    rows = [_row(each) for answer in answers for each in answer.requests]
    if api is not None:
        rows = [row for row in rows if row["api"].lower() == api.lower()]
    rows.sort(key=lambda row: row["total_us"], reverse=True)
    return Slow(
        rows[:count],
        [note for answer in answers for note in _notes(answer)],
        [answer.error for answer in answers if answer.error is not None],
    )


def _row(request: Any) -> Row:
    row: Row = asdict(request)
    moment = datetime.fromtimestamp(request.began_ms / 1_000, tz=UTC)
    row["broker"] = row.pop("broker_id")
    row["began"] = moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return row


def _notes(answer: SlowRequestsOfBroker) -> list[str]:
    broker = f"broker {answer.broker_id}"
    if answer.error is not None:
        return [f"{broker}: {answer.error.what} ({answer.error.code.name})"]
    if answer.threshold_ms == 0:
        return [f"{broker}: slow requests are not remembered (slow.request.ms is 0)"]
    return [f"{broker}: {answer.seen} requests of {answer.threshold_ms} ms or more since its start"]
