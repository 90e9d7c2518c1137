"""Waits of tests: for a condition, with a limit that no machine reaches, however busy it is.

A test fails by what it sees, never by how long that took: ``PATIENCE_S`` ends only what hangs.
"""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final, TypeVar

Found = TypeVar("Found")

PATIENCE_S: Final = 300.0
PATIENCE_MS: Final = int(PATIENCE_S * 1_000)
COMMAND_S: Final = 720.0
"""For a program that does a whole test's work: one that hangs is ended while its test can still
show what it printed (pytest's own limit is in pyproject.toml).
"""
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
    poll_s: float = POLL_S,
) -> Found:
    """The first answer of ``look`` that is neither None nor false. ``poll_s``: longer where a look
    takes much of the machine.

    Raises AssertionError with ``story`` after ``wait_s``.
    """
    deadline = time.monotonic() + wait_s
    while not (found := look()):
        assert time.monotonic() < deadline, f"waited {wait_s:g} s: {_told(story)}"
        time.sleep(poll_s)
    return found


async def until(holds: Callable[[], object], story: str | Callable[[], str] = "") -> None:
    """Return once ``holds`` does, which others on the same loop bring about.

    Raises AssertionError with ``story`` after ``PATIENCE_S``.
    """

    async def ask() -> object:
        return holds()

    await until_told(ask, story)


async def until_told(
    ask: Callable[[], Awaitable[object]], story: str | Callable[[], str] = ""
) -> None:
    """As ``until``, of what others have to be asked."""
    loop = asyncio.get_running_loop()
    deadline, poll_s = loop.time() + PATIENCE_S, _POLL_S_FIRST
    while not await ask():
        assert loop.time() < deadline, f"waited {PATIENCE_S:g} s: {_told(story)}"
        await asyncio.sleep(poll_s)
        poll_s = min(2 * poll_s, POLL_S)


def cpu_s(pid: int) -> float:
    """CPU seconds that a process has used: what a bound on work is measured with."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def idle_s() -> float:
    """Seconds in which the machine's CPUs had nothing to do, on the average, since it started."""
    fields = Path("/proc/stat").read_text().splitlines()[0].split()
    return (int(fields[4]) + int(fields[5])) / os.sysconf("SC_CLK_TCK") / (os.cpu_count() or 1)


def _told(story: str | Callable[[], str]) -> str:
    return story if isinstance(story, str) else story()
