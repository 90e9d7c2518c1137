"""LeaseKeeper against a session in memory."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, cast

import pytest
from broker.shell.cluster.lease_keeper import LeaseKeeper
from tidemark.runtime.zk_session import (
    BadVersionError,
    NoNodeError,
    SessionState,
    UnknownOutcomeError,
    ZkSession,
    ZnodeStat,
)
from virtual_time import LoopClock, run_virtual
from waiting import until

PATH = "/brokers/live/1-aa"
LEASE_MS = 300


class Session:
    """One znode; ``fail`` is what the next writes raise."""

    def __init__(self) -> None:
        self.session_id = 7
        self.owner: int | None = 7
        self.version = 0
        self.fail: list[Exception | None] = []
        self.hear: Callable[[SessionState], None] = lambda _: None

    def add_listener(self, hear: Callable[[SessionState], None]) -> None:
        self.hear = hear

    def remove_listener(self, _: Callable[[SessionState], None]) -> None:
        self.hear = lambda _: None

    async def set(self, path: str, data: bytes, *, version: int) -> ZnodeStat:
        if self.owner is None:
            raise NoNodeError(path)
        if version != self.version:
            raise BadVersionError(path)
        self.version += 1
        failure = self.fail.pop(0) if self.fail else None
        if failure is not None:
            raise failure
        return self.stat()

    async def get(self, path: str) -> tuple[bytes, ZnodeStat]:
        if self.owner is None:
            raise NoNodeError(path)
        return b"", self.stat()

    def stat(self) -> ZnodeStat:
        return ZnodeStat(self.version, 0, 0, self.owner or 0, 0)


class Kept:
    """A keeper that runs, and what it said."""

    def __init__(self) -> None:
        self.session = Session()
        self.gone = 0
        self.keeper = LeaseKeeper(
            cast("ZkSession", self.session), LoopClock(), lease_ms=LEASE_MS, on_gone=self._on_gone
        )

    def _on_gone(self) -> None:
        self.gone += 1

    async def until(self, come: Callable[[], bool]) -> None:
        await until(come)


def keeping(test: Callable[[Kept], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        kept = Kept()
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(kept.keeper.run())
            kept.keeper.made(PATH, b"{}", 0)
            await test(kept)
            running.cancel()

    run_virtual(main())


@pytest.mark.feature("Y03")
def test_it_holds_once_confirmed_and_is_renewed_again_and_again() -> None:
    async def test(kept: Kept) -> None:
        assert not kept.keeper.holds()
        await kept.until(lambda: kept.session.version >= 3)
        assert kept.keeper.holds()

    keeping(test)


@pytest.mark.feature("Y03")
def test_unconfirmed_it_runs_out_by_itself() -> None:
    async def test(kept: Kept) -> None:
        await kept.until(kept.keeper.holds)
        kept.session.fail = [UnknownOutcomeError("cut")] * 50
        await kept.until(lambda: not kept.keeper.holds())
        kept.session.fail = []
        await kept.until(kept.keeper.holds)
        assert kept.gone == 0

    keeping(test)


def test_a_lost_session_ends_it_at_once() -> None:
    async def test(kept: Kept) -> None:
        await kept.until(kept.keeper.holds)
        kept.session.hear(SessionState.LOST)
        assert not kept.keeper.holds()

    keeping(test)


def test_a_removed_znode_ends_it_and_is_told() -> None:
    async def test(kept: Kept) -> None:
        await kept.until(kept.keeper.holds)
        kept.session.owner = None
        await kept.until(lambda: kept.gone == 1)
        assert not kept.keeper.holds()
        kept.session.owner = 8  # of another session: not ours to write
        kept.keeper.made(PATH, b"{}", 0)
        await kept.until(lambda: kept.gone == 2)

    keeping(test)
