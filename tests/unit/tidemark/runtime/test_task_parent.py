import asyncio
from collections.abc import Awaitable, Callable

import pytest
from tidemark.runtime.task_parent import TaskParent
from waiting import patience


def run(scenario: Callable[[TaskParent, asyncio.Task[None]], Awaitable[None]]) -> None:
    """Run a scenario with a parent that runs, and is cancelled in the end."""

    async def main() -> None:
        parent = TaskParent()
        async with patience(), asyncio.TaskGroup() as tasks:
            running = tasks.create_task(parent.run())
            await asyncio.sleep(0)
            await scenario(parent, running)
            running.cancel()
        assert not parent.is_running

    asyncio.run(main())


async def forever(ended: asyncio.Event) -> None:
    try:
        await asyncio.get_running_loop().create_future()
    finally:
        ended.set()


def test_tasks_begin_while_it_runs_and_end_with_it() -> None:
    ended = asyncio.Event()

    async def scenario(parent: TaskParent, running: asyncio.Task[None]) -> None:
        task = parent.start(forever(ended), "a name")
        assert task is not None
        assert task.get_name() == "a name"
        await asyncio.sleep(0)
        running.cancel()
        await ended.wait()

    run(scenario)


def test_nothing_begins_before_it_runs() -> None:
    assert TaskParent().start(forever(asyncio.Event())) is None


def test_nothing_begins_while_tasks_are_being_cancelled() -> None:
    ending, may_end = asyncio.Event(), asyncio.Event()

    async def slow_to_end() -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            ending.set()
            await may_end.wait()

    async def scenario(parent: TaskParent, running: asyncio.Task[None]) -> None:
        parent.start(slow_to_end())
        await asyncio.sleep(0)
        running.cancel()
        await ending.wait()
        begun = parent.start(forever(asyncio.Event()))
        may_end.set()
        assert begun is None

    run(scenario)


def test_a_task_that_fails_ends_the_others_and_the_parent() -> None:
    async def fail() -> None:
        raise ValueError("wrong")

    async def main() -> None:
        parent, ended = TaskParent(), asyncio.Event()
        async with patience(), asyncio.TaskGroup() as tasks:
            tasks.create_task(parent.run())
            await asyncio.sleep(0)
            parent.start(forever(ended))
            await asyncio.sleep(0)
            parent.start(fail())

    with pytest.raises(ExceptionGroup) as raised:
        asyncio.run(main())
    assert raised.group_contains(ValueError, match="wrong")
