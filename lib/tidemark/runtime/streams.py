"""Common parts of handlers of gRPC's streams: the end of a stream, and what they use of gRPC's
context.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any, Final, Protocol

import grpc.aio

END_OF_STREAM: Final[Any] = grpc.aio.EOF  # type: ignore[attr-defined]  # the stubs lack it


class PeerGoneError(Exception):
    """The peer cancelled, its connection is gone, or this server has stopped: no answer can be
    sent.
    """


class StreamContext(Protocol):
    """Stream of one RPC. Reads return END_OF_STREAM after the last request; a write waits until the
    peer takes more.
    """

    async def read(self) -> Any:
        """Return the next request."""

    async def write(self, message: Any) -> None:
        """Send one answer. At most one write at a time."""


async def receive(context: StreamContext) -> Any:
    """Return the next request, or END_OF_STREAM. Raises PeerGoneError.

    gRPC reports a stopped server to a reading handler as an error of a private kind.
    """
    try:
        return await context.read()
    except grpc.aio.UsageError:
        raise
    except grpc.aio.BaseError as failure:
        raise PeerGoneError from failure


async def send(context: StreamContext, message: Any) -> None:
    """Write one answer. Raises PeerGoneError.

    gRPC reports a peer that is gone to a writing handler as an internal error, if the write comes
    before the handler's cancellation.
    """
    try:
        await context.write(message)
    except grpc.aio.InternalError as failure:
        raise PeerGoneError from failure


async def until_gone(run: Coroutine[Any, Any, None]) -> None:
    """Run a stream to its end. A peer that is gone ends it as the cancellation does that
    follows.
    """
    try:
        await run
    except* PeerGoneError:
        pass
    else:
        return
    raise asyncio.CancelledError
