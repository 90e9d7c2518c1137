"""Event streams: how many are open."""

import asyncio
from collections.abc import MutableMapping
from types import SimpleNamespace
from typing import Any

from controller.rest.watching import _stream

SCOPE = {"type": "http", "asgi": {"spec_version": "2.3"}}


class Clients:
    """Shared parts of an administration, as far as event streams need them."""

    def __init__(self) -> None:
        self.shared = SimpleNamespace(streams=0, limits=SimpleNamespace(streams_max=1))
        log = SimpleNamespace(last_id=0, after=lambda _: [], wait=asyncio.Event().wait)
        self.ctx: Any = SimpleNamespace(shared=self.shared, events=log)

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
