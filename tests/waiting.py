"""Waits of tests: for a condition, with a limit that no machine reaches, however busy it is.

A test fails by what it sees, never by how long that took: ``PATIENCE_S`` ends only what hangs.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Final, TypeVar

Found = TypeVar("Found")

PATIENCE_S: Final = 300.0
PATIENCE_MS: Final = int(PATIENCE_S * 1_000)
POLL_S: Final = 0.02
_POLL_S_FIRST: Final = 0.001


def patience() -> asyncio.Timeout:
    """A limit around a whole scenario of an event loop."""
    return asyncio.timeout(PATIENCE_S)


def wait_for(
    look: Callable[[], Found | None],
    story: str | Callable[[], str] = "",
    *,
    wait_s: float = PATIENCE_S,
) -> Found:
    """The first answer of ``look`` that is neither None nor false.

    Raises AssertionError with ``story`` after ``wait_s``.
    """
    deadline = time.monotonic() + wait_s
    while not (found := look()):
        assert time.monotonic() < deadline, f"waited {wait_s:g} s: {_told(story)}"
        time.sleep(POLL_S)
    return found


async def until(
    holds: Callable[[], object],
    story: str | Callable[[], str] = "",
    *,
    wait_s: float = PATIENCE_S,
) -> None:
    """Return once ``holds`` does, which others on the same loop bring about.

    Raises AssertionError with ``story`` after ``wait_s``.
    """
    deadline = asyncio.get_running_loop().time() + wait_s
    poll_s = _POLL_S_FIRST
    while not holds():
        assert asyncio.get_running_loop().time() < deadline, f"waited {wait_s:g} s: {_told(story)}"
        await asyncio.sleep(poll_s)
        poll_s = min(2 * poll_s, POLL_S)


def _told(story: str | Callable[[], str]) -> str:
    return story if isinstance(story, str) else story()
