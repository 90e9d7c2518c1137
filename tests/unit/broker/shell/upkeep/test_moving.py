"""Replicas that move between two directories in memory, in the loops that move them."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from broker.core.directory_move import NEVER_CUT, Cut, Phase
from broker.core.partition import Role
from broker.shell.partitions.hosted import HostedPartition
from broker.shell.settings import BrokerSettings
from broker.shell.upkeep import moving as moving_module
from broker.shell.upkeep.moving import Moving
from broker.storage.log_copy import append_chunk, read_chunk
from broker.storage.log_manager import LogManager
from tidemark.model.errors import ErrorCode
from tidemark.model.metadata import TopicImage
from tidemark.model.topics import TopicPartition
from tidemark.storage.disk import DiskError
from tidemark.storage.mem_disk import MemDisk
from unit.broker.shell.broker_worlds import World, maintenance, topic
from waiting import until

ORDERS = TopicPartition("orders", 0)


class Moves(World):
    """A broker with two directories; the partition is in the first."""

    def __init__(self, *disks: MemDisk, **settings: Any) -> None:
        self._names = iter("abc")
        super().__init__(*(disks or (MemDisk(), MemDisk())), log_dirs=("/a", "/b"), **settings)
        self.synced: list[HostedPartition] = []
        self.moved: list[TopicPartition] = []

    def open(self, disk: MemDisk) -> LogManager:
        return LogManager.open(
            disk,
            cluster_id="cluster",
            broker_id=1,
            directory_id=next(self._names),
            boot_id="boot",
            now_ms=self.clock.wall_ms(),
        )

    @property
    def managers(self) -> tuple[LogManager, ...]:
        return self.parts.partitions.disks.log_managers

    @property
    def future(self) -> LogManager:
        """The directory that the partition is not in."""
        (other,) = [one for one in self.managers if one is not self.hosted().manager]
        return other

    def path_of(self, manager: LogManager) -> str:
        return f"/{'ab'[self.managers.index(manager)]}"

    def alter(self, path: str = "", name: str = "orders", partition: int = 0) -> ErrorCode:
        path = path or self.path_of(self.future)
        return self.parts.replication.moves.alter(path, name, partition)

    def moving(self, settings: BrokerSettings) -> Moving:
        parts = self.parts
        return Moving(
            parts.facts,
            settings,
            parts.replication.moves,
            disks=parts.partitions.disks,
            group_commits=parts.partitions.group_commits,
            on_moved=lambda one, *_: self.moved.append(one),
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        settings = BrokerSettings(self.parts.facts, self.parts.metadata)
        async with asyncio.TaskGroup() as tasks:
            loops = [*self.moving(settings).start(tasks)]
            loops += maintenance(self, settings).start(tasks)
            try:
                yield
            finally:
                for one in loops:
                    one.cancel()

    async def until_moved(self) -> None:
        await until(lambda: self.hosted().move is None)
        await until(lambda: not self.hosted().manager.futures.moved_from)


def shown(*topics: TopicImage, **settings: Any) -> Moves:
    world = Moves(**settings)
    world.show(*(topics or (topic(),)))
    return world


def played(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(main())


@pytest.mark.feature("AD92")
@pytest.mark.parametrize("flush", ["os", "group"])
def test_a_replica_moves_while_it_is_written_to(
    flush: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(moving_module, "CHUNK_BYTES", 1_000)

    async def main() -> None:
        world = shown(topic(configs={"flush": flush}))
        source, target = world.hosted().manager, world.future
        for _ in range(50):
            world.append()
        async with world.running():
            assert world.alter() is ErrorCode.NONE
            while world.hosted().move is not None:
                if world.hosted().partition.log_end < 2_000:
                    world.append()
                await asyncio.sleep(0)
            await world.until_moved()
            assert world.hosted().manager is target
            end = world.hosted().partition.log_end
            assert world.hosted().log.log_end == end > 50
            assert world.append().base_offset == end
            if flush == "group":
                await until(lambda: world.hosted().partition.high_watermark == end + 1)
        assert ORDERS not in source.logs
        assert not source.disk.exists(str(ORDERS))
        assert world.moved == [ORDERS]

    played(main)


@pytest.mark.feature("AD92")
def test_a_move_goes_on_after_its_log_was_cut_beyond_what_was_copied() -> None:
    """As a follower's log is, when its leader changes."""

    async def main() -> None:
        world = shown()
        for _ in range(5):
            world.append()
        world.alter()
        log, move = world.hosted().log, world.hosted().move
        assert move is not None
        log.truncate_to(4)
        world.hosted().partition.bounds.truncated(4, 4)
        for _ in range(3):
            world.append()
        assert move.future.log_end < log.cut_to < log.log_end
        async with world.running():
            await world.until_moved()
        assert world.hosted().log is move.future
        assert world.hosted().log.log_end == 7

    played(main)


@pytest.mark.feature("AD92")
@pytest.mark.parametrize("is_long", [False, True])
def test_a_copy_is_cut_as_its_log_was(is_long: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop does not wait for a long walk: meanwhile the log is cut again."""
    if is_long:
        monkeypatch.setattr("broker.storage.producer_replay.WALKED_AT_ONCE_BYTES", 0)
    walked: list[int] = []

    async def main() -> None:
        world = shown()
        for sequence in range(5):
            world.append(producer_id=7, producer_epoch=0, base_sequence=sequence)
        world.alter()
        hosted, move = world.hosted(), world.hosted().move
        assert move is not None
        append_chunk(move.future, read_chunk(hosted.log.read(0, 1 << 20, end=5)), 0)

        def cut(end: int) -> None:
            hosted.log.truncate_to(end)
            hosted.partition.bounds.truncated(end, end)

        async def run(walk: Callable[[], None]) -> None:
            walk()
            walked.append(move.future.log_end)
            cut(2)
            world.append(b"again")

        cut(3)
        with monkeypatch.context() as patched:
            if is_long:
                patched.setattr(asyncio, "to_thread", run)
            moving = world.moving(BrokerSettings(world.parts.facts, world.parts.metadata))
            await moving._cut(hosted, move, Cut(3))
        assert move.future.log_end == 3
        assert hosted.log.cut_to == (2 if is_long else NEVER_CUT)
        await moving._move(hosted, move)
        assert hosted.log is move.future
        assert hosted.log.log_end == 3
        (entry,) = hosted.log.producers.entries()
        assert entry.last_sequence == (1 if is_long else 2)

    played(main)
    assert walked == ([5] if is_long else [])


@pytest.mark.feature("AD92")
def test_the_first_target_gives_way_to_the_next_and_the_present_one_ends_the_move() -> None:
    world = shown()
    assert world.alter() is ErrorCode.NONE
    future = world.hosted().move
    assert world.alter() is ErrorCode.NONE
    assert world.hosted().move is future
    assert world.alter(world.path_of(world.hosted().manager)) is ErrorCode.NONE
    assert world.hosted().move is None
    assert not world.future.futures.logs


@pytest.mark.feature("AD92")
def test_a_directory_is_remembered_for_a_partition_that_comes_later() -> None:
    for path in ("/a", "/b"):
        world = Moves()
        world.show(topic("other", number=2))
        assert world.alter(path) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        world.show(topic("other", number=2), topic())
        assert world.path_of(world.hosted().manager) == path


@pytest.mark.feature("AD92")
def test_errors_are_kafkas() -> None:
    elsewhere = topic()
    elsewhere = replace(elsewhere, partitions=topic(leader=2).partitions)  # type: ignore[arg-type]
    world = Moves()
    world.show(elsewhere)
    assert world.alter("/a") is ErrorCode.REPLICA_NOT_AVAILABLE
    world.show(topic())
    assert world.alter("/c") is ErrorCode.LOG_DIR_NOT_FOUND
    assert world.alter("a") is ErrorCode.LOG_DIR_NOT_FOUND
    world.parts.partitions.disks.fence_directory(world.future, DiskError("x", "EIO"))
    assert world.alter() is ErrorCode.KAFKA_STORAGE_ERROR
    assert world.alter("/b", "o" * 240) is ErrorCode.INVALID_TOPIC_EXCEPTION


@pytest.mark.feature("AD92")
def test_a_topic_that_is_deleted_takes_its_copy_along() -> None:
    world = shown()
    world.alter()
    hosted, target = world.hosted(), world.future
    world.change(topics_deleted=(topic().topic_id,))
    assert hosted.move is None
    assert not target.futures.logs


@pytest.mark.feature("AD92")
def test_a_target_that_fails_ends_the_move_and_nothing_else() -> None:
    async def main() -> None:
        world = shown()
        world.append()
        target = world.future
        async with world.running():
            world.alter()
            target.disk.syncs_fail = True  # type: ignore[attr-defined]
            await until(lambda: world.hosted().move is None)
            assert target.failure is not None
            assert world.append().error_code == ErrorCode.NONE
            assert world.hosted().manager is not target

    played(main)


@pytest.mark.feature("AD92")
def test_a_source_that_fails_ends_the_move_with_its_copy() -> None:
    async def main() -> None:
        world = shown()
        target = world.future
        world.alter()
        hosted = world.hosted()
        world.parts.partitions.disks.fence_directory(hosted.manager, DiskError("x", "EIO"))
        async with world.running():
            await until(lambda: hosted.move is None)
        assert hosted.partition.role is Role.FAILED
        assert not target.futures.logs
        assert target.failure is None

    played(main)


@pytest.mark.feature("AD92")
def test_a_move_waits_for_space_and_leaves_the_last_of_it_to_others() -> None:
    async def main() -> None:
        world = shown()
        world.append()
        target = world.future
        world.alter()
        target.disk.capacity_bytes = target.heal_free_bytes  # type: ignore[attr-defined]
        move = world.hosted().move
        assert move is not None
        async with world.running():
            await until(lambda: move.lacks_space)
            assert target.fenced is None
            target.disk.capacity_bytes = 1 << 40  # type: ignore[attr-defined]
            await world.until_moved()
        assert world.hosted().manager is target

    played(main)


@pytest.mark.feature("AD92")
def test_a_move_goes_on_after_a_restart() -> None:
    async def main() -> None:
        world = shown()
        for _ in range(5):
            world.append()
        target = world.managers.index(world.future)
        world.alter()
        for disk in world.disks:
            disk.kill()
        again = Moves(*world.disks)
        again.show(topic())
        assert again.hosted().move is not None
        async with again.running():
            await again.until_moved()
        assert again.hosted().manager is again.managers[target]
        assert again.hosted().log.log_end == 5

    played(main)


@pytest.mark.feature("AD92")
def test_a_copy_of_a_partition_that_is_no_longer_here_is_removed() -> None:
    world = shown()
    world.alter()
    for disk in world.disks:
        disk.kill()
    again = Moves(*world.disks)
    again.show()
    assert not any(manager.futures.logs for manager in again.managers)


@pytest.mark.feature("AD92")
def test_what_counts_as_synced_waits_for_the_copy_while_the_move_closes() -> None:
    world = shown(topic(configs={"flush": "group"}))
    world.append()
    world.alter()
    hosted = world.hosted()
    move = hosted.move
    assert move is not None
    assert move.plan.next_step(*moving_module._views(hosted, move)) is not None
    moves = world.parts.replication.moves
    hosted.log.unsynced.synced_end = 1
    move.plan.phase = move.plan.phase.CLOSING
    moves.tell_synced(hosted)
    assert hosted.partition.synced_end == 0
    moves.cancel(hosted)
    assert hosted.partition.synced_end == 1


@pytest.mark.feature("AD92")
def test_a_move_that_waits_for_space_while_it_closes_holds_up_no_acknowledgement() -> None:
    async def main() -> None:
        world = shown(topic(configs={"flush": "group"}))
        world.alter()
        target, hosted = world.future, world.hosted()
        target.disk.capacity_bytes = target.heal_free_bytes  # type: ignore[attr-defined]
        move = hosted.move
        assert move is not None
        move.plan.phase = Phase.CLOSING
        async with world.running():
            end = world.append().end
            await until(lambda: hosted.partition.high_watermark == end)
        assert hosted.move is move

    played(main)


@pytest.mark.feature("AD92")
def test_a_move_that_does_not_close_for_now_holds_up_no_acknowledgement() -> None:
    """More is written than may be copied without a pause; the rest is copied slowly."""

    async def main() -> None:
        world = shown(
            topic(configs={"flush": "group"}),
            replica_alter_log_dirs_io_max_bytes_per_second=1,
        )
        world.alter()
        hosted, end = world.hosted(), world.append().end
        move = hosted.move
        assert move is not None
        move.plan.phase = Phase.CLOSING  # and nothing is left of what it may copy so
        hosted.log.unsynced.synced_end = end
        world.parts.replication.moves.tell_synced(hosted)
        assert hosted.partition.high_watermark == 0
        moving = world.moving(BrokerSettings(world.parts.facts, world.parts.metadata))
        moving._throttle.transferred(1_000, world.parts.facts.clock.now_ms())
        async with asyncio.TaskGroup() as tasks:
            copying = tasks.create_task(moving._move(hosted, move))
            await until(lambda: hosted.partition.high_watermark == end)
            copying.cancel()
        assert hosted.move is move
        assert move.future.log_end == 0

    played(main)
