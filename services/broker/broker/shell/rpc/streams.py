"""What the streams of PartitionStore share: who calls, the end of a stream, and the little of
gRPC's context they use.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any, Final, NamedTuple, Protocol

import grpc.aio
from tidemark.runtime.telemetry import REQUEST_ID

END_OF_STREAM: Final[Any] = grpc.aio.EOF  # type: ignore[attr-defined]  # the stubs lack it

ANONYMOUS: Final = "User:ANONYMOUS"
"""Everybody's principal until callers are authenticated; the name is Kafka's."""


class PeerGoneError(Exception):
    """The other end cancelled, its connection is gone, or our server has stopped: there is nobody
    to answer.
    """


class Caller(NamedTuple):
    """Who is at the other end of a stream."""

    principal: str
    peer: str
    request_id: str


class StreamContext(Protocol):
    """Reads give END_OF_STREAM after the last request; a write waits until the peer takes more."""

    async def read(self) -> Any:
        """The next request."""

    async def write(self, message: Any) -> None:
        """Send one answer. At most one write at a time."""


def caller_of(context: "grpc.aio.ServicerContext[Any, Any]") -> Caller:
    """Who calls, from the RPC's context."""
    return Caller(ANONYMOUS, context.peer(), REQUEST_ID.get())


async def receive(context: StreamContext) -> Any:
    """The next request, or END_OF_STREAM. Raises PeerGoneError.

    A server that has stopped tells it to a handler that reads as an error of a private kind.
    """
    try:
        return await context.read()
    except grpc.aio.UsageError:
        raise
    except grpc.aio.BaseError as failure:
        raise PeerGoneError from failure


async def send(context: StreamContext, message: Any) -> None:
    """Write one answer. Raises PeerGoneError.

    gRPC tells a write of a peer that went as an internal error, if it gets there before the handler
    is cancelled.
    """
    try:
        await context.write(message)
    except grpc.aio.InternalError as failure:
        raise PeerGoneError from failure


async def until_gone(run: Coroutine[Any, Any, None]) -> None:
    """Run a stream to its end; a peer that went ends it as the cancellation does that follows."""
    try:
        await run
    except* PeerGoneError:
        pass
    else:
        return
    raise asyncio.CancelledError
