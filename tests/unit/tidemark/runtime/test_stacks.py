import asyncio
import threading

import pytest
from tidemark.runtime.stacks import stacks


@pytest.mark.feature("AD64")
def test_every_thread_and_every_task_is_there() -> None:
    release = threading.Event()
    waiting = threading.Thread(target=release.wait, name="waiting-thread")
    waiting.start()
    try:
        text = asyncio.run(stacks_beside_a_task())
    finally:
        release.set()
        waiting.join()
    assert "thread waiting-thread" in text
    assert "task sleeping-task" in text
    assert "sleeps_until_the_end" in text


async def stacks_beside_a_task() -> str:
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(sleeps_until_the_end(), name="sleeping-task")
        await asyncio.sleep(0)
        text = stacks()
        task.cancel()
    return text


async def sleeps_until_the_end() -> None:
    await asyncio.Event().wait()


def test_without_a_loop_there_are_threads_alone() -> None:
    text = stacks()
    assert "thread MainThread" in text
    assert "tasks" not in text.splitlines()
