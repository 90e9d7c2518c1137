"""gRPC between simulated hosts: the services' own clients, and the servicers that they reach.

Controllers are called through ``SimControllerClient``, whose methods are their handlers by name;
brokers and coordinators through channels of ``SimChannelPool``, whose methods are those of the
servicers that the services put on a server.
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

from sim.cluster.calls import Method, Served, StreamCall, UnknownStream, ask
from sim.cluster.network import Host, Network
from sim.loop import SimLoop

V2: Final = 2
KEPT: Final = "Stream"
"""Beginning of the methods of streams that are kept."""
OLDER: Final = 0.5
"""Probability that a server is of a release without such a method."""


class Serves(Protocol):
    """Process of a controller."""

    host: Host
    node: ControllerNode
    loop: SimLoop


class Hosts(Protocol):
    """Process with gRPC services."""

    loop: SimLoop

    @property
    def services(self) -> Mapping[str, Any]:
        """Servicers, by the full name of their service."""


class Directory(Protocol):
    """Lookup of the process behind an endpoint."""

    network: Network

    def controller_at(self, endpoint: str) -> Host:
        """Return the machine."""

    def serving_on(self, host: Host) -> Serves | None:
        """Return the controller's process, if one runs."""

    def hosting_on(self, host: Host) -> Hosts | None:
        """Return the broker's or the coordinator's process, if one runs."""


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
        """Return a stub without a channel."""
        return SimStub(self._directory, self._host, endpoint)


class SimStub:
    """Methods of the generated stub."""

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
        """Open the feed."""
        return StreamCall(self._method("WatchMetadata"))


class SimGrpcServer:
    """gRPC server of a process: it has the methods that ``register`` adds, while it serves."""

    def __init__(self, address: str, services: dict[str, Any]) -> None:
        """``services`` is the table through which callers reach them."""
        self.address = address
        self._reached = services
        self._registered: dict[str, Any] = {}

    def add_generic_rpc_handlers(self, _handlers: object) -> None:
        """Do nothing: only older servers look up methods here."""

    def add_registered_method_handlers(self, service: str, handlers: Mapping[str, Any]) -> None:
        """Take the methods of a servicer from the generated code."""
        methods = {
            name: one.stream_stream or one.unary_stream or one.stream_unary or one.unary_unary
            for name, one in handlers.items()
        }
        self._registered[service] = SimpleNamespace(**methods)

    async def set_serving(self, *, serving: bool) -> None:
        """Do nothing: the health service has no caller here."""

    async def __aenter__(self) -> "SimGrpcServer":
        """Serve."""
        self._reached.update(self._registered)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._reached.clear()


def grpc_server_maker(address: str, services: dict[str, Any]) -> Callable[..., SimGrpcServer]:
    """Return the function with which a process makes its server, reached at ``address``."""

    def make(
        _listen: str, _names: Sequence[str], register: Callable[[Any], None], **_: object
    ) -> SimGrpcServer:
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
        self._opened: dict[str, SimChannel] = {}

    async def channel(self, endpoint: str) -> Any:
        """Return the channel to a host: streams are kept for as long as it is the same one."""
        if endpoint not in self._opened:
            self._opened[endpoint] = SimChannel(self._directory, self._host, endpoint)
        return self._opened[endpoint]


class SimChannel:
    """The methods of a channel that generated stubs use."""

    def __init__(self, directory: Directory, client: Host, endpoint: str) -> None:
        self._directory = directory
        self._client = client
        self._server = directory.network.hosts[endpoint.partition(":")[0]]

    def unary_unary(self, path: str, **_: object) -> Callable[..., Awaitable[Any]]:
        """Return a method with one request and one response."""

        async def call(request: Any, timeout: float, metadata: object = None) -> Any:
            del metadata
            may_repeat = _may_repeat(path.rpartition("/")[2], request)
            return await ask(self._method(path, may_repeat=may_repeat), request, timeout)

        return call

    def stream_stream(self, path: str, **_: object) -> Callable[[], StreamCall | UnknownStream]:
        """Return a method with streams. Those that are kept may be unknown to a server, so that the
        calls which do the same are made too: only they come late or twice.
        """
        is_kept = path.rpartition("/")[2].startswith(KEPT)

        def open_stream() -> StreamCall | UnknownStream:
            if is_kept and self._directory.network.dice.chance(OLDER):
                return UnknownStream()
            return StreamCall(self._method(path))

        return open_stream

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
    """Return False for requests that must not be delivered twice.

    Before transactions v2 a repeated request may count for the next transaction.
    docs/transactions.md describes the effects; the simulator need not find them.
    """
    if method in ("AddPartitions", "EndTransaction"):
        return bool(getattr(request, "transactions_v2", True))
    if method == "WriteMarkers":
        return all(one.transaction_version >= V2 for one in request.markers)
    return method != "AddOffsets"
