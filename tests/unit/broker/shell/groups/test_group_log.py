"""A group's log under a leader whose followers are late: it waits without holding the loop."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest
from broker.core.groups.shard import GroupShard
from broker.core.parked import READ
from broker.core.partition import Role
from broker.shell.groups.group_log import NO_COMMIT, GroupLog
from tidemark.codec.group_records import decode, encode
from tidemark.codec.records import build_batch
from tidemark.model.errors import ErrorCode, TidemarkError
from tidemark.runtime.clock import Clock
from unit.broker.core.groups.group_worlds import SETTINGS, FewTopics
from unit.broker.shell.replicated_worlds import LeaderWorld, partition, replicated

TURNS = 1_000
"""Of the loop: a wait that does not wait takes them all and is not done."""


class GroupWorld(LeaderWorld):
    """A leader of three replicas whose followers fetch when told; time passes."""

    def __init__(self) -> None:
        super().__init__(clock=Clock())
        parts = self.parts
        self.has_lease = True
        self.log = GroupLog(
            self.hosted(),
            has_lease=lambda: self.has_lease,
            clock=parts.facts.clock,
            appender=parts.partitions.appender,
            parked=parts.partitions.parked,
            disks=parts.partitions.disks,
            timeout_ms=60_000,
        )

    def fill(self) -> None:
        """Park long polls until none finds room."""
        parked, now = self.parked, self.parts.facts.clock.now_ms()
        while parked.requests.counts[READ] < parked.requests.limits.reads_max:
            parked.requests.park_fetch(
                [self.hosted()],
                bytes_missing=1 << 30,
                now=now,
                wait_ms=600_000,
                wake=lambda _: None,
            )

    def commit(self, end: int) -> None:
        for follower in (2, 3):
            self.fetch(follower, end)


async def turned(work: Coroutine[Any, Any, int]) -> "asyncio.Task[int]":
    """The task of ``work`` after the loop has gone round some times, or once it is done."""
    task = asyncio.get_running_loop().create_task(work)
    for _ in range(TURNS):
        await asyncio.sleep(0)
    return task


def records() -> bytes:
    return bytes(build_batch([(0, b"group", b"offset", ())]))


@pytest.mark.parametrize("full", [False, True])
def test_a_takeover_waits_for_followers_and_lets_them_come(full: bool) -> None:
    world = GroupWorld()

    async def main() -> None:
        world.append(acks=-1)
        if full:
            world.fill()
        task = await turned(world.log.take_over())
        assert not task.done()
        world.commit(1)
        assert await task == 1

    asyncio.run(main())


def test_a_takeover_lets_the_loop_turn_while_the_broker_stops() -> None:
    world = GroupWorld()

    async def main() -> None:
        world.append(acks=-1)
        task = await turned(world.log.take_over())
        world.parked.wake_all()
        for _ in range(TURNS):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())


def test_a_commit_waits_for_followers_though_long_polls_fill_their_room() -> None:
    world = GroupWorld()

    async def main() -> None:
        world.fill()
        task = await turned(_value(world.log.append(records())))
        assert not task.done()
        world.commit(1)
        assert await task == 1

    asyncio.run(main())


def test_a_commit_fails_when_the_broker_stops() -> None:
    world = GroupWorld()

    async def main() -> None:
        task = await turned(_value(world.log.append(records())))
        world.parked.wake_all()
        with pytest.raises(TidemarkError) as failed:
            await task
        assert failed.value.code is ErrorCode.REQUEST_TIMED_OUT

    asyncio.run(main())


def test_an_answer_from_memory_holds_under_the_lease() -> None:
    world = GroupWorld()
    assert world.log.confirm() is None
    assert world.hosted().partition.log_end == 0


def test_an_answer_from_memory_waits_for_the_isr_without_a_lease() -> None:
    world = GroupWorld()
    world.has_lease = False

    async def main() -> None:
        confirmation = world.log.confirm()
        assert confirmation is not None
        task = await turned(_value(confirmation))
        assert not task.done()
        world.commit(1)
        assert await task == 1

    asyncio.run(main())


def test_an_answer_from_memory_is_refused_by_a_deposed_leader() -> None:
    world = GroupWorld()
    world.has_lease = False

    async def main() -> None:
        confirmation = world.log.confirm()
        assert confirmation is not None
        task = await turned(_value(confirmation))
        world.show(replicated(partition(leader=2, epoch=1)))
        with pytest.raises(TidemarkError) as failed:
            await task
        assert failed.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER

    asyncio.run(main())


def test_what_confirms_an_owner_changes_no_group() -> None:
    key, value = encode(NO_COMMIT)
    assert decode(key, value) == NO_COMMIT
    shard = GroupShard(SETTINGS, FewTopics)
    shard.replay(NO_COMMIT, None)
    shard.check()
    assert not shard._offsets._groups


async def read_of(world: GroupWorld) -> int:
    """Records that a load gets to see."""
    return sum([1 async for _ in world.log.read(world.hosted().partition.log_end)])


def test_a_disk_that_fails_under_a_load_is_fenced_and_another_coordinates() -> None:
    world = GroupWorld()
    world.append()
    assert asyncio.run(read_of(world)) == 1
    world.disks[0].reads_fail = True
    with pytest.raises(TidemarkError) as failed:
        asyncio.run(read_of(world))
    assert failed.value.code is ErrorCode.NOT_COORDINATOR
    assert world.hosted().partition.role is Role.FAILED


def test_a_flipped_bit_is_never_loaded_and_is_reported() -> None:
    world = GroupWorld()
    for _ in range(2):
        world.append()
    view = world.hosted().log.segments()[-1]
    world.disks[0].flip_bit(view.path, view.size_bytes - 1)
    with pytest.raises(TidemarkError, match="batch at offset 1 is damaged") as failed:
        asyncio.run(read_of(world))
    assert failed.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert world.hosted().log.health.damage_at == 1
    assert world.parts.partitions.disks.trouble.is_set()


async def _value(appended: Any) -> int:
    return int(await appended)
