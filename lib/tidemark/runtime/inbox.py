"""Inbox: a bounded queue with one consumer.

Beyond the bound the sender hears False, and tells its caller to slow down.
"""

import asyncio
from collections import deque
from typing import Generic, TypeVar

T = TypeVar("T")


class Inbox(Generic[T]):
    """Inputs for one driver, in order. Everything happens on one event loop: no locks."""

    def __init__(self, *, inputs_max: int) -> None:
        assert inputs_max > 0, "an inbox holds at least one input"
        self._inputs: deque[T] = deque()
        self._inputs_max = inputs_max
        self._waiter: asyncio.Future[None] | None = None

    def __len__(self) -> int:
        return len(self._inputs)

    @property
    def full(self) -> bool:
        """Whether the next ``put_nowait`` would be refused."""
        return len(self._inputs) >= self._inputs_max

    def put_nowait(self, stimulus: T) -> bool:
        """Queue one input; False, and nothing queued, when the inbox is full."""
        if self.full:
            return False
        self._inputs.append(stimulus)
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
        return True

    async def get(self) -> T:
        """Wait for the oldest input and take it. Cancelling loses nothing."""
        while not self._inputs:
            assert self._waiter is None, "an inbox has one consumer"
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        return self._inputs.popleft()

    def drain_nowait(self) -> list[T]:
        """Take all that is queued, oldest first; [] when nothing is."""
        drained = list(self._inputs)
        self._inputs.clear()
        return drained
