"""Flush rounds of several log directories, and work that does not hold up the event loop."""

import asyncio
import threading
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from itertools import pairwise

import pytest
from broker.shell.upkeep import maintenance as maintenance_module
from broker.storage import directory as directory_module
from tidemark.model.errors import ErrorCode
from tidemark.model.topics import TopicPartition
from tidemark.storage.disk import DiskFullError
from tidemark.storage.mem_disk import MemDisk
from unit.broker.shell.broker_worlds import World, maintenance, topic
from waiting import until


class HangingDisk(MemDisk):
    """A sync, or a removal, does not come back before it is let go."""

    def __init__(self, held: str = "sync") -> None:
        super().__init__()
        self.held = held
        self.lets_go = threading.Event()
        self.lets_go.set()
        self.is_waiting = threading.Event()

    @asynccontextmanager
    async def hangs(self) -> AsyncIterator[None]:
        """Until it is let go, at the end at the latest."""
        self.lets_go.clear()
        try:
            yield
        finally:
            self.lets_go.set()

    def remove(self, path: str) -> None:
        if self.held == "remove":
            self.is_waiting.set()
            self.lets_go.wait()
        super().remove(path)

    def check(self, path: str, call: str) -> None:
        if call == self.held:
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


def test_records_on_a_full_disk_are_synced_in_time() -> None:
    """Those that were written before: flush.ms is a promise, and syncs need no space."""

    async def main() -> None:
        disk = MemDisk()
        world = World(disk, log_flush_interval_ms=100)
        world.show(topic(configs={"flush": "os", "flush.ms": "1000"}))
        world.append()
        log = world.hosted().log
        disk.leave(0)
        world.hosted().manager.fence(DiskFullError("orders-0", "no space left"))
        world.clock.advance(1_000)
        async with asyncio.TaskGroup() as tasks:
            loops = maintenance(world).start(tasks)
            await until(lambda: log.synced_end == log.log_end == 1)
            for one in loops:
                one.cancel()
        assert world.hosted().manager.is_full

    asyncio.run(main())


def test_the_removal_of_large_files_does_not_hold_up_the_event_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(maintenance_module, "REMOVAL_INTERVAL_MS", 1)

    async def main() -> None:
        disk = HangingDisk("remove")
        world = World(disk)
        world.show(topic(), topic("old", number=2))
        world.show(topic())
        assert left_of(disk, "old")
        world.clock.advance(10**6)
        async with asyncio.TaskGroup() as tasks, disk.hangs():
            loops = maintenance(world).start(tasks)
            await until(disk.is_waiting.is_set)
            assert not world.append().error_code
            assert left_of(disk, "old")
            disk.lets_go.set()
            await until(lambda: not left_of(disk, "old"))
            for one in loops:
                one.cancel()

    asyncio.run(main())


def test_a_lost_index_is_made_again_and_does_not_hold_up_the_event_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(directory_module, "INDEX_GAP_BYTES", 2_000)
    monkeypatch.setattr(directory_module, "INDEX_GAP_BATCHES", 20)

    async def main() -> None:
        disk = HangingDisk("read")
        world = World(disk)
        world.show(topic())
        for _ in range(300):
            world.append()
        world.hosted().log.roll(world.clock.wall_ms())
        world.hosted().manager.close()
        disk.remove(f"orders-0/{0:020d}.index")
        world = World(disk)
        world.show(topic())
        hosted = world.hosted()
        async with asyncio.TaskGroup() as tasks:
            loops = maintenance(world).start(tasks)
            await asyncio.sleep(0)
            refused = world.reader.read(hosted, 200, bytes_max=1)
            assert refused.error_code is ErrorCode.KAFKA_STORAGE_ERROR
            async with disk.hangs():
                await asyncio.sleep(0)
                assert not world.append().error_code
                for _ in range(3):
                    refused = world.reader.read(hosted, 200, bytes_max=1)
                    assert refused.error_code is ErrorCode.KAFKA_STORAGE_ERROR
            assert world.parts.counters.calls_refused == 0
            await until(lambda: not world.reader.read(hosted, 200, bytes_max=1).error_code)
            for one in loops:
                one.cancel()

    asyncio.run(main())


def test_producers_that_expire_are_looked_at_some_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A partition may have a hundred thousand; the event loop has other work between them."""
    monkeypatch.setattr(maintenance_module, "EXPIRED_AT_ONCE", 10)

    async def main() -> None:
        world = World(MemDisk())
        world.show(topic(partitions=3))
        for number in range(3):
            for producer_id in range(12):
                world.append(
                    partition=number, producer_id=producer_id, producer_epoch=0, base_sequence=0
                )
        world.clock.advance(10**9)
        tables = [world.hosted(partition=number).partition.producers for number in range(3)]
        left: list[int] = []

        async def look() -> None:
            while not left or left[-1]:
                left.append(sum(map(len, tables)))
                await asyncio.sleep(0)

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(look())
            tasks.create_task(maintenance(world)._expire())
        assert left[0] == 36
        assert max(before - after for before, after in pairwise(left)) <= 20
        assert left[-1] == 0

    asyncio.run(main())


def left_of(disk: MemDisk, name: str) -> list[str]:
    return [one for one in disk.list("") if one.startswith(name)]


def test_retention_goes_through_the_logs_one_by_one() -> None:
    """Many segments take long: requests are served between two logs."""

    async def main() -> None:
        world = World(MemDisk())
        world.show(topic(partitions=3, configs={"retention.ms": "1"}))
        for number in range(3):
            world.append(partition=number)
        world.clock.advance(10**6)
        (manager,) = world.parts.partitions.disks.log_managers
        starts: list[list[int]] = []

        async def look() -> None:
            while not starts or starts[-1] != [1, 1, 1]:
                starts.append([world.hosted(partition=n).partition.log_start for n in range(3)])
                await asyncio.sleep(0)

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(maintenance(world)._upkeep(manager))
            tasks.create_task(look())
        assert starts == [[1, 0, 0], [1, 1, 0], [1, 1, 1]]

    asyncio.run(main())
