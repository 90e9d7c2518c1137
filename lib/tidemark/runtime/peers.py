"""Callers of a gRPC server with mutual TLS: their principals, and who may call at all."""

import inspect
import logging
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from functools import lru_cache
from typing import Any, Final

import grpc
import grpc.aio

from tidemark.model.authorization import PROCESS
from tidemark.protocol.principal_mapping import NoPrincipalError, PrincipalMapper
from tidemark.runtime.access.certificates import principal_of_pem
from tidemark.runtime.telemetry import fields

log = logging.getLogger(__name__)

PEER: Final[ContextVar[str]] = ContextVar("peer", default=PROCESS)
"""Principal of the caller of the RPC that runs. Without mutual TLS every caller is taken for a
process of the cluster.
"""

_CERTIFICATE: Final = "x509_pem_cert"
_HEALTH: Final = "/grpc.health.v1.Health/"
_CERTIFICATES_KEPT: Final = 1_024
_KINDS: Final = ("unary_unary", "unary_stream", "stream_unary", "stream_stream")

Handler = grpc.RpcMethodHandler


class RefusedPeerError(Exception):
    """The caller may not call this server. The message is for the caller."""


class Peers:
    """Rules of one server. ``processes`` are the principals of the cluster's processes."""

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


class PeerGate(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]  # generic in stubs only
    """Interceptor that sets PEER for every RPC, and refuses those of callers who may not call."""

    def __init__(self, peers: Peers) -> None:
        self._peers = peers

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        """Return the handler with the check before it."""
        handler = await continuation(handler_call_details)
        if handler is None or handler_call_details.method.startswith(_HEALTH):
            return handler
        kind = next(name for name in _KINDS if getattr(handler, name) is not None)
        behaviour = getattr(handler, kind)
        wrap = self._generator if inspect.isasyncgenfunction(behaviour) else self._coroutine
        make = getattr(grpc, f"{kind}_rpc_method_handler")
        return make(
            wrap(behaviour, handler_call_details.method),
            request_deserializer=handler.request_deserializer,
            response_serializer=handler.response_serializer,
        )

    def _coroutine(self, behaviour: Callable[..., Awaitable[Any]], method: str) -> Any:
        async def checked(request: Any, context: Any) -> Any:
            await self._check(context, method)
            return await behaviour(request, context)

        return checked

    def _generator(self, behaviour: Callable[..., Any], method: str) -> Any:
        async def checked(request: Any, context: Any) -> Any:
            await self._check(context, method)
            async for response in behaviour(request, context):
                yield response

        return checked

    async def _check(self, context: Any, method: str) -> None:
        found = context.auth_context().get(_CERTIFICATE, ())
        try:
            if not found:
                raise RefusedPeerError("this service takes only callers with a certificate")
            PEER.set(self._peers.principal_of(found[0]))
        except RefusedPeerError as refused:
            log.warning(
                "call refused",
                extra=fields(peer=context.peer(), method=method, reason=str(refused)),
            )
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, str(refused))
