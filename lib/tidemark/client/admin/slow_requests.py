"""SlowRequests: the slow requests that brokers remember, over gRPC."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import grpc.aio
from tidemark_wire.v1 import diagnostics_pb2, diagnostics_pb2_grpc

from tidemark.client.config import AdminConfig, with_settings
from tidemark.client.errors import ClientError, error_for
from tidemark.client.wire.grpc_transport import GrpcTransport, client_error
from tidemark.client.wire.session import Session, SessionClient
from tidemark.runtime.clock import Clock


@dataclass(frozen=True, slots=True)
class SlowRequest:
    """One request that took longer than its broker's threshold. Times are in microseconds, but for
    ``began_ms``, the wall time. ``stages`` are in order, and their sum is the total.
    """

    broker_id: int
    began_ms: int
    api: str
    api_version: int
    client_id: str
    peer: str
    listener: str
    size_bytes: int
    total_us: int
    stages_us: Mapping[str, int] = field(default_factory=dict)


class SlowRequestsOfBroker(NamedTuple):
    """Answer of one broker: its requests, newest first, or the error.

    ``threshold_ms`` is slow.request.ms, 0 if nothing is remembered; ``seen`` counts slow requests
    since the process started.
    """

    broker_id: int
    threshold_ms: int
    seen: int
    requests: tuple[SlowRequest, ...]
    error: ClientError | None = None


class SlowRequests(SessionClient):
    """Client for slow requests: ``async with SlowRequests("host:9292") as slow``. Bootstrap servers
    are gRPC addresses. ``settings`` are fields of AdminConfig by name.
    """

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str],
        config: AdminConfig | None = None,
        *,
        clock: Clock | None = None,
        **settings: Any,
    ) -> None:
        self.config = with_settings(config or AdminConfig(), {**settings, "transport": "grpc"})
        self._clock = clock or Clock()
        self._session = Session(bootstrap_servers, self.config, self._clock)

    async def list(
        self, broker_ids: Iterable[int] | None = None, *, count_max: int = 0
    ) -> list[SlowRequestsOfBroker]:
        """Return up to ``count_max`` requests (0: all) of each of these brokers (None: of every
        live one). A broker that does not answer has its error. Raises ClientError if none does.
        """
        await self._session.cluster.refresh(seen_version=self._session.cache.version)
        known = sorted(self._session.cache.cluster.brokers)
        wanted = known if broker_ids is None else list(broker_ids)
        return [await self._of_broker(broker_id, count_max) for broker_id in wanted]

    async def _of_broker(self, broker_id: int, count_max: int) -> SlowRequestsOfBroker:
        transport = self._session.transport
        assert isinstance(transport, GrpcTransport), "a session over gRPC"
        try:
            channel = transport.channel(broker_id)
            stub = diagnostics_pb2_grpc.BrokerDiagnosticsStub(channel)
            request = diagnostics_pb2.ListSlowRequestsRequest(count_max=count_max)
            timeout_s = self.config.request_timeout_ms / 1_000
            answer = await stub.ListSlowRequests(request, timeout=timeout_s)
        except grpc.aio.AioRpcError as problem:
            error = client_error(problem, transport.where(broker_id))
            return SlowRequestsOfBroker(broker_id, 0, 0, (), error)
        except ClientError as error:
            return SlowRequestsOfBroker(broker_id, 0, 0, (), error)
        if answer.error_code:
            refused = error_for(
                answer.error_code,
                "listing slow requests failed",
                where=transport.where(broker_id),
                detail=answer.error_message or None,
            )
            return SlowRequestsOfBroker(broker_id, 0, 0, (), refused)
        found = tuple(_request(broker_id, one) for one in answer.requests)
        return SlowRequestsOfBroker(broker_id, answer.threshold_ms, answer.seen, found)


def _request(broker_id: int, wire: diagnostics_pb2.SlowRequest) -> SlowRequest:
    return SlowRequest(
        broker_id,
        wire.began_ms,
        wire.api,
        wire.api_version,
        wire.client_id,
        wire.peer,
        wire.listener,
        wire.size_bytes,
        wire.total_us,
        {stage.name: stage.us for stage in wire.stages},
    )
