"""Turn: what one connection may do before the event loop serves the others."""

import asyncio
from collections.abc import Callable
from typing import Final

TURN_BYTES_MAX: Final = 512 * 1024
"""Without it the loop reads up to 32 times from a socket that fills the buffer each time."""
TURN_FRAMES_MAX: Final = 1_000
TURN_S_MAX: Final = 0.005
"""A read can bring thousands of small requests, each of which costs far more than its bytes."""


class Turn:
    """The current turn of one connection. Once it is over, the connection takes no frame and reads
    no byte until the loop has served the others.
    """

    __slots__ = ("_begin_next", "_bytes", "_loop", "is_over")

    def __init__(self, loop: asyncio.AbstractEventLoop, begin_next: Callable[[], None]) -> None:
        self._loop, self._begin_next = loop, begin_next
        self._bytes = 0
        self.is_over = False

    def filled(self, nbytes: int) -> bool:
        """Count the bytes of a read that filled the buffer: the socket has more. Returns True if
        the turn is over.
        """
        self._bytes += nbytes
        if self._bytes >= TURN_BYTES_MAX:
            self.end()
        return self.is_over

    def emptied(self) -> None:
        """Note that the socket is empty: the loop serves the next connection by itself."""
        self._bytes = 0

    def end(self) -> None:
        """End this turn. The next one begins when the loop comes back; idempotent."""
        if not self.is_over:
            self.is_over = True
            self._loop.call_soon(self._begin)

    def _begin(self) -> None:
        self.is_over, self._bytes = False, 0
        self._begin_next()
