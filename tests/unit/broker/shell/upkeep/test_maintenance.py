"""Flush rounds of several log directories."""

import asyncio
import threading
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager

import pytest
from tidemark.model.topics import TopicPartition
from tidemark.storage.mem_disk import MemDisk
from unit.broker.shell.broker_worlds import World, maintenance, topic
from waiting import until


class HangingDisk(MemDisk):
    """A sync does not come back before it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.lets_go = threading.Event()
        self.lets_go.set()

    @asynccontextmanager
    async def hangs(self) -> AsyncIterator[None]:
        """Until it is let go, at the end at the latest."""
        self.lets_go.clear()
        try:
            yield
        finally:
            self.lets_go.set()

    def check(self, path: str, call: str) -> None:
        if call == "sync":
            self.lets_go.wait()
        super().check(path, call)


class TwoDisks(World):
    """A partition on a disk that hangs, and one on a disk that does not."""

    def __init__(self, flush: str) -> None:
        self.hanging = HangingDisk()
        super().__init__(self.hanging, MemDisk(), log_flush_interval_ms=100)
        self.show(topic(partitions=2, configs={"flush": flush}))
        logs = [self.hosted(partition=number).log for number in range(2)]
        self.held, self.free = sorted(logs, key=lambda one: one.topic_partition not in self._held())

    def _held(self) -> Collection[TopicPartition]:
        return self.parts.partitions.disks.log_managers[0].logs

    async def write(self) -> None:
        """To both, until it is on the disk that does not hang."""
        for number in range(2):
            self.append(partition=number)
        self.clock.advance(10**6)
        await until(lambda: self.free.synced_end == self.free.log_end)


@pytest.mark.parametrize("flush", ["group", "os"])
def test_a_disk_that_hangs_holds_up_its_own_rounds_alone(flush: str) -> None:
    async def main() -> None:
        world = TwoDisks(flush)
        async with asyncio.TaskGroup() as tasks, world.hanging.hangs():
            loops = maintenance(world).start(tasks)
            await world.write()
            await world.write()
            assert world.held.synced_end == 0
            world.hanging.lets_go.set()
            await until(lambda: world.held.synced_end == 2)
            for one in loops:
                one.cancel()

    asyncio.run(main())
