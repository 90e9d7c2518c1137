"""Producer ids for this broker's clients, cut from blocks that the controller hands out."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from tidemark.model.errors import ErrorCode, TidemarkError
from tidemark.model.ids import ProducerId
from tidemark.runtime.controller_client import ControllerClient

from broker.shell.wire_mapping import (
    ProducerIdBlock,
    read_producer_id_block,
    write_allocate_producer_ids,
)

REFILL_BELOW: Final = 100
"""With so few ids left the next block is asked for: a tenth of a block of 1,000, as Kafka's brokers
do.
"""

ALLOCATE_TIMEOUT_S: Final = 5.0

Allocate = Callable[[], Awaitable[ProducerIdBlock]]
"""Asks for a block; raises TidemarkError when there is none."""


class ProducerIds:
    """The block in use and, before it ends, the next one.

    Invariant: an id is handed out at most once. A broker that stops leaves the rest of its blocks
    unused for ever.
    """

    def __init__(self, allocate: Allocate) -> None:
        self._allocate = allocate
        self._current = range(0)
        self._next = range(0)
        self._refill = asyncio.Lock()

    @property
    def left_count(self) -> int:
        """Ids that can be handed out without asking the controller."""
        return len(self._current) + len(self._next)

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

    def _take(self) -> ProducerId:
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


def from_controller(
    controller: ControllerClient, registration: Callable[[], tuple[int, int]]
) -> ProducerIds:
    """Ids from the active controller. ``registration`` gives this broker's id and its current
    broker epoch.
    """

    async def allocate() -> ProducerIdBlock:
        broker_id, broker_epoch = registration()
        try:
            response = await controller.call(
                "AllocateProducerIds",
                write_allocate_producer_ids(broker_id, broker_epoch),
                ALLOCATE_TIMEOUT_S,
            )
        except TidemarkError as failure:
            raise TidemarkError(
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"no producer id: {failure.message}"
            ) from failure
        block = read_producer_id_block(response)
        if isinstance(block, ErrorCode):
            raise TidemarkError(
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
                f"the controller gave no producer ids: {block.name}",
            )
        return block

    return ProducerIds(allocate)
