"""Inbox: a bounded queue with one consumer.

A full inbox refuses inputs, so that senders can slow their callers down.
"""

import asyncio
from collections import deque
from typing import Generic, TypeVar

T = TypeVar("T")


class Inbox(Generic[T]):
    """Inputs for one driver, in order. Used on one event loop, so it needs no locks."""

    def __init__(self, *, inputs_max: int) -> None:
        assert inputs_max > 0, "an inbox holds at least one input"
        self._inputs: deque[T] = deque()
        self._inputs_max = inputs_max
        self._waiter: asyncio.Future[None] | None = None

    def __len__(self) -> int:
        return len(self._inputs)

    @property
    def full(self) -> bool:
        """True if the next ``put_nowait`` would be refused."""
        return len(self._inputs) >= self._inputs_max

    def put_nowait(self, stimulus: T) -> bool:
        """Queue one input; return False, with nothing queued, if the inbox is full."""
        if self.full:
            return False
        self._inputs.append(stimulus)
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
        return True

    async def get(self) -> T:
        """Wait for the oldest input and take it. Cancelling does not lose an input."""
        while not self._inputs:
            assert self._waiter is None, "an inbox has one consumer"
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        return self._inputs.popleft()

    def drain_nowait(self) -> list[T]:
        """Take all queued inputs, oldest first; [] if there are none."""
        drained = list(self._inputs)
        self._inputs.clear()
        return drained
