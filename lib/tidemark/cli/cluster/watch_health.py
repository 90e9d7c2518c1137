"""``tidemark cluster health --watch``: the health of a cluster, checked again and again."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from tidemark.client.errors import ClientError
from tidemark.runtime.clock import Clock

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class HealthWatch:
    """End of a watch: when the cluster is healthy, after a time, or at Ctrl-C."""

    interval_ms: int
    until_healthy: bool
    timeout_ms: int | None


async def watch(
    check: Callable[[], Awaitable[Row]], asked: HealthWatch, show: Callable[[Row], None]
) -> Row | None:
    """Check and show the health until the end of the watch; return the last result, None if the
    time ended while the cluster was not healthy.

    A cluster that does not answer is not healthy, and is asked again.
    """
    clock = Clock()
    end_ms = None if asked.timeout_ms is None else clock.now_ms() + asked.timeout_ms
    while True:
        try:
            found = await check()
        except ClientError as error:
            found = unreachable(error)
        show(found)
        if asked.until_healthy and found["healthy"]:
            return found
        if end_ms is not None and clock.now_ms() + asked.interval_ms > end_ms:
            return None if asked.until_healthy else found
        await asyncio.sleep(asked.interval_ms / 1_000)


def unreachable(error: ClientError) -> Row:
    """Return the health of a cluster that does not answer."""
    return {"healthy": False, "problem": f"{error.what} ({error.code.name})"}
