"""gRPC servers: one factory for all services, with health, reflection, request ids and bounds."""

import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Final, Protocol

import grpc
import grpc.aio
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1._async import HealthServicer
from grpc_reflection.v1alpha import reflection

from tidemark.protocol.audit import NoteLogin, no_note
from tidemark.runtime.access.certificate_logins import GRPC_OF_PROCESSES, CertificateLogins
from tidemark.runtime.cluster_config import ClusterConfig
from tidemark.runtime.ops_http import AddressTakenError
from tidemark.runtime.peers import FindsPeers, PeerGate, Peers
from tidemark.runtime.service_config import HostPort
from tidemark.runtime.telemetry import REQUEST_ID, new_request_id
from tidemark.runtime.tls import ChannelTls, ClientAuth, ServerTls

REQUEST_ID_METADATA: Final = "x-request-id"
MESSAGE_BYTES_MAX: Final = 64 * 1024 * 1024
_RPCS_MAX: Final = 4_096
_GRPC_CORE: Final = logging.getLogger("grpc._cython.cygrpc")


class MakeGrpcServer(Protocol):
    """``make_grpc_server``, as services use it."""

    def __call__(
        self,
        listen: str,
        service_names: Sequence[str],
        register: Callable[[Any], None],
        *,
        note_login: NoteLogin = ...,
    ) -> "GrpcServer":
        """Make a server; ``register`` adds the servicers, ``note_login`` notes logins of clients
        with certificates.
        """


class _CallerLeft(logging.Filter):
    """Filter for responses whose caller has gone (cancelled, or past its deadline). grpc.aio logs
    them as errors of the server, with a traceback, but nothing is wrong.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """False for such a record: an operator cannot act on it."""
        kind = record.exc_info[0] if record.exc_info else None
        return kind is None or kind.__name__ != "ExecuteBatchError"


_CALLER_LEFT: Final = _CallerLeft()


class _RequestIds(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]  # generic in stubs only
    """Interceptor that sets the caller's request id, or a new one, for every RPC."""

    async def intercept_service(
        self,
        continuation: Callable[
            [grpc.HandlerCallDetails], Awaitable["grpc.RpcMethodHandler[Any, Any]"]
        ],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> "grpc.RpcMethodHandler[Any, Any]":
        """Set the request id. Runs in the RPC's own task, so the id ends with it."""
        metadata = handler_call_details.invocation_metadata or ()
        given = next((value for key, value in metadata if key == REQUEST_ID_METADATA), None)
        REQUEST_ID.set(str(given) if given else new_request_id())
        return await continuation(handler_call_details)


class GrpcServer:
    """A grpc.aio server with health and reflection. An async context manager; exit drains it.

    Register the services first (``add_XServicer_to_server(servicer, server.grpc)``).
    """

    def __init__(
        self,
        listen: str,
        service_names: Sequence[str],
        *,
        message_bytes_max: int = MESSAGE_BYTES_MAX,
        drain_seconds: float = 5.0,
        credentials: grpc.ServerCredentials | None = None,
        peers: FindsPeers | None = None,
    ) -> None:
        """``credentials`` come from ``tls.ServerTls``; None means plain text. ``peers`` decides who
        may call; None: everybody, as a process of the cluster.
        """
        self._listen = HostPort.parse(listen)
        self._address = self._listen
        self._drain_seconds = drain_seconds
        self._credentials = credentials
        self._health = HealthServicer()
        self._service_names = tuple(service_names)
        _GRPC_CORE.addFilter(_CALLER_LEFT)
        self.grpc: grpc.aio.Server = grpc.aio.server(
            interceptors=(_RequestIds(), *(() if peers is None else (PeerGate(peers),))),
            maximum_concurrent_rpcs=_RPCS_MAX,
            options=(
                ("grpc.max_receive_message_length", message_bytes_max),
                ("grpc.max_send_message_length", message_bytes_max),
                # Two processes on one port would each get half of the calls.
                ("grpc.so_reuseport", 0),
                # Clients ping idle channels to detect a dead peer (channel.py); do not treat that
                # as abuse.
                ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
                ("grpc.keepalive_permit_without_calls", 1),
            ),
        )

    @property
    def address(self) -> HostPort:
        """Address of the listener. A port given as 0 is known once the server has started."""
        return self._address

    async def set_serving(self, *, serving: bool) -> None:
        """Set the status that the health service reports for each service and for '' (all)."""
        status = health_pb2.HealthCheckResponse
        value = status.SERVING if serving else status.NOT_SERVING
        for name in ("", *self._service_names):
            await self._health.set(name, value)

    async def __aenter__(self) -> "GrpcServer":
        """Listen and serve, NOT_SERVING until ``set_serving``. Raises AddressTakenError."""
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self.grpc)
        names = (*self._service_names, "grpc.health.v1.Health", reflection.SERVICE_NAME)
        reflection.enable_server_reflection(names, self.grpc)
        address = str(self._listen)
        try:
            if self._credentials is None:
                port = self.grpc.add_insecure_port(address)
            else:
                port = self.grpc.add_secure_port(address, self._credentials)
        except RuntimeError:
            port = 0
        if port == 0:
            raise AddressTakenError(
                f"cannot listen at {self._listen}: stop what listens there, or change grpc.listen"
            )
        self._address = HostPort(self._listen.host, port)
        await self.set_serving(serving=False)
        await self.grpc.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._health.enter_graceful_shutdown()
        await self.grpc.stop(self._drain_seconds)


def make_grpc_server(
    listen: str,
    service_names: Sequence[str],
    register: Callable[[Any], None],
    *,
    message_bytes_max: int = MESSAGE_BYTES_MAX,
    credentials: grpc.ServerCredentials | None = None,
    peers: FindsPeers | None = None,
    note_login: NoteLogin = no_note,
) -> GrpcServer:
    """Return a server with its services; ``register(grpc_server)`` adds the servicers. Where
    ``peers`` checks callers, ``note_login`` notes the logins of those who are no processes.
    """
    if peers is not None:
        peers = CertificateLogins(peers, GRPC_OF_PROCESSES, note_login)
    server = GrpcServer(
        listen,
        service_names,
        message_bytes_max=message_bytes_max,
        credentials=credentials,
        peers=peers,
    )
    register(server.grpc)
    return server


def make_client_server(
    listen: str,
    service_names: Sequence[str],
    register: Callable[[Any], None],
    *,
    tls: ServerTls | None,
    peers: FindsPeers,
) -> GrpcServer:
    """Return a server for clients, who are what ``peers`` finds. Raises TlsError."""
    credentials = None if tls is None else tls.credentials()
    server = GrpcServer(listen, service_names, credentials=credentials, peers=peers)
    register(server.grpc)
    return server


def make_secured_server(config: ClusterConfig, *, takes_clients: bool) -> MakeGrpcServer:
    """Return the function that makes a server with the TLS of a configuration. With
    ``takes_clients``, it serves clients too, not only processes of the cluster. Raises
    TlsError.
    """
    settings = config.grpc_tls()
    if settings is None:
        return make_grpc_server
    peers = None
    if settings.client_auth is ClientAuth.REQUIRED:
        rules, processes = config.grpc_ssl_principal_mapping_rules, config.process_principals
        peers = Peers(rules, processes, takes_clients=takes_clients)
    return partial(make_grpc_server, credentials=ServerTls(settings).credentials(), peers=peers)


def channel_tls(config: ClusterConfig) -> ChannelTls | None:
    """Return the TLS of channels to other processes; None without. Raises TlsError."""
    settings = config.grpc_tls()
    return None if settings is None else ChannelTls(settings)
