"""Event loops whose clock is not the machine's.

On a ``VirtualLoop`` time stands still while anything is ready to run, and then jumps to the next
timer: an hour takes no time, and a busy machine changes nothing. It is for scenarios in memory.
On a ``SkippingLoop``, for those with real sockets, time passes as usual and may be made to jump.
"""

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from tidemark.model.ids import InstantMs, WallMs
from tidemark.runtime.clock import Clock

Result = TypeVar("Result")

WALL_START_MS = 1_700_000_000_000


class _JumpingSelector(selectors.DefaultSelector):
    """Instead of waiting for a time, lets it pass at once."""

    def __init__(self) -> None:
        super().__init__()
        self.jump: Callable[[float], bool] = lambda _: True

    def select(self, timeout: float | None = None) -> Any:
        ready = super().select(0)
        if ready or timeout == 0:
            return ready
        if timeout is None or not self.jump(timeout):
            return super().select(None)  # until a thread reports
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """Time passes only when there is nothing else to do. While a thread of an executor works, time
    stands still, for how long that takes is the machine's business.
    """

    def __init__(self) -> None:
        selector = _JumpingSelector()
        selector.jump = self._jump
        self._now_s = 1_000.0
        self._threads = 0
        super().__init__(selector)

    def time(self) -> float:
        """Seconds of its own."""
        return self._now_s

    def run_in_executor(  # type: ignore[override]  # no TypeVarTuple needed here
        self, executor: Any, func: Any, *args: Any
    ) -> Any:
        """As any loop's."""
        done = super().run_in_executor(executor, func, *args)
        self._threads += 1
        done.add_done_callback(self._thread_done)
        return done

    def _thread_done(self, _: object) -> None:
        self._threads -= 1

    def _jump(self, seconds: float) -> bool:
        if self._threads:
            return False
        self._now_s += seconds
        return True


class SkippingLoop(asyncio.SelectorEventLoop):
    """The machine's time, and what ``skip`` added to it."""

    def __init__(self) -> None:
        self._skipped_s = 0.0
        super().__init__()

    def time(self) -> float:
        """Seconds, monotonic."""
        return super().time() + self._skipped_s

    def skip(self, seconds: float) -> None:
        """Let time pass: every timer due by then is due now."""
        self._skipped_s += seconds


class LoopClock(Clock):
    """The running loop's time as a clock."""

    def now_ms(self) -> InstantMs:
        """Milliseconds."""
        return InstantMs(int(asyncio.get_running_loop().time() * 1_000))

    def boot_ms(self) -> InstantMs:
        """As ``now_ms``."""
        return self.now_ms()

    def wall_ms(self) -> WallMs:
        """As ``now_ms``, from a day in 2023 on."""
        return WallMs(WALL_START_MS + self.now_ms())


def run_virtual(work: Coroutine[Any, Any, Result]) -> Result:
    """``work`` on a VirtualLoop of its own."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(work)


async def pass_time(seconds: float) -> None:
    """Let time pass on the running VirtualLoop, where it takes none."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    passed: asyncio.Future[None] = loop.create_future()
    loop.call_later(seconds, passed.set_result, None)
    await passed


def run_skipping(work: Coroutine[Any, Any, Result]) -> Result:
    """``work`` on a SkippingLoop of its own; see ``skip``."""
    with asyncio.Runner(loop_factory=SkippingLoop) as runner:
        return runner.run(work)


def skip(seconds: float) -> None:
    """Let time pass on the running SkippingLoop."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SkippingLoop)
    loop.skip(seconds)


async def skip_until(holds: Callable[[], object], seconds: float) -> None:
    """Let time pass, ``seconds`` at a time, until something has come of it."""
    while not holds():
        skip(seconds)
        await asyncio.sleep(0.001)
