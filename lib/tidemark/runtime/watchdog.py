"""Watchdog: a thread that detects a stalled event loop, which no task on the loop can do.

A callback that does not end, or an await that never suspends, stops everything a service does:
answers, leases, signals, /livez. The watchdog logs the stack of the loop's thread once in each
stall, and counts the stall; probes of /livez get no answer meanwhile.
"""

import asyncio
import logging
import sys
import threading
import traceback
from typing import Final

from tidemark.protocol.stall_rule import StallBegan, StallEnded, StallRule
from tidemark.runtime.clock import Clock
from tidemark.runtime.metrics import Metrics
from tidemark.runtime.telemetry import fields

log = logging.getLogger(__name__)

LOOKS_A_LIMIT: Final = 10
FRAMES_SHOWN_MAX: Final = 40


class Watchdog:
    """Watchdog of the running loop, an async context manager."""

    def __init__(self, metrics: Metrics, *, limit_ms: int) -> None:
        """``limit_ms``: time after which a loop that has not run counts as stalled."""
        self._stalls = metrics.counter(
            "tidemark_event_loop_stalls", "stalls of the event loop"
        ).at()
        self._delays = metrics.timings(
            "tidemark_event_loop_delay_seconds",
            "seconds by which a timer of the event loop was late: a request waits as long before"
            " it is read",
        ).at()
        self._due_s: float | None = None
        self._limit_ms = limit_ms
        self._look_ms = max(1, limit_ms // LOOKS_A_LIMIT)
        self._clock = Clock()
        self._turns = 0
        self._over = threading.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._loop_thread = 0
        self._thread: threading.Thread | None = None

    async def __aenter__(self) -> "Watchdog":
        """Start, on the loop to be watched."""
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        self._turn()
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)
        self._thread.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._timer is not None, "entered before"
        assert self._thread is not None, "entered before"
        self._timer.cancel()
        self._over.set()
        self._thread.join()

    def _turn(self) -> None:
        assert self._loop is not None, "called on it"
        self._turns += 1
        now_s = self._clock.precise_s()
        if self._due_s is not None:
            self._delays.observe(max(0.0, now_s - self._due_s))
        pause_s = self._look_ms / 2_000
        self._due_s = now_s + pause_s
        self._timer = self._loop.call_later(pause_s, self._turn)

    def _watch(self) -> None:
        rule = StallRule(limit_ms=self._limit_ms, look_ms=self._look_ms, now=self._clock.now_ms())
        while not self._over.wait(self._look_ms / 1_000):
            found = rule.look(self._turns, self._clock.now_ms())
            if isinstance(found, StallBegan):
                self._stalls.value += 1
                log.error(
                    "event loop stalled: nothing is served\n%s",
                    self._stack(),
                    extra=fields(still_ms=found.still_ms),
                )
            elif isinstance(found, StallEnded):
                log.warning("event loop resumed", extra=fields(stood_ms=found.still_ms))

    def _stack(self) -> str:
        """Stack of the loop's thread, innermost frame last."""
        frame = sys._current_frames().get(self._loop_thread)  # noqa: SLF001 - the only way to another thread's frame
        if frame is None:
            return "its thread has ended"
        return "".join(traceback.format_stack(frame)[-FRAMES_SHOWN_MAX:]).rstrip()
