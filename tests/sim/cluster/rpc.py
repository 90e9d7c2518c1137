"""gRPC between simulated hosts: the services' own clients, and whose methods they reach.

Controllers are called through ``SimControllerClient``, whose methods are their handlers by name;
brokers and coordinators through channels of ``SimChannelPool``, whose methods are those of the
servicers that their ``__main__`` puts on a server.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any, Final, Protocol

from controller.shell.node import ControllerNode
from controller.shell.rpc.table import HANDLERS
from tidemark.runtime.channel_pool import ChannelPool
from tidemark.runtime.controller_client import ControllerClient
from tidemark.runtime.zk_session import ZkSession

from sim.cluster.calls import Method, Served, StreamCall, ask
from sim.cluster.network import Host, Network
from sim.loop import SimLoop

V2: Final = 2


class Serves(Protocol):
    """A controller's process."""

    host: Host
    node: ControllerNode
    loop: SimLoop


class Hosts(Protocol):
    """A process with gRPC services."""

    loop: SimLoop

    @property
    def services(self) -> Mapping[str, Any]:
        """Servicers, by the full name of their service."""


class Directory(Protocol):
    """Who is behind an endpoint now."""

    network: Network

    def controller_at(self, endpoint: str) -> Host:
        """The machine."""

    def serving_on(self, host: Host) -> Serves | None:
        """A controller's process, if one runs."""

    def hosting_on(self, host: Host) -> Hosts | None:
        """A broker's or a coordinator's process, if one runs."""


class SimControllerClient(ControllerClient):
    """The services' own client, over the simulated network."""

    def __init__(
        self,
        session: ZkSession,
        directory: Directory,
        host: Host,
        dice: Callable[[], float],
    ) -> None:
        super().__init__(session, dice=dice)
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
            return await ask(self._method(method), request, timeout)

        return call

    def _method(self, name: str) -> Method:
        def find() -> Served | None:
            process = self._directory.serving_on(self._server)
            if process is None:
                return None
            return Served(process.loop, partial(HANDLERS[name], process.node))

        return Method(self._directory.network, self._client, self._server, name, find)

    def WatchMetadata(self) -> StreamCall:  # noqa: N802 - gRPC's own name
        """The feed."""
        return StreamCall(self._method("WatchMetadata"))


class SimGrpcServer:
    """A process's gRPC server: the methods that its ``register`` puts on it, while it serves."""

    def __init__(self, address: str, services: dict[str, Any]) -> None:
        """``services`` are those that others reach."""
        self.address = address
        self._reached = services
        self._registered: dict[str, Any] = {}

    def add_generic_rpc_handlers(self, _handlers: object) -> None:
        """What older servers look methods up by."""

    def add_registered_method_handlers(self, service: str, handlers: Mapping[str, Any]) -> None:
        """Called by the generated code, with the methods of a servicer."""
        methods = {
            name: one.stream_stream or one.unary_stream or one.stream_unary or one.unary_unary
            for name, one in handlers.items()
        }
        self._registered[service] = SimpleNamespace(**methods)

    async def set_serving(self, *, serving: bool) -> None:
        """Nobody asks the health service."""

    async def __aenter__(self) -> "SimGrpcServer":
        """Serve."""
        self._reached.update(self._registered)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._reached.clear()


def grpc_server_maker(address: str, services: dict[str, Any]) -> Callable[..., SimGrpcServer]:
    """What a process makes its server with, which is then reached at ``address``."""

    def make(_listen: str, _names: Sequence[str], register: Callable[[Any], None]) -> SimGrpcServer:
        server = SimGrpcServer(address, services)
        register(server)
        return server

    return make


class SimChannelPool(ChannelPool):
    """Channels from one host to the others."""

    def __init__(self, directory: Directory, host: Host) -> None:
        super().__init__()
        self._directory = directory
        self._host = host

    async def channel(self, endpoint: str) -> Any:
        """One is as good as another."""
        return SimChannel(self._directory, self._host, endpoint)


class SimChannel:
    """What generated stubs ask of a channel."""

    def __init__(self, directory: Directory, client: Host, endpoint: str) -> None:
        self._directory = directory
        self._client = client
        self._server = directory.network.hosts[endpoint.partition(":")[0]]

    def unary_unary(self, path: str, **_: object) -> Callable[..., Awaitable[Any]]:
        """A method of one request and one answer."""

        async def call(request: Any, timeout: float, metadata: object = None) -> Any:
            del metadata
            may_repeat = _may_repeat(path.rpartition("/")[2], request)
            return await ask(self._method(path, may_repeat=may_repeat), request, timeout)

        return call

    def stream_stream(self, path: str, **_: object) -> Callable[[], StreamCall]:
        """A method of streams."""
        return lambda: StreamCall(self._method(path))

    def _method(self, path: str, *, may_repeat: bool = True) -> Method:
        _, service, name = path.split("/")

        def find() -> Served | None:
            process = self._directory.hosting_on(self._server)
            if process is None or service not in process.services:
                return None
            return Served(process.loop, getattr(process.services[service], name))

        network = self._directory.network
        return Method(network, self._client, self._server, name, find, may_repeat)


def _may_repeat(method: str, request: Any) -> bool:
    """Before transactions v2 a request that comes again may be taken for one of the next
    transaction: what follows is said in docs/transactions.md, and nothing to be found here.
    """
    if method in ("AddPartitions", "EndTransaction"):
        return bool(request.transactions_v2)
    if method == "WriteMarkers":
        return all(one.transaction_version >= V2 for one in request.markers)
    return method != "AddOffsets"
