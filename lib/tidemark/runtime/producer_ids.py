"""Producer ids for the clients of a process, from blocks that the controller allocates."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, NamedTuple

from tidemark.model.errors import TidemarkError
from tidemark.model.ids import ProducerId

REFILL_BELOW: Final = 100
"""Number of ids left below which the next block is requested: a tenth of a block of 1,000, as in
Kafka's brokers.
"""


class ProducerIdBlock(NamedTuple):
    """Ids that the controller has allocated to one process and never allocates again."""

    first: int
    id_count: int


Allocate = Callable[[], Awaitable[ProducerIdBlock]]
"""Requests a block; raises TidemarkError if there is none."""


class ProducerIds:
    """The block in use and, before it ends, the next one.

    Invariant: an id is used at most once. A process that stops leaves the rest of its blocks
    unused.
    """

    def __init__(self, allocate: Allocate) -> None:
        self._allocate = allocate
        self._current = range(0)
        self._next = range(0)
        self._returned: set[ProducerId] = set()
        self._refill = asyncio.Lock()

    @property
    def left_count(self) -> int:
        """Number of ids available without a request to the controller."""
        return len(self._returned) + len(self._current) + len(self._next)

    async def next(self) -> ProducerId:
        """Return an id that no producer has had. Waits for the controller only if few or none are
        left.

        The caller whose id brings the stock below REFILL_BELOW fetches the next block; others do
        not wait for it. Raises TidemarkError (COORDINATOR_LOAD_IN_PROGRESS, which clients retry) if
        there is no id.
        """
        while self.left_count == 0:
            await self._fetch_unless_fetched(stock_min=1)
        producer_id = self._take()
        if self.left_count < REFILL_BELOW and not self._refill.locked():
            with suppress(TidemarkError):  # this caller has its id
                await self._fetch_unless_fetched(stock_min=REFILL_BELOW)
        return producer_id

    def give_back(self, producer_id: ProducerId) -> None:
        """Take back an id from ``next`` that was certainly not used, to hand it out again."""
        assert producer_id not in self._returned, f"{producer_id} was given back twice"
        self._returned.add(producer_id)

    def _take(self) -> ProducerId:
        if self._returned:
            return self._returned.pop()
        if not self._current:
            self._current, self._next = self._next, range(0)
        producer_id, self._current = self._current[0], self._current[1:]
        return ProducerId(producer_id)

    async def _fetch_unless_fetched(self, *, stock_min: int) -> None:
        """Fetch a block unless a caller before has done so; one caller fetches at a time."""
        async with self._refill:
            if self.left_count >= stock_min:
                return
            block = await self._allocate()
            fetched = range(block.first, block.first + block.id_count)
            assert block.id_count > 0, block
            assert not self._next, "at most one block is in store"
            if self._current:
                self._next = fetched
            else:
                self._current = fetched
