"""An asyncio event loop whose time and ready queue are the simulator's: no selector, no threads."""

import asyncio
import math
from asyncio import events
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import Any

from sim.network import Schedule


class SimLoop(asyncio.AbstractEventLoop):
    """Runs coroutines from the simulator's queue; anything with I/O is not implemented."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self.failures: list[dict[str, Any]] = []
        """What nobody awaited and asyncio would only log."""

    def time(self) -> float:
        """Seconds on the simulator's clock."""
        return self._schedule.now / 1000

    def call_soon(  # type: ignore[override]  # no TypeVarTuple needed here
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        """At this instant, behind what is due already."""
        handle = asyncio.Handle(callback, args, self, context)
        self._schedule.after(0, lambda: self._run(handle))
        return handle

    def call_later(  # type: ignore[override]  # no TypeVarTuple needed here
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Rounded up to whole milliseconds."""
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]  # no TypeVarTuple needed here
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Not before ``when``, in seconds."""
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        delay_ms = max(0, math.ceil(round(when * 1000 - self._schedule.now, 6)))
        self._schedule.after(delay_ms, lambda: self._run(handle))
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """It stays queued, and does nothing when its time comes."""

    def _run(self, handle: asyncio.Handle) -> None:
        if handle.cancelled():
            return
        events._set_running_loop(self)
        try:
            handle._run()
        finally:
            events._set_running_loop(None)

    def create_future(self) -> "asyncio.Future[Any]":
        """Of this loop."""
        return asyncio.Future(loop=self)

    def create_task(
        self,
        coro: Coroutine[Any, Any, Any],  # type: ignore[override]
        *,
        name: str | None = None,
        context: Context | None = None,
    ) -> "asyncio.Task[Any]":
        """Begins at this instant, behind what is due already."""
        return asyncio.Task(coro, loop=self, name=name, context=context)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Kept for the simulator, which fails on it."""
        self.failures.append(context)

    def get_debug(self) -> bool:
        """Never."""
        return False

    def is_running(self) -> bool:
        """As long as the simulator does."""
        return True

    def is_closed(self) -> bool:
        """Never."""
        return False
