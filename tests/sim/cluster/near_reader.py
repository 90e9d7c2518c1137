"""NearReader: a consumer with a rack, in seeds whose brokers let followers serve (KIP-392)."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from broker.read_replica_config import RACK_AWARE
from tidemark.kafka.fetch import FetchedPartition
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import BrokerId

from sim.cluster.client import Client, Reader
from sim.dice import Dice

if TYPE_CHECKING:
    from sim.cluster.parts import SimTopic
    from sim.cluster.world import World

NEAR_DICE: Final = 8_000_009
"""Offset of separate dice."""
NEAR: Final = 0.3
"""Share of the seeds in which followers serve consumers."""
ASKS_LEADER: Final = 0.05
"""Chance before each fetch to ask the leader again, as real clients do every few minutes."""


def rack_of(broker: int) -> str:
    """Return the rack of a broker; two of four share one."""
    return f"rack-{broker % 3}"


def near_config(seed: int, *, always: bool) -> Callable[[int], dict[str, Any]] | None:
    """Return the settings of each broker with which followers serve; None: they do not."""
    if not always and not Dice(NEAR_DICE + seed).chance(NEAR):
        return None
    return near_settings


def near_settings(broker: int) -> dict[str, Any]:
    """Return the settings of a broker whose followers serve consumers."""
    return {"replica_selector_class": RACK_AWARE, "rack": rack_of(broker)}


class NearClient(Client):
    """Connection to the follower that the leader named, or to the leader."""

    def __init__(self, world: "World", topic: "SimTopic", rack: str) -> None:
        super().__init__(world, topic)
        self.rack = rack
        self.near: BrokerId | None = None

    def _wanted(self, leader: BrokerId) -> BrokerId:
        return leader if self.near is None else self.near

    def move(self, near: BrokerId | None) -> None:
        """Read from another broker; None: the leader."""
        self.near = near
        self.disconnect()


class NearReader(Reader):
    """Reader of the whole log, mostly from followers. After healing it reads up to the end."""

    def __init__(self, world: "World", topic: "SimTopic", number: int) -> None:
        super().__init__(world, topic, number)
        self.name = f"n{number}"
        self._near = NearClient(world, topic, rack_of(world.dice.between(0, 2)))
        self._client = self._near

    async def run(self, is_over: Callable[[], bool]) -> None:
        """Read until the workload ends, and what is left then."""
        while not is_over() or self._offset < self._topic.ledger.end:
            if self._topic.may_lose:
                return
            if self._near.near is not None and self._world.dice.chance(ASKS_LEADER):
                self._near.move(None)
            try:
                await self._read()
            except (OSError, TimeoutError):
                self._near.move(None)
                await self._client.rest()

    async def _read(self) -> None:
        result, records = await self._fetch()
        if result.preferred_read_replica >= 0:
            self._near.move(BrokerId(result.preferred_read_replica))
        elif result.error_code:
            self._world.note(self.name, f"hears {ErrorCode(result.error_code).name}", self._topic)
            self._skip_deleted(result.error_code)
            self._near.move(None)
            await self._client.rest()
        elif records:
            self._take(result.high_watermark, records)
        else:
            await asyncio.sleep(self._world.dice.between(20, 80) / 1_000)

    async def _fetch(self) -> FetchedPartition:
        found = await self._near.fetch(self._offset)
        if self._near.near is not None and found.records:
            self._world.note(self.name, "reads from a follower", self._topic)
        return found
