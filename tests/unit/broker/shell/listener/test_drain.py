"""The drain of a listener: handlers have until its deadline, and not longer."""

import asyncio
from collections.abc import Coroutine
from typing import Any

from broker.shell.listener.listener import KafkaListener
from unit.broker.shell.broker_worlds import World
from unit.broker.shell.conftest import make_listener
from waiting import patience


async def drained(work: Coroutine[Any, Any, None], drain_s: float) -> None:
    """Serve, start the handler, and drain."""
    parts = World().parts
    listener: KafkaListener = make_listener(parts, parts.router())
    await listener.open()
    accepting, stop = asyncio.Event(), asyncio.Event()
    accepting.set()
    async with patience(), asyncio.TaskGroup() as tasks:
        tasks.create_task(listener.run(accepting, stop, drain_s=drain_s))
        await listener.serving.wait()
        listener.start(work)
        await asyncio.sleep(0)
        stop.set()


def test_a_handler_that_waits_for_ever_ends_with_the_drain() -> None:
    ends: list[str] = []

    async def wait_for_ever() -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            ends.append("cancelled")

    asyncio.run(drained(wait_for_ever(), drain_s=0.01))
    assert ends == ["cancelled"]


def test_a_handler_without_an_answer_is_waited_for() -> None:
    ends: list[str] = []

    async def work() -> None:
        for _ in range(10):
            await asyncio.sleep(0)
        ends.append("done")

    asyncio.run(drained(work(), drain_s=60))
    assert ends == ["done"]
