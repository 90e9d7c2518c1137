"""ByteBudget: bound of the bytes in memory. Requests are served in order, so that none starves."""

import asyncio
from collections import deque


class ByteBudget:
    """Count of bytes in flight; a request for more than is left waits.

    Invariant: 0 <= in_flight_bytes <= bytes_max. A request larger than the whole budget counts as
    all of it: it is served alone rather than never.
    """

    def __init__(self, bytes_max: int) -> None:
        assert bytes_max > 0
        self.bytes_max = bytes_max
        self.in_flight_bytes = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @property
    def waiting_count(self) -> int:
        """Number of requests that wait for room."""
        return sum(1 for _, turn in self._waiting if not turn.done())

    def hold(self, size_bytes: int) -> "_Hold":
        """Count ``size_bytes`` for the duration of an ``async with`` block, once there is room."""
        return _Hold(self, min(size_bytes, self.bytes_max))

    async def take(self, size_bytes: int) -> None:
        """Count bytes, at most the whole budget, once there is room."""
        if not self._waiting and self.in_flight_bytes + size_bytes <= self.bytes_max:
            self.in_flight_bytes += size_bytes
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((size_bytes, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.give(size_bytes)  # granted and cancelled in the same round of the loop
            else:
                self._grant()  # the next one may fit now
            raise

    def give(self, size_bytes: int) -> None:
        """Give back what was taken."""
        self.in_flight_bytes -= size_bytes
        assert self.in_flight_bytes >= 0, "given back twice"
        if self._waiting:
            self._grant()

    def _grant(self) -> None:
        while self._waiting:
            size_bytes, turn = self._waiting[0]
            if turn.done():  # cancelled while it waited
                self._waiting.popleft()
                continue
            if self.in_flight_bytes + size_bytes > self.bytes_max:
                return
            self._waiting.popleft()
            self.in_flight_bytes += size_bytes
            turn.set_result(None)


class _Hold:
    """Bytes that are counted within a block. A generator as context manager costs twice as much."""

    __slots__ = ("_budget", "_size_bytes")

    def __init__(self, budget: ByteBudget, size_bytes: int) -> None:
        self._budget = budget
        self._size_bytes = size_bytes

    async def __aenter__(self) -> None:
        await self._budget.take(self._size_bytes)

    async def __aexit__(self, *_: object) -> None:
        self._budget.give(self._size_bytes)
