"""Mute: the rest of a connection whose client exceeded a quota (KIP-219). Its answer is sent at
once, with the throttle time; then no request is taken until the time has passed.
"""

import asyncio
from collections.abc import Callable


class Mute:
    """Timer of one connection. Of several throttle times the one that ends last counts."""

    __slots__ = ("_timer",)

    def __init__(self) -> None:
        self._timer: asyncio.TimerHandle | None = None

    def extend(
        self, throttle_ms: int, loop: asyncio.AbstractEventLoop, resume: Callable[[], None]
    ) -> None:
        """Call ``resume`` after the time, unless it is to be called later already."""
        until_s = loop.time() + throttle_ms / 1_000
        if self._timer is not None:
            if self._timer.when() >= until_s:
                return
            self._timer.cancel()
        self._timer = loop.call_at(until_s, self._over, resume)

    def _over(self, resume: Callable[[], None]) -> None:
        self._timer = None
        resume()

    def cancel(self) -> None:
        """Never call ``resume``."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
