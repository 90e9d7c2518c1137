"""Elections of one replica, one after the other, on a simulated ZooKeeper."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence

import pytest
from controller.shell.zk_election import ZkElection
from sim.loop import SimLoop
from sim.test_zookeeper import World
from sim.zk_adapter import SimZkSession
from tidemark.model.ids import ControllerId
from tidemark.runtime import zk_paths
from tidemark.runtime.zk_session import (
    Delete,
    NoNodeError,
    OnChange,
    Op,
    UnknownOutcomeError,
    ZkError,
    ZnodeStat,
)


class FlakySession(SimZkSession):
    """Session whose connection breaks with certain requests; it stays alive itself."""

    def __init__(self, world: World) -> None:
        super().__init__(world.zookeeper.connect("c"))
        self.loses_deletions = False
        self.refuses_reads = False
        self.refused_reads = 0
        self.on_removal: Callable[[], Awaitable[None]] | None = None
        """Called once, before the next removal."""
        self.has_chroot = True
        self.on_get: Callable[[], Awaitable[None]] | None = None
        """Called once, before the next read."""

    async def create(self, path: str, data: bytes = b"", *, ephemeral: bool = False) -> None:
        if not self.has_chroot:
            self.refused_reads += 1
            assert self.refused_reads < 100, "asks without a pause"
            raise NoNodeError(f"create {path}: NoNode")
        await super().create(path, data, ephemeral=ephemeral)

    async def get(self, path: str, on_change: OnChange | None = None) -> tuple[bytes, ZnodeStat]:
        if self.refuses_reads:
            self.refused_reads += 1
            assert self.refused_reads < 100, "asks without a pause"
            raise ZkError(f"get {path}: NoAuth")
        if self.on_get is not None:
            before, self.on_get = self.on_get, None
            await before()
        return await super().get(path, on_change)

    async def delete(self, path: str, *, version: int = -1) -> None:
        await self._before_removal(path)
        await super().delete(path, version=version)

    async def multi(self, ops: Sequence[Op]) -> list[ZnodeStat | None]:
        for one in ops:
            if isinstance(one, Delete):
                await self._before_removal(one.path)
        return await super().multi(ops)

    async def _before_removal(self, path: str) -> None:
        if self.loses_deletions:
            raise UnknownOutcomeError(f"delete {path}: ConnectionLoss")
        if self.on_removal is not None:
            before, self.on_removal = self.on_removal, None
            await before()


def run(use: Callable[[ZkElection, FlakySession], Awaitable[None]]) -> None:
    world = World()
    loop = SimLoop(world.queue)  # type: ignore[abstract]  # I/O is left out on purpose
    session = FlakySession(world)
    election = ZkElection(session, ControllerId(1))
    election.grpc_endpoint = "c:1"

    async def started() -> None:
        await session.start()
        await use(election, session)

    task = loop.create_task(started())
    world.queue.run(5_000)
    loop.shut()
    assert task.done(), "it does not end"
    task.result()


@pytest.mark.parametrize("resigns", [True, False])
def test_every_term_has_an_epoch_of_its_own(resigns: bool) -> None:
    # The feed's positions begin again with each term: those of one epoch must be of one term.
    async def use(election: ZkElection, session: FlakySession) -> None:
        first = await election.campaign()
        session.loses_deletions = not resigns
        first.end("no connection to ZooKeeper for 9 s")
        await election.resign(first)
        session.loses_deletions = False
        second = await election.campaign()
        assert second.controller_epoch > first.controller_epoch
        assert second.epoch_version > first.epoch_version

    run(use)


def test_a_claim_whose_answer_was_lost_is_a_term() -> None:
    async def use(election: ZkElection, session: FlakySession) -> None:
        claimed = await election._claim()
        term = await election.campaign()
        assert term.controller_epoch == claimed.controller_epoch

    run(use)


def test_a_late_resignation_leaves_the_next_claim() -> None:
    # The process may stand still before the removal, and its session end meanwhile.
    async def use(election: ZkElection, session: FlakySession) -> None:
        async def elect_another() -> None:
            await session.delete(zk_paths.CONTROLLER)
            await ZkElection(session, ControllerId(2))._claim()

        term = await election.campaign()
        session.on_removal = elect_another
        await election.resign(term)
        data, _ = await session.get(zk_paths.CONTROLLER)
        assert zk_paths.decode(zk_paths.CONTROLLER, data)["controller_id"] == 2

    run(use)


def test_a_late_removal_of_an_own_claim_leaves_the_next_one() -> None:
    async def use(election: ZkElection, session: FlakySession) -> None:
        async def elect_another() -> None:
            await session.delete(zk_paths.CONTROLLER)
            await ZkElection(session, ControllerId(2))._claim()

        await election.campaign()
        session.on_removal = elect_another
        with contextlib.suppress(ZkError):
            await election._try(asyncio.Event())
        data, _ = await session.get(zk_paths.CONTROLLER)
        assert zk_paths.decode(zk_paths.CONTROLLER, data)["controller_id"] == 2

    run(use)


def test_a_refusal_that_lasts_is_met_with_pauses() -> None:
    async def use(election: ZkElection, session: FlakySession) -> None:
        term = await election.campaign()
        session.refuses_reads = True
        asyncio.get_running_loop().call_later(3, term.end, "enough")
        await election.watch(term)
        assert 2 < session.refused_reads <= 16

    run(use)


def test_a_campaign_without_a_chroot_asks_with_pauses() -> None:
    # An operator who removes the chroot while replicas stand by must not make them flood ZooKeeper.
    async def use(election: ZkElection, session: FlakySession) -> None:
        def restore() -> None:
            session.has_chroot = True

        session.has_chroot = False
        asyncio.get_running_loop().call_later(3, restore)
        term = await election.campaign()
        assert term.controller_epoch == 1
        assert 2 < session.refused_reads <= 16

    run(use)


def test_a_claim_that_ends_while_it_is_read_is_followed() -> None:
    async def use(election: ZkElection, session: FlakySession) -> None:
        async def remove() -> None:
            await session.delete(zk_paths.CONTROLLER)

        first = await election.campaign()
        session.on_get = remove
        second = await election.campaign()
        assert second.controller_epoch > first.controller_epoch

    run(use)
