"""KeptStreams: exchanges of one request and one response over streams that are kept.

A message of a stream costs about half of what a call of gRPC does. A stream has one exchange at a
time, so that responses need no number and none waits for another; it is kept for the next one.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final

import grpc
import grpc.aio

from tidemark.runtime.channel_pool import CallFailedError, call_failures
from tidemark.runtime.streams import END_OF_STREAM

Stream = Any  # a grpc.aio.StreamStreamCall; the stubs' generics do not know EOF
Call = Callable[[], Awaitable[Any]]

_IDLE_MAX: Final = 16
"""Streams to one peer that are kept."""
_PEERS_MAX: Final = 64


@dataclass(slots=True)
class _Peer:
    """Streams of one stub that have no exchange now."""

    stub: Any
    idle: list[Stream] = field(default_factory=list)
    is_served: bool = True
    """False: the peer is of a release without the method."""

    def take(self, method: str) -> Stream:
        while self.idle:
            stream = self.idle.pop()
            if not stream.done():
                return stream
        return getattr(self.stub, method)()

    def end(self) -> None:
        for stream in self.idle:
            stream.cancel()

    def keep(self, stream: Stream) -> None:
        if len(self.idle) < _IDLE_MAX:
            self.idle.append(stream)
        else:
            stream.cancel()


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
        if not peer.is_served:
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
                peer.is_served = False
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
