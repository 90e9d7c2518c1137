"""Event streams: how many are open, and how they end."""

import asyncio
from collections.abc import MutableMapping
from types import SimpleNamespace
from typing import Any

from controller.rest.watching import _HEARTBEAT_S, STREAM_S_MAX, _follow, _stream
from virtual_time import run_virtual

SCOPE = {"type": "http", "asgi": {"spec_version": "2.3"}}


class Clients:
    """Shared parts of an administration, as far as event streams need them."""

    def __init__(self) -> None:
        self.shared = SimpleNamespace(streams=0, limits=SimpleNamespace(streams_max=1))
        log = SimpleNamespace(last_id=0, after=lambda _: [], wait=asyncio.Event().wait)
        self.may_see = True
        self.ctx: Any = SimpleNamespace(
            shared=self.shared, events=log, may=lambda _operation: self.may_see
        )

    async def follow(self, *, leaves_at_once: bool) -> int:
        """Follow the events, and leave. Returns the number of open streams before the end."""
        begun, open_streams = asyncio.Event(), 0

        async def receive() -> MutableMapping[str, Any]:
            nonlocal open_streams
            if not leaves_at_once:
                await begun.wait()
                open_streams = self.shared.streams
            return {"type": "http.disconnect"}

        async def send(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.body":
                begun.set()
            await asyncio.sleep(0)

        await _stream(self.ctx, 0)(dict(SCOPE), receive, send)
        return open_streams


def test_a_stream_counts_until_its_client_leaves() -> None:
    async def scenario() -> None:
        clients = Clients()
        assert await clients.follow(leaves_at_once=False) == 1
        assert clients.shared.streams == 0

    asyncio.run(scenario())


def test_a_client_that_leaves_before_the_first_event_holds_no_stream() -> None:
    async def scenario() -> None:
        clients = Clients()
        for _ in range(3):
            await clients.follow(leaves_at_once=True)
        assert clients.shared.streams == 0

    asyncio.run(scenario())


def test_a_stream_ends_so_that_its_client_logs_in_again() -> None:
    async def scenario() -> None:
        retry, *heartbeats = [part async for part in _follow(Clients().ctx, 0)]
        assert retry.startswith("retry: ")
        assert len(heartbeats) == STREAM_S_MAX / _HEARTBEAT_S

    run_virtual(scenario())


def test_a_stream_ends_with_the_right_to_see_it() -> None:
    async def scenario() -> None:
        clients = Clients()
        clients.ctx.events.after = lambda _: [SimpleNamespace()]  # would fail if it were sent
        stream = _follow(clients.ctx, 0)
        await anext(stream)
        clients.may_see = False
        assert [part async for part in stream] == []

    run_virtual(scenario())
