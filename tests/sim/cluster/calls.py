"""Calls between simulated hosts with the semantics of gRPC, without channels: unary ones and
streams.

A unary call is one message there and one back: late, overtaken, delivered twice, or lost. A stream
is a connection: in order, until one end dies or closes.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final, NamedTuple

import grpc
import grpc.aio

from sim.cluster.network import Host, Network, Wire
from sim.loop import SimLoop

TWICE: Final = 0.02
"""Probability that a request is delivered twice, as by a transparent retry."""
OPEN_S: Final = 1.0
END_OF_STREAM: Final[Any] = grpc.aio.EOF  # type: ignore[attr-defined]  # the stubs lack it

Handler = Callable[[Any, Any], Awaitable[Any]]
"""Function of a request and its context; that of a stream takes the iterator of its requests."""


class Served(NamedTuple):
    """A method of the process that runs on a host now."""

    loop: SimLoop
    handle: Handler


class Method(NamedTuple):
    """One method, from one host to another."""

    network: Network
    client: Host
    server: Host
    name: str
    find: Callable[[], Served | None]
    """Returns None if no process serves there now."""
    may_repeat: bool = True


class Context:
    """The part of a servicer context that handlers need."""

    def __init__(
        self,
        timeout_s: float | None,
        send: Callable[[Any], None] | None = None,
        requests: "Stream | None" = None,
        *,
        peer: str = "",
    ) -> None:
        self._timeout_s = timeout_s
        self._send = send
        self._requests = requests
        self._peer = peer

    def time_remaining(self) -> float | None:
        """Return the time left to the call, as of its arrival."""
        return self._timeout_s

    def peer(self) -> str:
        """Return the caller's address."""
        return self._peer

    async def write(self, message: Any) -> None:
        """Send the next response of a stream."""
        assert self._send is not None, "a unary call streams nothing"
        self._send(message)

    async def read(self) -> Any:
        """Return the next request of a stream."""
        assert self._requests is not None, "a unary call streams nothing"
        request = await self._requests.get()
        return END_OF_STREAM if request is None else request


def rpc_error(code: grpc.StatusCode, details: str) -> grpc.aio.AioRpcError:
    """Return the error that a channel raises."""
    none = grpc.aio.Metadata()
    return grpc.aio.AioRpcError(code, none, none, details=details, debug_error_string=details)


def refuse(answered: "asyncio.Future[Any]") -> None:
    """Fail the call as one that no server has handled, as far as can be known."""
    if not answered.done():
        answered.set_exception(rpc_error(grpc.StatusCode.UNAVAILABLE, "connection refused"))


async def ask(method: Method, request: Any, timeout_s: float) -> Any:
    """Make a unary call. Raises AioRpcError."""
    answered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    network, client, server = method.network, method.client, method.server
    if not server.is_up:
        _say_refused(method, answered, client.life)
    else:
        deliver = _delivery(method, request, timeout_s, answered)
        is_repeated = network.dice.chance(TWICE) and method.may_repeat
        for _ in range(2 if is_repeated else 1):
            network.post_again(
                client, server, deliver, life=server.life, give_up=lambda: refuse(answered)
            )
    ticket = network.expect(client, server, lambda: refuse(answered))
    try:
        async with asyncio.timeout(timeout_s):
            return await answered
    except TimeoutError:
        raise rpc_error(grpc.StatusCode.DEADLINE_EXCEEDED, method.name) from None
    finally:
        network.settle(ticket)


def _say_refused(method: Method, answered: "asyncio.Future[Any]", life: int) -> None:
    def say() -> None:
        refuse(answered)

    method.network.post_again(method.server, method.client, say, life=life, give_up=say)


def _delivery(
    method: Method, request: Any, timeout_s: float, answered: "asyncio.Future[Any]"
) -> Callable[[], None]:
    network, client, server = method.network, method.client, method.server
    life = client.life

    def answer(response: Any) -> None:
        network.post_again(
            server,
            client,
            lambda: None if answered.done() else answered.set_result(response),
            life=life,
            give_up=lambda: refuse(answered),
        )

    def deliver() -> None:
        served = method.find()
        if served is None:
            _say_refused(method, answered, life)
            return

        async def handle() -> None:
            assert served is not None
            answer(await served.handle(request, Context(timeout_s, peer=client.name)))

        served.loop.create_task(handle())

    return deliver


class Stream:
    """Messages that have arrived and have not been read."""

    def __init__(self) -> None:
        self._items: deque[Any] = deque()
        self._news: asyncio.Future[None] | None = None
        self.is_over = False

    def put(self, item: Any) -> None:
        """Add one message."""
        self._items.append(item)
        self._wake()

    def end(self) -> None:
        """End the stream."""
        self.is_over = True
        self._wake()

    def _wake(self) -> None:
        if self._news is not None and not self._news.done():
            self._news.set_result(None)

    async def get(self) -> Any | None:
        """Return the next message; None at the end."""
        while not self._items:
            if self.is_over:
                return None
            self._news = asyncio.get_running_loop().create_future()
            try:
                await self._news
            finally:
                self._news = None
        return self._items.popleft()

    async def items(self) -> AsyncIterator[Any]:
        """Yield all messages, until the end."""
        while (item := await self.get()) is not None:
            yield item


class StreamCall:
    """The caller's end of a stream: the used part of grpc.aio's StreamStreamCall."""

    def __init__(self, method: Method) -> None:
        self._method = method
        self._answers = Stream()
        self._requests = Stream()
        self._wire: Wire | None = None
        self._is_cancelled = False

    def done(self) -> bool:
        """Return True if the stream has ended."""
        is_broken = self._wire is not None and self._wire.is_broken(self._method.client)
        return self._is_cancelled or is_broken

    async def code(self) -> grpc.StatusCode:
        """Return the status of a stream that has ended."""
        return grpc.StatusCode.UNAVAILABLE

    async def wait_for_connection(self) -> None:
        """Wait until the server is reached. Raises AioRpcError."""
        if self._wire is None:
            await self._open()

    async def write(self, request: Any) -> None:
        """Send a request; the first opens the stream. Raises AioRpcError, InvalidStateError."""
        await self.wait_for_connection()
        assert self._wire is not None
        if self.done():
            raise asyncio.InvalidStateError("the stream is over")
        self._wire.send(self._method.client, lambda: self._requests.put(request))

    async def read(self) -> Any:
        """Return the next response; END_OF_STREAM after the last. Raises AioRpcError."""
        answer = await self._answers.get()
        if answer is None:
            raise rpc_error(grpc.StatusCode.UNAVAILABLE, "connection reset")
        return answer

    def cancel(self) -> None:
        """Close this end. Messages under way may still arrive."""
        self._is_cancelled = True
        if self._wire is not None:
            self._wire.break_off(self._method.client)

    async def _open(self) -> None:
        network, client, server = self._method.network, self._method.client, self._method.server
        made: asyncio.Future[Wire] = asyncio.get_running_loop().create_future()
        life = client.life

        def answer(action: Callable[[], None]) -> None:
            network.post(server, client, action, life=life)

        def knock() -> None:
            served = self._method.find()
            if client.life != life:
                return
            if served is None:
                answer(lambda: refuse(made))
                return
            wire = network.open_wire(client, server)
            self._serve(served, wire)
            answer(lambda: None if made.done() else made.set_result(wire))

        if server.is_up:
            network.post(client, server, knock)
        else:
            network.post(client, client, lambda: refuse(made))
        try:
            async with asyncio.timeout(OPEN_S):
                self._wire = await made
        except TimeoutError:
            raise rpc_error(grpc.StatusCode.UNAVAILABLE, "connection timed out") from None
        self._wire.on_broken[client] = self._answers.end
        if self._wire.is_broken(client):
            self._answers.end()

    def _serve(self, served: Served, wire: Wire) -> None:
        server = self._method.server

        def send(answer: Any) -> None:
            wire.send(server, lambda: self._answers.put(answer))

        context = Context(None, send, self._requests, peer=self._method.client.name)

        async def handle() -> None:
            await served.handle(self._requests.items(), context)
            send(END_OF_STREAM)

        task = served.loop.create_task(handle())

        def broken() -> None:
            self._requests.end()
            task.cancel()

        wire.on_broken[server] = broken


class UnknownStream:
    """The caller's end of a stream whose method the server does not know."""

    def done(self) -> bool:
        """Return True: it has ended."""
        return True

    async def code(self) -> grpc.StatusCode:
        """Return the status."""
        return grpc.StatusCode.UNIMPLEMENTED

    async def write(self, request: Any) -> None:
        """Raise AioRpcError."""
        del request
        raise rpc_error(grpc.StatusCode.UNIMPLEMENTED, "no such method")
