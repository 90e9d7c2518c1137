"""Deleter: a client that deletes records of a partition (DeleteRecords), in some seeds."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from tidemark.kafka import long_tail
from tidemark.kafka.apis import ApiKey
from tidemark.model.errors import ErrorCode

from sim.cluster.client import Client
from sim.dice import Dice

if TYPE_CHECKING:
    from sim.cluster.parts import SimTopic
    from sim.cluster.world import World

DELETER_DICE: Final = 10_000_019
"""Offset of separate dice."""
DELETERS: Final = 0.3
"""Share of the seeds in which a client deletes records."""
PAUSE_MS: Final = (100, 900)
WAIT_MS: Final = (0, 300, 600)
"""Times for which a broker waits for the in-sync replicas."""
VERSION: Final = 2


def has_deleters(seed: int, *, always: bool) -> bool:
    """Return True if a client deletes records in this seed."""
    return always or Dice(DELETER_DICE + seed).chance(DELETERS)


class Deleter:
    """Client that deletes the oldest records of one partition, a few at a time."""

    def __init__(self, world: "World", topic: "SimTopic", number: int) -> None:
        self.name = f"d{number}"
        self._client = Client(world, topic)
        self._world = world
        self._topic = topic
        self._dice = world.dice

    async def run(self, is_over: Callable[[], bool]) -> None:
        """Delete until the workload ends."""
        while not is_over():
            await asyncio.sleep(self._dice.between(*PAUSE_MS) / 1_000)
            offset = self._offset()
            if offset is None:
                continue
            self._topic.ledger.asks_deletion(offset)
            try:
                await self._delete(offset)
            except (OSError, TimeoutError):
                await self._client.rest()

    def _offset(self) -> int | None:
        """Return an offset below which no producer repeats a batch: a replica without it, made
        anew, would take the batch for a new one.
        """
        ledger = self._topic.ledger
        unheard = (
            at
            for value, at in ledger.offsets.items()
            if value in ledger.once and value not in ledger.acknowledged
        )
        most = min(unheard, default=ledger.end)
        least = ledger.deleted_below
        return None if most <= least else self._dice.between(least + 1, most)

    async def _delete(self, offset: int) -> None:
        partition = {"partition_index": self._topic.partition, "offset": offset}
        fields = {
            "topics": [{"name": self._topic.name, "partitions": [partition]}],
            "timeout": self._dice.pick(WAIT_MS),
        }
        body = long_tail.write_request(ApiKey.DELETE_RECORDS, VERSION, fields)
        answer = await self._client.ask(ApiKey.DELETE_RECORDS, VERSION, body)
        response = long_tail.read_response(ApiKey.DELETE_RECORDS, VERSION, answer)
        (found,) = response.topics[0].partitions
        code = ErrorCode(found.error_code)
        self._world.note(self.name, f"deletes below {offset}: {code.name}", self._topic)
        if code is ErrorCode.NONE:
            self._topic.ledger.deletes(offset)
        else:
            self._client.disconnect()
            await self._client.rest()
