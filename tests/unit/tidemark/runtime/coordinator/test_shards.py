import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from manual_clock import ManualClock
from tidemark.model.errors import ErrorCode, TidemarkError
from tidemark.model.metadata import ShardOwner
from tidemark.runtime.coordinator.shards import Shards
from virtual_time import run_virtual
from waiting import patience

OURS = 1
REQUEST, REPLY, REPORT = "a request", "its reply", "a report"


class Life:
    """Runtime whose loading and replies the test decides."""

    def __init__(self, shard: int, owner_epoch: int) -> None:
        self.name = (shard, owner_epoch)
        self.is_serving = False
        self.waiting_count = 0
        self.failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.told: list[str] = []
        self.is_closed = False

    async def run(self) -> None:
        try:
            async with asyncio.TaskGroup():
                await self.failure
        finally:
            self.is_serving = False

    async def ask(self, request: str) -> str:
        return await asyncio.shield(self.answer)

    def submit(self, request: str) -> None:
        self.told.append(request)

    def close(self) -> None:
        self.failure.cancel()
        self.answer.cancel()
        self.is_closed = True


class World:
    """A replica that the metadata gives shards to; every acquisition raises the epoch by one."""

    def __init__(self) -> None:
        self.lives: list[Life] = []
        self.dropped: list[int] = []
        self.epochs = {0: 0, 1: 0}
        self.refusals: list[ErrorCode] = []
        self.opened = asyncio.Event()
        self.shards: Shards[Life] = Shards(
            ManualClock(),
            state_topic="__state",
            acquire=self.acquire,
            open_runtime=self.open,
            on_dropped=self.dropped.append,
        )

    async def acquire(self, shard: int) -> int:
        if self.refusals:
            raise TidemarkError(self.refusals.pop(0), "not now")
        self.epochs[shard] += 1
        return self.epochs[shard]

    def open(self, shard: int, owner_epoch: int) -> Life:
        self.lives.append(Life(shard, owner_epoch))
        self.opened.set()
        return self.lives[-1]

    def assign(self, *ours: int) -> None:
        owners = [
            ShardOwner(shard, OURS if shard in ours else 2, self.epochs[shard]) for shard in (0, 1)
        ]
        self.shards.assign(owners, set(ours))

    async def life(self, count: int = 1) -> Life:
        """Return the last of ``count`` runtimes, once it exists."""
        while len(self.lives) < count:
            self.opened.clear()
            await self.opened.wait()
        return self.lives[count - 1]

    async def serving(self) -> Life:
        self.assign(0)
        life = await self.life()
        life.is_serving = True
        return life


@asynccontextmanager
async def world() -> AsyncIterator[World]:
    here = World()
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(here.shards.run())
        yield here
        running.cancel()
    assert all(life.is_closed for life in here.lives)


def run(scenario: Callable[[World], Awaitable[None]]) -> None:
    async def main() -> None:
        async with world() as here, patience():
            await scenario(here)

    run_virtual(main())


async def code_of(asking: Awaitable[str]) -> ErrorCode:
    try:
        await asking
    except TidemarkError as refused:
        return refused.code
    return ErrorCode.NONE


def test_an_assigned_shard_is_acquired_and_served() -> None:
    async def scenario(here: World) -> None:
        life = await here.serving()
        life.answer.set_result(REPLY)
        assert await here.shards.ask(0, REQUEST, 1.0) is REPLY
        assert (life.name, here.shards.owned()) == ((0, 1), [0])

    run(scenario)


def test_shards_given_before_the_start_are_served_too() -> None:
    async def main() -> None:
        here = World()
        here.assign(0, 1)
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(here.shards.run())
            await here.life(2)
            running.cancel()
        assert [life.name for life in here.lives] == [(0, 1), (1, 1)]

    run_virtual(main())


def test_without_a_state_topic_there_is_no_coordinator_yet() -> None:
    with pytest.raises(TidemarkError) as refused:
        World().shards.shard_of("t")
    assert refused.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_requests_for_another_coordinators_shard_are_refused() -> None:
    async def scenario(here: World) -> None:
        here.assign(0)
        assert await code_of(here.shards.ask(1, REQUEST, 1.0)) is ErrorCode.NOT_COORDINATOR

    run(scenario)


def test_while_it_loads_a_shard_asks_for_patience() -> None:
    async def scenario(here: World) -> None:
        here.assign(0)
        loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert await code_of(here.shards.ask(0, REQUEST, 1.0)) is loading
        await here.life()
        assert await code_of(here.shards.ask(0, REQUEST, 1.0)) is loading

    run(scenario)


def test_a_shard_that_moves_away_is_dropped() -> None:
    async def scenario(here: World) -> None:
        life = await here.serving()
        here.assign(1)
        assert await code_of(here.shards.ask(0, REQUEST, 1.0)) is ErrorCode.NOT_COORDINATOR
        await here.life(2)
        assert (life.is_closed, here.dropped, here.shards.owned()) == (True, [0], [1])

    run(scenario)


def test_a_shard_that_comes_back_is_loaded_again() -> None:
    async def scenario(here: World) -> None:
        await here.serving()
        here.assign()
        here.assign(0)
        assert (await here.life(2)).name == (0, 2)

    run(scenario)


def test_a_dropped_state_is_loaded_again_under_a_new_epoch() -> None:
    async def scenario(here: World) -> None:
        life = await here.serving()
        life.failure.set_exception(TidemarkError(ErrorCode.REQUEST_TIMED_OUT, "unknown outcome"))
        assert (await here.life(2)).name == (0, 2)
        assert (here.dropped, here.shards.stats.failures.value) == ([0], 1)

    run(scenario)


def test_a_bug_costs_the_shard_its_state_and_not_the_process() -> None:
    async def scenario(here: World) -> None:
        (await here.serving()).failure.set_exception(AssertionError("an invariant"))
        assert (await here.life(2)).name == (0, 2)

    run(scenario)


def test_a_record_that_cannot_be_read_keeps_its_shard_down_and_no_other() -> None:
    async def scenario(here: World) -> None:
        life = await here.serving()
        life.failure.set_exception(ValueError("a record of version 9"))
        assert (await here.life(2)).name == (0, 2)

    run(scenario)


def test_an_acquisition_that_is_refused_is_tried_again() -> None:
    async def scenario(here: World) -> None:
        here.refusals = [ErrorCode.NOT_COORDINATOR]
        here.assign(0)
        assert (await here.life()).name == (0, 1)

    run(scenario)


def test_an_assignment_in_skipped_metadata_ends_the_present_runtime() -> None:
    async def scenario(here: World) -> None:
        await here.serving()
        here.epochs[0] = 5  # away and back again, between two images
        here.assign(0)
        assert (await here.life(2)).name == (0, 6)

    run(scenario)


def test_the_own_epoch_in_the_metadata_changes_nothing() -> None:
    async def scenario(here: World) -> None:
        life = await here.serving()
        here.assign(0)
        await asyncio.sleep(0.005)
        assert here.lives == [life]

    run(scenario)


def test_a_fenced_owner_loads_again_if_the_shard_is_still_assigned() -> None:
    async def scenario(here: World) -> None:
        await here.serving()
        here.shards.fenced(0, 1)
        assert (await here.life(2)).name == (0, 2)

    run(scenario)


def test_a_late_word_of_fencing_does_not_concern_the_next_owner_epoch() -> None:
    async def scenario(here: World) -> None:
        here.epochs[0] = 3
        life = await here.serving()
        here.shards.fenced(0, 3)
        await asyncio.sleep(0.005)
        assert here.lives == [life]

    run(scenario)


def test_reports_reach_the_state_that_is_served() -> None:
    async def scenario(here: World) -> None:
        life = await here.serving()
        here.shards.submit(0, REPORT)
        here.shards.submit(1, REPORT)
        assert life.told == [REPORT]

    run(scenario)


def test_a_request_that_is_not_answered_in_time_may_yet_happen() -> None:
    async def scenario(here: World) -> None:
        await here.serving()
        assert await code_of(here.shards.ask(0, REQUEST, 0.01)) is ErrorCode.REQUEST_TIMED_OUT

    run(scenario)


def test_draining_answers_requests_under_way_and_refuses_others() -> None:
    async def scenario(here: World) -> None:
        life = await here.serving()
        async with asyncio.TaskGroup() as tasks:
            asking = tasks.create_task(here.shards.ask(0, REQUEST, 1.0))
            await asyncio.sleep(0)
            draining = tasks.create_task(here.shards.drain())
            await asyncio.sleep(0.005)
            assert not draining.done()
            assert await code_of(here.shards.ask(0, REQUEST, 1.0)) is ErrorCode.NOT_COORDINATOR
            life.answer.set_result(REPLY)
        assert asking.result() is REPLY

    run(scenario)
