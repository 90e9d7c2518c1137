"""``ZkSession`` over a simulated one, for shells that run on ``SimLoop``."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from tidemark.runtime.zk_session import (
    Create,
    Delete,
    NodeExistsError,
    OnChange,
    Op,
    SessionState,
    SetData,
    ZkSession,
    ZkUnavailableError,
    ZnodeStat,
)

from sim.zk_requests import Answer, Children, Exists, Get, Multi, OnWatch, Request, Sync
from sim.zookeeper import SimSession


class SimZkSession(ZkSession):
    """Session with the calls, states and errors of ``ZkSession``; the chroot is '/'."""

    def __init__(self, session: SimSession) -> None:
        self.connect = "sim"
        self.session_timeout_ms = session.session_timeout_ms
        self._sim = session

    @property
    def state(self) -> SessionState:
        """State at the last change."""
        return self._sim.state

    @property
    def session_id(self) -> int:
        """Session id as in ``ZnodeStat.owner_session``."""
        return self._sim.session_id

    def add_listener(self, on_state: Callable[[SessionState], None]) -> None:
        """Call ``on_state`` with every change of state."""
        self._sim.add_listener(on_state)

    def remove_listener(self, on_state: Callable[[SessionState], None]) -> None:
        """Stop the calls of ``on_state``."""
        self._sim.remove_listener(on_state)

    async def start(self, timeout_s: float = 15.0) -> None:
        """Wait for the connection. Raises ZkUnavailableError."""
        try:
            async with asyncio.timeout(timeout_s):
                await self.wait_connected()
        except TimeoutError:
            raise ZkUnavailableError(f"no ZooKeeper server answered in {timeout_s:.0f} s") from None

    async def stop(self) -> None:
        """End the session."""
        ended = asyncio.Event()
        self._sim.stop(ended.set)
        await ended.wait()

    async def wait_connected(self) -> None:
        """Return once the state is CONNECTED."""
        while self.state is not SessionState.CONNECTED:
            changed = asyncio.Event()

            def on_state(_: SessionState, changed: asyncio.Event = changed) -> None:
                changed.set()

            self.add_listener(on_state)
            try:
                await changed.wait()
            finally:
                self.remove_listener(on_state)

    async def _ask(self, request: Request) -> Any:
        answered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def on_done(answer: Answer) -> None:
            if answered.done():
                return
            if answer.error is not None:
                answered.set_exception(answer.error)
            else:
                answered.set_result(answer.value)

        self._sim.submit(request, on_done)
        return await answered

    async def get(self, path: str, on_change: OnChange | None = None) -> tuple[bytes, ZnodeStat]:
        """See ZkSession."""
        data, stat = await self._ask(Get(path, _watch(on_change)))
        return data, stat

    async def exists(self, path: str, on_change: OnChange | None = None) -> ZnodeStat | None:
        """See ZkSession."""
        stat: ZnodeStat | None = await self._ask(Exists(path, _watch(on_change)))
        return stat

    async def children(
        self, path: str, on_change: OnChange | None = None
    ) -> tuple[list[str], ZnodeStat]:
        """See ZkSession."""
        names, stat = await self._ask(Children(path, _watch(on_change)))
        return names, stat

    async def get_many(self, paths: Sequence[str]) -> list[bytes | None]:
        """See ZkSession; one request after another."""
        found: list[bytes | None] = []
        for path in paths:
            exists = await self._ask(Exists(path))
            found.append(None if exists is None else (await self.get(path))[0])
        return found

    async def sync(self, path: str) -> None:
        """See ZkSession."""
        await self._ask(Sync(path))

    async def create(self, path: str, data: bytes = b"", *, ephemeral: bool = False) -> None:
        """See ZkSession."""
        await self._ask(Create(path, data, ephemeral))

    async def set(self, path: str, data: bytes, *, version: int = -1) -> ZnodeStat:
        """See ZkSession."""
        stat: ZnodeStat = await self._ask(SetData(path, data, version))
        return stat

    async def delete(self, path: str, *, version: int = -1) -> None:
        """See ZkSession."""
        await self._ask(Delete(path, version))

    async def ensure_path(self, path: str) -> None:
        """See ZkSession."""
        names = [name for name in path.split("/") if name]
        for depth in range(1, len(names) + 1):
            parent = "/" + "/".join(names[:depth])
            try:
                await self.create(parent)
            except NodeExistsError:
                continue

    async def multi(self, ops: Sequence[Op]) -> list[ZnodeStat | None]:
        """See ZkSession."""
        stats: list[ZnodeStat | None] = await self._ask(Multi(tuple(ops)))
        return stats


def _watch(on_change: OnChange | None) -> OnWatch | None:
    return None if on_change is None else lambda _event: on_change()
