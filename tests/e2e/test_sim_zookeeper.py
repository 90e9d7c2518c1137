"""The simulated ZooKeeper against a real one: the same operations, the same answers.

Watches are set on both, and compared by what later reads see; when each fires is kazoo's to time.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from e2e.zookeeper import running_zookeeper
from sim.loop import SimLoop
from sim.test_zookeeper import World
from sim.zk_adapter import SimZkSession
from tidemark.runtime.zk_session import Check, Create, Delete, Op, SetData, ZkError, ZkSession

OPERATIONS = 3_000
PATHS = ("/a", "/b", "/a/x", "/a/y", "/b/x", "/a/x/deep")

pytestmark = pytest.mark.e2e


def draw_op(dice: random.Random) -> Op:
    path, version = dice.choice(PATHS), dice.choice((-1, -1, 0, 1, 2))
    kind = dice.randrange(4)
    if kind == 0:
        return Create(path, b"%d" % dice.randrange(99), dice.random() < 0.3)
    if kind == 1:
        return SetData(path, b"%d" % dice.randrange(99), version)
    return Delete(path, version) if kind == 2 else Check(path, version)


def _heard() -> None:
    """A watch fired."""


async def act(session: ZkSession, dice: random.Random, heard: Callable[[], None]) -> Any:
    kind, path = dice.randrange(8), dice.choice(PATHS)
    watch = heard if dice.random() < 0.3 else None
    if kind == 0:
        return await session.get(path, watch)
    if kind == 1:
        return await session.exists(path, watch)
    if kind == 2:
        return await session.children(path, watch)
    ops = [draw_op(dice) for _ in range(1 if kind < 6 else dice.randrange(2, 5))]
    return await session.multi(ops)


class Story:
    """What was heard, with zxids and session ids numbered in the order of their appearance."""

    def __init__(self) -> None:
        self.lines: list[Any] = []
        self.ids: dict[int, int] = {}

    def plain(self, value: Any) -> Any:
        if hasattr(value, "created_zxid"):
            ids = (value.created_zxid, value.children_zxid, value.owner_session)
            numbered = [self.ids.setdefault(one, len(self.ids)) if one else 0 for one in ids]
            return (value.version, value.child_count, *numbered)
        if isinstance(value, list | tuple):
            return [self.plain(one) for one in value]
        return value


async def tell(connect: Callable[[], Awaitable[ZkSession]], seed: int) -> list[Any]:
    dice, story = random.Random(seed), Story()
    sessions = [await connect(), await connect()]
    for number in range(OPERATIONS):
        session = dice.choice(sessions)
        try:
            answer = story.plain(await act(session, dice, _heard))
        except ZkError as error:
            answer = type(error).__name__
        story.lines.append((number, answer))
        if number % 500 == 499:
            await sessions[1].stop()
            sessions[1] = await connect()
    for each in sessions:
        await each.stop()
    return story.lines


@pytest.mark.parametrize("seed", [1])
def test_it_is_as_the_real_one(tmp_path: Path, seed: int) -> None:
    world = World()
    loop = SimLoop(world.queue)  # type: ignore[abstract]  # I/O is left out on purpose

    async def simulated() -> ZkSession:
        session = SimZkSession(world.zookeeper.connect("client"))
        await session.start()
        return session

    task = loop.create_task(tell(simulated, seed))
    world.queue.run(600_000)
    expected = task.result()

    with running_zookeeper(tmp_path) as server:

        async def real() -> ZkSession:
            session = ZkSession(server.connect)
            await session.start()
            return session

        found = asyncio.run(tell(real, seed))
    for ours, theirs in zip(expected, found, strict=True):
        assert ours == theirs
