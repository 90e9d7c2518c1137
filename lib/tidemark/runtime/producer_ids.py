"""Producer ids for a process's clients, cut from blocks that the controller hands out."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, NamedTuple

from tidemark.model.errors import TidemarkError
from tidemark.model.ids import ProducerId

REFILL_BELOW: Final = 100
"""With so few ids left the next block is asked for: a tenth of a block of 1,000, as Kafka's brokers
do.
"""


class ProducerIdBlock(NamedTuple):
    """Ids that the controller gave to one process, and will never give again."""

    first: int
    id_count: int


Allocate = Callable[[], Awaitable[ProducerIdBlock]]
"""Asks for a block; raises TidemarkError when there is none."""


class ProducerIds:
    """The block in use and, before it ends, the next one.

    Invariant: an id is taken into use at most once. A process that stops leaves the rest of its
    blocks unused for ever.
    """

    def __init__(self, allocate: Allocate) -> None:
        self._allocate = allocate
        self._current = range(0)
        self._next = range(0)
        self._returned: set[ProducerId] = set()
        self._refill = asyncio.Lock()

    @property
    def left_count(self) -> int:
        """Ids that can be handed out without asking the controller."""
        return len(self._returned) + len(self._current) + len(self._next)

    async def next(self) -> ProducerId:
        """An id that no producer ever had. Waits for the controller only when none is left, or few.

        Who takes the id that brings the stock below the mark fetches the next block; nobody else
        waits for it. Raises TidemarkError (COORDINATOR_LOAD_IN_PROGRESS, which clients retry) when
        there is no id.
        """
        while self.left_count == 0:
            await self._fetch_unless_fetched(stock_min=1)
        producer_id = self._take()
        if self.left_count < REFILL_BELOW and not self._refill.locked():
            with suppress(TidemarkError):  # this caller has its id; whoever finds none hears why
                await self._fetch_unless_fetched(stock_min=REFILL_BELOW)
        return producer_id

    def give_back(self, producer_id: ProducerId) -> None:
        """An id from ``next`` that is known not to have been used: it may be handed out again."""
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
        """One caller asks at a time; those who waited find that it is done."""
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
