import asyncio
from typing import Any, cast

import pytest
from broker.shell.share.persister import Persister
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import TopicId
from tidemark.model.share_state import SharePartitionKey
from tidemark.runtime.clock import Clock
from unit.broker.core.share.plain_share_partition import PlainCoordinator
from unit.broker.shell.kafka.share_fetch_worlds import (
    ACCEPT,
    GROUP,
    REJECT,
    RELEASE,
    TOPIC_ID,
    Member,
    ShareFetchWorld,
    running,
)
from virtual_time import pass_time, run_virtual
from waiting import PATIENCE_S, patience


class SlowState:
    """State whose writes never end by themselves, and take a moment to be cancelled."""

    def __init__(self) -> None:
        self.began, self.ending, self.may_end = (asyncio.Event() for _ in range(3))

    async def write(self, *_: object) -> None:
        self.began.set()
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            self.ending.set()
            await self.may_end.wait()


def test_no_call_begins_while_the_calls_of_a_stopped_persister_end() -> None:
    async def main() -> None:
        state = SlowState()
        persister = Persister(
            cast("Any", state),
            cast("Any", None),
            Clock(),
            timeout_s=PATIENCE_S,
            on_changed=lambda _: None,
            on_written=lambda _: None,
            on_failed=lambda _: None,
        )
        async with patience(), asyncio.TaskGroup() as tasks:
            running = tasks.create_task(persister.run())
            await asyncio.sleep(0)
            persister.write("group", [])
            await state.began.wait()
            running.cancel()
            await state.ending.wait()
            was_running = persister.is_running
            state.may_end.set()
        assert not was_running

    asyncio.run(main())


LATE = ErrorCode.REQUEST_TIMED_OUT


@pytest.mark.parametrize(
    ("outcome", "failures", "again"),
    [
        (ACCEPT, [], []),
        (REJECT, [], []),
        (RELEASE, [], [(0, 2, 2)]),
        (ACCEPT, [LATE], [(0, 2, 1)]),
    ],
)
def test_a_window_that_is_dropped_is_loaded_again_after_its_last_write(
    outcome: int, failures: list[ErrorCode], again: list[tuple[int, int, int]]
) -> None:
    """A write that arrives after the load would be laid over what the next window has written."""

    async def run() -> None:
        async with running(ShareFetchWorld()) as world:
            world.put(3)
            first, second = Member(world), Member(world, "m2")
            assert await first.take(0, wait_ms=500) == [(0, 2, 1)]
            world.state.latency_s, world.state.failures = 4, list(failures)
            waiting = world.start(first.acknowledge((0, 2, outcome)))
            await pass_time(1)
            world.state.latency_s = 0.001
            world.configure(share_record_order="key")
            assert await waiting is ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert await second.take(0, wait_ms=500) == []
            assert world.state.calls[-1][0] == "write", "what is being written is not read"
            assert await second.take(wait_ms=5_000) == again

    run_virtual(run())


def test_other_share_partitions_are_loaded_during_a_write() -> None:
    async def run() -> None:
        async with running(ShareFetchWorld(2)) as world:
            for partition in range(2):
                world.put(3, partition=partition)
            world.state.kept[SharePartitionKey(GROUP, TopicId(TOPIC_ID), 1)] = PlainCoordinator()
            member = Member(world)
            assert await member.take(0, wait_ms=500) == [(0, 2, 1)]
            world.state.latency_s = 4
            waiting = world.start(member.acknowledge((0, 2, ACCEPT)))
            await pass_time(1)
            world.state.latency_s = 0.001
            found = await Member(world, "m2").fetch(1, wait_ms=10_000)
            assert not waiting.done()
            assert found[1].acquired == [(0, 2, 1)]
            assert await waiting is ErrorCode.NONE

    run_virtual(run())
