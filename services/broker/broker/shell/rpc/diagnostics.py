"""BrokerDiagnostics: what this broker remembers for diagnosis."""

from collections.abc import Callable
from typing import Any, Final

import grpc.aio
from tidemark.model.authorization import CLUSTER, Operation
from tidemark.model.errors import ErrorCode
from tidemark_wire.v1 import diagnostics_pb2 as pb
from tidemark_wire.v1 import diagnostics_pb2_grpc

from broker.shell.facts import BrokerFacts
from broker.shell.request_times import RequestTimes, SlowRequest, api_name
from broker.shell.rpc.streams import caller_of

SERVICE_NAME: Final = "tidemark_wire.v1.BrokerDiagnostics"
_US: Final = 1_000_000

Context = grpc.aio.ServicerContext[Any, Any]


class BrokerDiagnostics(diagnostics_pb2_grpc.BrokerDiagnosticsServicer):
    """One broker's service."""

    def __init__(self, facts: BrokerFacts, times: RequestTimes) -> None:
        self._facts = facts
        self._times = times

    async def ListSlowRequests(  # noqa: N802 - the name in the proto
        self, request: pb.ListSlowRequestsRequest, context: Context
    ) -> pb.ListSlowRequestsResponse:
        """Return the slow requests that are kept, newest first."""
        if not self._facts.authorizer.authorize(
            caller_of(context).requester, Operation.DESCRIBE, CLUSTER
        ):
            return pb.ListSlowRequestsResponse(
                error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
                error_message="no DESCRIBE on the cluster",
            )
        kept = self._times.slow()
        count = request.count_max if request.count_max > 0 else len(kept)
        return pb.ListSlowRequestsResponse(
            threshold_ms=self._times.slow_ms,
            seen=self._times.slow_seen,
            requests=[_write(one) for one in kept[:count]],
        )


def _write(slow: SlowRequest) -> pb.SlowRequest:
    stages = zip(("handling", "waiting", "ordering"), slow[-3:], strict=True)
    return pb.SlowRequest(
        began_ms=slow.began_ms,
        api_key=slow.header.api_key,
        api=api_name(slow.header.api_key),
        api_version=slow.header.api_version,
        client_id=slow.header.client_id or "",
        peer=slow.origin.peer,
        listener=slow.origin.listener,
        size_bytes=slow.origin.size_bytes,
        total_us=round(slow.total_s * _US),
        stages=[pb.SlowRequest.Stage(name=name, us=round(s * _US)) for name, s in stages],
    )


def registration(service: BrokerDiagnostics) -> Callable[[Any], None]:
    """Return the function with which ``make_grpc_server`` registers the service."""

    def register(server: Any) -> None:
        add = diagnostics_pb2_grpc.add_BrokerDiagnosticsServicer_to_server
        add(service, server)  # type: ignore[no-untyped-call]

    return register
