"""Removal of live znodes, on a simulated ZooKeeper."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import pytest
from controller.shell.live_znodes import LiveZnodes
from controller.shell.zk_election import Term, ZkElection
from controller.shell.zk_store import ZkStore
from sim.loop import SimLoop
from sim.test_zookeeper import World
from sim.zk_adapter import SimZkSession
from tidemark.model.ids import BrokerId, ControllerId
from tidemark.runtime import zk_paths
from tidemark.runtime.zk_session import Op, UnknownOutcomeError, ZnodeStat

LIVE = zk_paths.LiveBroker(BrokerId(1), b"incarnation")


class FlakySession(SimZkSession):
    """Session that loses the answer to its next transaction once it is performed."""

    def __init__(self, world: World) -> None:
        super().__init__(world.zookeeper.connect("c"))
        self.before: Callable[[], Awaitable[None]] | None = None
        """Called before the next transaction."""
        self.after: Callable[[], Awaitable[None]] | None = None
        """Called when the next transaction is performed; its answer is lost then."""
        self.transactions = 0

    async def multi(self, ops: Sequence[Op]) -> list[ZnodeStat | None]:
        self.transactions += 1
        if self.before is not None:
            before, self.before = self.before, None
            await before()
        stats = await super().multi(ops)
        if self.after is not None:
            after, self.after = self.after, None
            await after()
            raise UnknownOutcomeError("multi: ConnectionLoss")
        return stats


class Scene:
    """A controller that fences, and a broker whose live znode exists."""

    def __init__(self, session: FlakySession, broker: SimZkSession, term: Term) -> None:
        self.session = session
        self.broker = broker
        self.removals = LiveZnodes(session, ZkStore(session, term.epoch_version))
        self.term = term

    async def make(self) -> None:
        await self.broker.create(LIVE.path, ephemeral=True)

    async def remove(self) -> None:
        """Remove the znode, and wait until nothing more is tried."""
        await self.removals._remove(LIVE, self.term)


def run(use: Callable[[Scene], Awaitable[None]]) -> None:
    world = World()
    loop = SimLoop(world.queue)  # type: ignore[abstract]  # I/O is left out on purpose
    session, broker = FlakySession(world), SimZkSession(world.zookeeper.connect("b"))

    async def started() -> None:
        await session.start()
        await broker.start()
        election = ZkElection(session, ControllerId(1))
        election.grpc_endpoint = "c:1"
        term = await election.campaign()
        await session.ensure_path(zk_paths.LIVE_BROKERS)
        scene = Scene(session, broker, term)
        await scene.make()
        await use(scene)

    task = loop.create_task(started())
    world.queue.run(5_000)
    loop.shut()
    assert task.done(), "it does not end"
    task.result()


def test_a_live_znode_is_removed_once() -> None:
    async def use(scene: Scene) -> None:
        await scene.remove()
        assert await scene.session.exists(LIVE.path) is None
        await scene.remove()
        assert not scene.term.over

    run(use)


@pytest.mark.parametrize("is_renewed", [True, False])
def test_a_znode_that_is_made_again_stays_when_the_answer_was_lost(is_renewed: bool) -> None:
    # The broker was fenced already. A second time would take its leaders from it again.
    async def use(scene: Scene) -> None:
        if is_renewed:
            await scene.broker.set(LIVE.path, b"a lease")
        scene.session.after = scene.make
        await scene.remove()
        assert await scene.session.exists(LIVE.path) is not None
        assert not scene.term.over

    run(use)


def test_a_lease_that_is_renewed_meanwhile_does_not_save_the_znode() -> None:
    async def renew() -> None:
        await scenes[0].broker.set(LIVE.path, b"a lease")

    scenes: list[Scene] = []

    async def use(scene: Scene) -> None:
        scenes.append(scene)
        scene.session.before = renew
        await scene.remove()
        assert await scene.session.exists(LIVE.path) is None
        assert not scene.term.over

    run(use)


def test_a_deposed_controller_removes_nothing() -> None:
    async def use(scene: Scene) -> None:
        await scene.broker.set(zk_paths.CONTROLLER_EPOCH, b"raised")
        async with asyncio.timeout(60):
            await scene.remove()
        assert await scene.session.exists(LIVE.path) is not None
        assert scene.term.over

    run(use)
