"""StreamWrites: writes of state, one after the other on a stream that is kept."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from tidemark.runtime.coordinator.calls import Context
from tidemark.runtime.streams import END_OF_STREAM, receive, send, until_gone

Write = Callable[[Any, Context], Awaitable[Any]]
"""Handler of the call WriteStates."""


async def handle(write: Write, context: Context, drained: asyncio.Event) -> None:
    """Answer each write in its turn, until the caller ends the stream or this replica stops: a
    stream that no write uses would hold it up.
    """
    await until_gone(_serve_until(drained, _serve(write, context)))


async def _serve(write: Write, context: Context) -> None:
    while (request := await receive(context)) is not END_OF_STREAM:
        await send(context, await write(request, context))


async def _serve_until(drained: asyncio.Event, serve: Any) -> None:
    async with asyncio.TaskGroup() as tasks:
        stopped = tasks.create_task(drained.wait(), name="stream-stopped")
        serving = tasks.create_task(serve, name="stream-writes")
        await asyncio.wait({stopped, serving}, return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        serving.cancel()
