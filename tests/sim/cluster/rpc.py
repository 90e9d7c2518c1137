"""gRPC between simulated hosts: the services' own handlers and clients, without channels.

A unary call is one message there and one back: late, overtaken, taken twice, or lost. The metadata
feed is a stream over a connection.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final, Protocol

import grpc.aio
from controller.shell.node import ControllerNode
from controller.shell.rpc import (
    alter_partitions,
    alter_reassignments,
    controlled_shutdown,
    elect_leaders,
    register_broker,
    watch_metadata,
)
from tidemark.runtime.controller_client import ControllerClient
from tidemark.runtime.metadata_follower import END_OF_STREAM
from tidemark.runtime.zk_session import ZkSession

from sim.cluster.network import Host, Network, Wire
from sim.loop import SimLoop

TWICE: Final = 0.02
"""How likely a request is taken twice: by a retry that nobody wanted."""

Handler = Callable[[ControllerNode, Any, Any], Awaitable[Any]]
HANDLERS: Final[dict[str, Handler]] = {
    "RegisterBroker": register_broker.handle,
    "AlterPartitions": alter_partitions.handle,
    "ControlledShutdown": controlled_shutdown.handle,
    "ElectLeaders": elect_leaders.handle,
    "AlterReassignments": alter_reassignments.handle,
}


class Serves(Protocol):
    """A controller's process."""

    host: Host
    node: ControllerNode
    loop: SimLoop


class Directory(Protocol):
    """Who is behind an endpoint now."""

    network: Network

    def controller_at(self, endpoint: str) -> Host:
        """The machine."""

    def serving_on(self, host: Host) -> Serves | None:
        """Its process, if one runs."""


class Context:
    """What handlers need of a servicer context."""

    def __init__(self, timeout_s: float | None, send: Callable[[Any], None] | None = None) -> None:
        self._timeout_s = timeout_s
        self._send = send

    def time_remaining(self) -> float | None:
        """Of the call, at its arrival."""
        return self._timeout_s

    async def write(self, message: Any) -> None:
        """The next of a stream."""
        assert self._send is not None, "a unary call streams nothing"
        self._send(message)


def rpc_error(code: grpc.StatusCode, details: str) -> grpc.aio.AioRpcError:
    """As a channel raises it."""
    none = grpc.aio.Metadata()
    return grpc.aio.AioRpcError(code, none, none, details=details, debug_error_string=details)


class SimControllerClient(ControllerClient):
    """The broker's own client, over the simulated network."""

    def __init__(self, session: ZkSession, directory: Directory, host: Host) -> None:
        super().__init__(session)
        self._directory = directory
        self._host = host

    def stub(self, endpoint: str) -> "SimStub":
        """No channel is needed."""
        return SimStub(self._directory, self._host, endpoint)


class SimStub:
    """The generated stub's methods."""

    def __init__(self, directory: Directory, client: Host, endpoint: str) -> None:
        self._directory = directory
        self._client = client
        self._server = directory.controller_at(endpoint)

    def __getattr__(self, method: str) -> Callable[..., Awaitable[Any]]:
        async def call(request: Any, timeout: float) -> Any:
            return await self._unary(method, request, timeout)

        return call

    async def _unary(self, method: str, request: Any, timeout_s: float) -> Any:
        answered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        network, client, server = self._directory.network, self._client, self._server
        if not server.is_up:
            self._say_refused(answered, client.life)
        else:
            deliver = self._delivery(method, request, timeout_s, answered)
            for _ in range(2 if network.dice.chance(TWICE) else 1):
                network.post_again(
                    client,
                    server,
                    deliver,
                    life=server.life,
                    give_up=lambda: _refuse(answered),
                )
        ticket = network.expect(client, server, lambda: _refuse(answered))
        try:
            async with asyncio.timeout(timeout_s):
                return await answered
        except TimeoutError:
            raise rpc_error(grpc.StatusCode.DEADLINE_EXCEEDED, method) from None
        finally:
            network.settle(ticket)

    def _say_refused(self, answered: "asyncio.Future[Any]", life: int) -> None:
        def refuse() -> None:
            _refuse(answered)

        network = self._directory.network
        network.post_again(self._server, self._client, refuse, life=life, give_up=refuse)

    def _delivery(
        self, method: str, request: Any, timeout_s: float, answered: "asyncio.Future[Any]"
    ) -> Callable[[], None]:
        network, client, server = self._directory.network, self._client, self._server
        life = client.life

        def answer(response: Any) -> None:
            network.post_again(
                server,
                client,
                lambda: None if answered.done() else answered.set_result(response),
                life=life,
                give_up=lambda: _refuse(answered),
            )

        def deliver() -> None:
            process = self._directory.serving_on(server)
            if process is None:
                self._say_refused(answered, life)
                return

            async def handle() -> None:
                assert process is not None
                answer(await HANDLERS[method](process.node, request, Context(timeout_s)))

            process.loop.create_task(handle())

        return deliver

    def WatchMetadata(self) -> "FeedCall":  # noqa: N802 - gRPC's own name
        """The feed."""
        return FeedCall(self._directory, self._client, self._server)


def _refuse(answered: "asyncio.Future[Any]") -> None:
    if not answered.done():
        answered.set_exception(rpc_error(grpc.StatusCode.UNAVAILABLE, "connection refused"))


class _Stream:
    """What has come and was not read yet."""

    def __init__(self) -> None:
        self._items: deque[Any] = deque()
        self._news: asyncio.Future[None] | None = None
        self.is_over = False

    def put(self, item: Any) -> None:
        """One more."""
        self._items.append(item)
        self._wake()

    def end(self) -> None:
        """No more will come."""
        self.is_over = True
        self._wake()

    def _wake(self) -> None:
        if self._news is not None and not self._news.done():
            self._news.set_result(None)

    async def get(self) -> Any | None:
        """The next; None at the end."""
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
        """All, until the end."""
        while (item := await self.get()) is not None:
            yield item


class FeedCall:
    """The subscriber's end of a feed stream."""

    def __init__(self, directory: Directory, client: Host, server: Host) -> None:
        self._directory = directory
        self._client = client
        self._server = server
        self._updates = _Stream()
        self._requests = _Stream()
        self._wire: Wire | None = None

    async def write(self, request: Any) -> None:
        """The first opens the stream. Raises AioRpcError, InvalidStateError."""
        if self._wire is None:
            await self._open()
        assert self._wire is not None
        if self._wire.is_broken(self._client):
            raise asyncio.InvalidStateError("the stream is over")
        self._wire.send(self._client, lambda: self._requests.put(request))

    async def read(self) -> Any:
        """The next update; END_OF_STREAM when the server ended it. Raises AioRpcError."""
        update = await self._updates.get()
        if update is None:
            raise rpc_error(grpc.StatusCode.UNAVAILABLE, "connection reset")
        return update

    def cancel(self) -> None:
        """This end goes."""
        if self._wire is not None:
            self._wire.break_off(self._client)

    async def _open(self) -> None:
        network = self._directory.network
        made: asyncio.Future[Wire] = asyncio.get_running_loop().create_future()
        life = self._client.life

        def answer(action: Callable[[], None]) -> None:
            network.post(self._server, self._client, action, life=life)

        def knock() -> None:
            process = self._directory.serving_on(self._server)
            if self._client.life != life:
                return
            if process is None:
                answer(lambda: _refuse(made))
                return
            wire = network.open_wire(self._client, self._server)
            self._serve(process, wire)
            answer(lambda: None if made.done() else made.set_result(wire))

        if self._server.is_up:
            network.post(self._client, self._server, knock)
        else:
            network.post(self._client, self._client, lambda: _refuse(made))
        try:
            async with asyncio.timeout(1.0):
                self._wire = await made
        except TimeoutError:
            raise rpc_error(grpc.StatusCode.UNAVAILABLE, "connection timed out") from None
        self._wire.on_broken[self._client] = self._updates.end
        if self._wire.is_broken(self._client):
            self._updates.end()

    def _serve(self, process: Serves, wire: Wire) -> None:
        server = self._server

        def send(update: Any) -> None:
            wire.send(server, lambda: self._updates.put(update))

        async def handle() -> None:
            await watch_metadata.handle(
                process.node,
                self._requests.items(),
                Context(None, send),  # type: ignore[arg-type]
            )
            send(END_OF_STREAM)

        task = process.loop.create_task(handle())

        def broken() -> None:
            self._requests.end()
            task.cancel()

        wire.on_broken[server] = broken
