"""Kept streams: exchanges of one request and one response over streams that are kept. KeptStreams
is the caller's end, ``answer_each`` the server's.

A message of a stream costs about half of what a call of gRPC does. A stream has one exchange at a
time, so that responses need no number and none waits for another; it is kept for the next one, and
ends when there is none for a while.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Final

import grpc
import grpc.aio

from tidemark.runtime.channel_pool import CallFailedError, call_failures
from tidemark.runtime.streams import END_OF_STREAM, StreamContext, receive, send, until_gone

Stream = Any  # a grpc.aio.StreamStreamCall; the stubs' generics do not know EOF
Call = Callable[[], Awaitable[Any]]
Answer = Callable[[Any, Any], Awaitable[Any]]
"""Handler of the call that does the same: its request and its context."""

_IDLE_MAX: Final = 64
"""Streams to one peer that are kept."""
_IDLE_S_MAX: Final = 30.0
"""Time for which a stream without an exchange is kept."""
_PEERS_MAX: Final = 64
_CALLS: Final = 1_000
"""Calls to a peer without the method, before it is tried again: the peer may be upgraded by then.
"""


@dataclass(slots=True)
class _Peer:
    """Streams of one stub that have no exchange now."""

    stub: Any
    idle: list[tuple[float, Stream]] = field(default_factory=list)
    """The loop's time since which each is idle. The last one is taken first."""
    timer: asyncio.TimerHandle | None = None
    calls_left: int = 0
    """Calls to make before the next stream: the peer is of a release without the method."""

    def take(self, method: str) -> Stream:
        while self.idle:
            _, stream = self.idle.pop()
            if not stream.done():
                return stream
        return getattr(self.stub, method)()

    def end(self) -> None:
        for _, stream in self.idle:
            stream.cancel()
        if self.timer is not None:
            self.timer.cancel()

    def keep(self, stream: Stream) -> None:
        if len(self.idle) >= _IDLE_MAX:
            stream.cancel()
            return
        loop = asyncio.get_running_loop()
        self.idle.append((loop.time(), stream))
        if self.timer is None:
            self.timer = loop.call_later(_IDLE_S_MAX, self._trim, loop)

    def _trim(self, loop: asyncio.AbstractEventLoop) -> None:
        """End the streams that a crowd has left behind."""
        now, self.timer = loop.time(), None
        while self.idle and now - self.idle[0][0] >= _IDLE_S_MAX:
            self.idle.pop(0)[1].cancel()
        if self.idle:
            self.timer = loop.call_at(self.idle[0][0] + _IDLE_S_MAX, self._trim, loop)


class KeptStreams:
    """Streams of one method to any peer."""

    def __init__(self, method: str) -> None:
        self._method = method
        self._peers: dict[str, _Peer] = {}

    async def exchange(self, endpoint: str, stub: Any, request: Any, call: Call) -> Any:
        """Return the response of a peer, to which ``stub`` is. If its stream fails, or has ended,
        that of ``call``, which makes the request without one: it may be delivered twice.

        Raises CallFailedError, as ``call`` does. Cancelling it ends the stream.
        """
        peer = self._peers.get(endpoint)
        if peer is None or peer.stub is not stub:
            peer = self._replace(endpoint, stub)
        if peer.calls_left:
            peer.calls_left -= 1
            return await call()
        stream = peer.take(self._method)
        try:
            with call_failures(endpoint):
                await stream.write(request)
                answer = await stream.read()
        except CallFailedError:
            # A stream fails in many ways when its peer has gone; the call has the right one.
            if not stream.done():
                stream.cancel()
            elif await stream.code() is grpc.StatusCode.UNIMPLEMENTED:
                peer.calls_left = _CALLS
            return await call()
        except BaseException:
            stream.cancel()  # its answer would be taken for that of another request
            raise
        if answer is END_OF_STREAM:
            return await call()
        if self._peers.get(endpoint) is peer:
            peer.keep(stream)
        else:
            stream.cancel()
        return answer

    def _replace(self, endpoint: str, stub: Any) -> _Peer:
        """Return the streams of a new channel, without those of the channel before."""
        before = self._peers.pop(endpoint, None)
        if before is not None:
            before.end()
        while len(self._peers) >= _PEERS_MAX:
            self._peers.pop(next(iter(self._peers))).end()
        made = self._peers[endpoint] = _Peer(stub)
        return made


async def answer_each(answer: Answer, context: StreamContext, drained: asyncio.Event) -> None:
    """Answer each request of a stream in its turn, until the caller ends the stream or this server
    has drained: a stream that nothing uses would hold it up.
    """
    await until_gone(_serve_until(drained, _answer_each(answer, context)))


async def _answer_each(answer: Answer, context: StreamContext) -> None:
    while (request := await receive(context)) is not END_OF_STREAM:
        await send(context, await answer(request, context))


async def _serve_until(drained: asyncio.Event, serve: Coroutine[Any, Any, None]) -> None:
    async with asyncio.TaskGroup() as tasks:
        stopped = tasks.create_task(drained.wait(), name="stream-stopped")
        serving = tasks.create_task(serve, name="stream-answers")
        await asyncio.wait({stopped, serving}, return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        serving.cancel()
