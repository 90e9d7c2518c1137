"""Callers of a gRPC server: their principals, and who may call at all."""

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from functools import lru_cache
from typing import Any, Final, NamedTuple, Protocol
from urllib.parse import unquote

import grpc
import grpc.aio

from tidemark.model.authorization import ANONYMOUS, PROCESS
from tidemark.protocol.principal_mapping import NoPrincipalError, PrincipalMapper
from tidemark.runtime.access.certificates import principal_of_pem
from tidemark.runtime.telemetry import fields

log = logging.getLogger(__name__)

PEER: Final[ContextVar[str]] = ContextVar("peer", default=PROCESS)
"""Principal of the caller of the RPC that runs. Without a check of callers, every caller is taken
for a process of the cluster.
"""

_CERTIFICATE: Final = "x509_pem_cert"
_HEALTH_CHECK: Final = "/grpc.health.v1.Health/Check"
_CERTIFICATES_KEPT: Final = 1_024
_KINDS: Final = ("unary_unary", "unary_stream", "stream_unary", "stream_stream")

_Take = Callable[[Any, Any], Awaitable[Any]]


def host_of(peer: str) -> str:
    """Return the address in gRPC's name of a peer, as ``ipv4:10.0.0.1:40000``; '' for others."""
    family, _, rest = peer.partition(":")
    return unquote(rest).rpartition(":")[0].strip("[]") if family in ("ipv4", "ipv6") else ""


class RefusedPeerError(Exception):
    """The caller may not call this server. The message is for the caller."""

    def __init__(
        self, message: str, status: grpc.StatusCode = grpc.StatusCode.PERMISSION_DENIED
    ) -> None:
        super().__init__(message)
        self.status = status


class Peer(NamedTuple):
    """Caller of an RPC. ``left_s``: time for which it may go on; None without a limit."""

    principal: str
    left_s: float | None = None


class FindsPeers(Protocol):
    """Check of the callers of one server."""

    async def peer_of(self, context: Any) -> Peer:
        """Return the caller of an RPC, by its context. Raises RefusedPeerError."""


class Peers:
    """Callers with certificates. ``processes`` are the principals of the cluster's processes."""

    def __init__(self, rules: str, processes: frozenset[str], *, takes_clients: bool) -> None:
        """With ``takes_clients`` others get in as clients, whom each RPC authorizes; without it,
        they get nowhere. ``rules`` map subjects to principals. Raises ValueError.
        """
        mapper = PrincipalMapper(rules)
        self._processes = processes
        self._takes_clients = takes_clients
        self._principal = lru_cache(_CERTIFICATES_KEPT)(
            lambda certificate: principal_of_pem(certificate, mapper)
        )

    async def peer_of(self, context: Any) -> Peer:
        """Return the caller by its certificate. Raises RefusedPeerError."""
        found = context.auth_context().get(_CERTIFICATE, ())
        if not found:
            raise RefusedPeerError("this service takes only callers with a certificate")
        return Peer(self.principal_of(found[0]))

    def principal_of(self, certificate: bytes) -> str:
        """Return the principal of a caller with this certificate (PEM). Raises RefusedPeerError."""
        try:
            principal = self._principal(certificate)
        except NoPrincipalError as problem:
            raise RefusedPeerError(str(problem)) from None
        if principal in self._processes:
            return PROCESS
        if not self._takes_clients:
            raise RefusedPeerError(
                f"{principal} is no process of the cluster (cluster.principals), and no other may"
                " call this service"
            )
        return principal


class AnonymousPeers:
    """Callers who do not prove who they are: clients without a name."""

    async def peer_of(self, context: Any) -> Peer:
        """Return the client."""
        del context
        return Peer(ANONYMOUS)


async def _all(requests: Any, context: Any) -> Any:
    del context
    return requests


async def _one(requests: Any, context: Any) -> Any:
    del requests
    request = await context.read()
    if request is grpc.aio.EOF:  # type: ignore[attr-defined]  # not in the stubs
        await context.abort(grpc.StatusCode.INTERNAL, "the call ended without its request")
    return request


def _unread(behaviour: Callable[..., Awaitable[Any]], request: Any) -> Any:
    async def answered(requests: Any, context: Any) -> Any:
        del requests
        return await behaviour(request, context)

    return answered


class PeerGate(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]  # generic in stubs only
    """Interceptor that sets PEER for every RPC, and refuses those of callers who may not call.

    A request is read once its caller is known, so all methods are served as if they took streams of
    requests, which is the same on the wire: gRPC receives the request of other methods, of up to
    64 MB, before it calls any code of ours. Health checks need no login, and their request is never
    read: the answer is that of the whole server.

    A stream whose caller may go on for a limited time only, such as the life of a token, ends with
    UNAVAILABLE after it: a client opens it again, with a new token. That holds for handlers that
    are coroutines, as those of all streams that clients open are.
    """

    def __init__(self, peers: FindsPeers) -> None:
        self._peers = peers

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        """Return the handler with the check before it."""
        handler = await continuation(handler_call_details)
        if handler is None:
            return None
        kind = next(name for name in _KINDS if getattr(handler, name) is not None)
        behaviour, method = getattr(handler, kind), handler_call_details.method
        takes_many = kind.startswith("stream")
        if method == _HEALTH_CHECK:
            checked = _unread(behaviour, handler.request_deserializer(b""))
        elif inspect.isasyncgenfunction(behaviour):
            checked = self._generator(behaviour, method, _all if takes_many else _one)
        elif "stream" in kind:
            checked = self._stream(behaviour, method, _all if takes_many else _one)
        else:
            checked = self._call(behaviour, method)
        make = getattr(grpc, f"stream_{kind.rpartition('_')[2]}_rpc_method_handler")
        return make(
            checked,
            request_deserializer=handler.request_deserializer,
            response_serializer=handler.response_serializer,
        )

    def _call(self, behaviour: Callable[..., Awaitable[Any]], method: str) -> Any:
        async def checked(requests: Any, context: Any) -> Any:
            await self._check(context, method)
            return await behaviour(await _one(requests, context), context)

        return checked

    def _stream(self, behaviour: Callable[..., Awaitable[Any]], method: str, take: _Take) -> Any:
        async def checked(requests: Any, context: Any) -> Any:
            peer = await self._check(context, method)
            limit = asyncio.timeout(peer.left_s)
            try:
                async with limit:
                    return await behaviour(await take(requests, context), context)
            except TimeoutError:
                if not limit.expired():
                    raise
            await context.abort(grpc.StatusCode.UNAVAILABLE, "the login has ended: log in again")

        return checked

    def _generator(self, behaviour: Callable[..., Any], method: str, take: _Take) -> Any:
        async def checked(requests: Any, context: Any) -> Any:
            await self._check(context, method)
            async for response in behaviour(await take(requests, context), context):
                yield response

        return checked

    async def _check(self, context: Any, method: str) -> Peer:
        try:
            peer = await self._peers.peer_of(context)
        except RefusedPeerError as refused:
            log.warning(
                "call refused",
                extra=fields(peer=context.peer(), method=method, reason=str(refused)),
            )
            await context.abort(refused.status, str(refused))
            raise AssertionError("abort raises") from None
        PEER.set(peer.principal)
        return peer
