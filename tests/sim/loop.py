"""An asyncio event loop whose time and ready queue are the simulator's: no selector, no threads."""

import asyncio
import math
from asyncio import events
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context
from functools import partial
from typing import Any

from sim.network import Schedule

SHUT_ROUNDS = 10


class _Rest:
    """Schedule of a loop whose process has ended."""

    def __init__(self, now: int) -> None:
        self.now = now
        self._due: deque[Callable[[], None]] = deque()

    def after(self, delay_ms: int, action: Callable[[], None]) -> None:
        if delay_ms <= 0:
            self._due.append(action)

    def drain(self) -> None:
        while self._due:
            self._due.popleft()()


class SimLoop(asyncio.AbstractEventLoop):
    """Event loop that runs coroutines from the simulator's queue; I/O is not implemented."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self._soon: dict[asyncio.Handle, None] = {}
        self.thread_ms: Callable[[], int] = lambda: 0
        self.listen: Callable[[Callable[[], Any], int], Any] = _no_network
        """Function that makes a server from a protocol's factory and a port."""
        self.has_run = False
        """True if any callback of the process ran since the reader of this flag last cleared it."""
        self.on_run: Callable[[], None] = _nothing
        """Called when ``has_run`` becomes true."""
        self.failures: list[BaseException] = []
        """Exceptions that no task awaited and that asyncio would only log."""

    def time(self) -> float:
        """Return the seconds on the simulator's clock."""
        return self._schedule.now / 1000

    def call_soon(  # type: ignore[override]  # no TypeVarTuple needed here
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        """Schedule at this instant, after all that is due already."""
        handle = asyncio.Handle(callback, args, self, context)
        self._soon[handle] = None
        self._schedule.after(0, partial(self._run_soon, handle))
        return handle

    def _run_soon(self, handle: asyncio.Handle) -> None:
        self._soon.pop(handle, None)
        if not handle._cancelled:
            self.inside(handle._run)

    def call_later(  # type: ignore[override]  # no TypeVarTuple needed here
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Schedule after a delay, rounded up to whole milliseconds."""
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]  # no TypeVarTuple needed here
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Schedule not before ``when``, in seconds."""
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        delay_ms = max(0, math.ceil(round(when * 1000 - self._schedule.now, 6)))
        self._schedule.after(delay_ms, partial(self._run, handle))
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Leave the handle in the queue; it does nothing at its time."""

    def _run(self, handle: asyncio.Handle) -> None:
        if not handle._cancelled:
            self.inside(handle._run)

    def inside(self, action: Callable[[], object]) -> None:
        """Call ``action`` as asyncio's callbacks are called: with this loop as the running one."""
        if not self.has_run:
            self.has_run = True
            self.on_run()
        before = events._get_running_loop()
        if before is self:
            action()
            return
        events._set_running_loop(self)
        try:
            action()
        finally:
            events._set_running_loop(before)

    def create_future(self) -> "asyncio.Future[Any]":
        """Return a future of this loop."""
        return asyncio.Future(loop=self)

    def create_task(
        self,
        coro: Coroutine[Any, Any, Any],  # type: ignore[override]
        *,
        name: str | None = None,
        context: Context | None = None,
    ) -> "asyncio.Task[Any]":
        """Start a task at this instant, after all that is due already."""
        task = asyncio.Task(coro, loop=self, name=name, context=context)
        # Nothing else refers to tasks of a dead process: their memory must not be freed midway.
        self._tasks[task] = None
        task.add_done_callback(lambda done: self._tasks.pop(done, None))
        return task

    def run_in_executor(  # type: ignore[override]  # a thread's work, done at the end of its time
        self, executor: object, func: Callable[..., Any], *args: Any
    ) -> "asyncio.Future[Any]":
        """Run ``func`` as on a thread: it takes ``thread_ms``; its result is ready at the end."""
        del executor
        done: asyncio.Future[Any] = asyncio.Future(loop=self)

        def work() -> None:
            try:
                result = func(*args)
            except Exception as failure:  # noqa: BLE001 - told to who waits, as a thread's is
                if not done.done():
                    done.set_exception(failure)
                return
            if not done.done():
                done.set_result(result)

        self._schedule.after(self.thread_ms(), work)
        return done

    async def create_server(  # type: ignore[override]  # of protocols that are given their bytes
        self,
        protocol_factory: Callable[[], Any],
        host: str | None = None,
        port: int = 0,
        **_: object,
    ) -> Any:
        """Bind on the simulated host, as ``listen`` does; the server accepts once it is started."""
        return self.listen(protocol_factory, port)

    def shut(self) -> None:
        """End every task after the run, so that none runs when its memory is freed.

        Callbacks scheduled meanwhile run at once if they are due at once, and otherwise never.
        """
        rest = _Rest(self._schedule.now)
        self._schedule = rest
        for handle in self._soon:  # callbacks that the process left when it died
            rest.after(0, partial(self._run, handle))
        rest.drain()  # so that nothing is cancelled before it has begun
        for _ in range(SHUT_ROUNDS):
            tasks = [task for task in self._tasks if not task.done()]
            if not tasks:
                return
            for task in tasks:
                task.cancel()
            rest.drain()

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Keep the exception for the simulator, which fails because of it."""
        found = context.get("exception")
        if not isinstance(found, BaseException):
            found = RuntimeError(str(context))
        self.failures.append(found)

    def get_debug(self) -> bool:
        """Return False."""
        return False

    def is_running(self) -> bool:
        """Return True until the simulator ends the loop."""
        return True

    def is_closed(self) -> bool:
        """Return False."""
        return False


def _nothing() -> None:
    return


def _no_network(_factory: object, port: int) -> Any:
    raise OSError(f"there is no network to listen on, at port {port}")
