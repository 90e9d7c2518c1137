"""BrokerDiagnostics: what this broker remembers and counts."""

from collections.abc import Callable
from typing import Any, Final

import grpc.aio
from tidemark.model.authorization import CLUSTER, Operation
from tidemark.model.errors import ErrorCode
from tidemark_wire.v1 import diagnostics_pb2 as pb
from tidemark_wire.v1 import diagnostics_pb2_grpc

from broker.shell.facts import BrokerFacts
from broker.shell.groups.group_lag import GroupLag, sums_of
from broker.shell.partitions.traffic import Traffic
from broker.shell.request_times import RequestTimes, SlowRequest, api_name
from broker.shell.rpc.streams import caller_of

SERVICE_NAME: Final = "tidemark_wire.v1.BrokerDiagnostics"
GROUPS_MAX: Final = 1_000
"""Groups of one answer."""
_US: Final = 1_000_000
_DENIED: Final = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
_NO_RIGHT: Final = "no DESCRIBE on the cluster"

Context = grpc.aio.ServicerContext[Any, Any]


class BrokerDiagnostics(diagnostics_pb2_grpc.BrokerDiagnosticsServicer):
    """One broker's service."""

    def __init__(
        self, facts: BrokerFacts, times: RequestTimes, traffic: Traffic, lag: GroupLag
    ) -> None:
        self._facts = facts
        self._times = times
        self._traffic = traffic
        self._lag = lag

    async def ListSlowRequests(  # noqa: N802 - the name in the proto
        self, request: pb.ListSlowRequestsRequest, context: Context
    ) -> pb.ListSlowRequestsResponse:
        """Return the slow requests that are kept, newest first."""
        if not self._may(context):
            return pb.ListSlowRequestsResponse(error_code=_DENIED, error_message=_NO_RIGHT)
        kept = self._times.slow()
        count = request.count_max if request.count_max > 0 else len(kept)
        return pb.ListSlowRequestsResponse(
            threshold_ms=self._times.slow_ms,
            seen=self._times.slow_seen,
            requests=[_write(one) for one in kept[:count]],
        )

    async def DescribeTraffic(  # noqa: N802 - the name in the proto
        self, request: pb.DescribeTrafficRequest, context: Context
    ) -> pb.DescribeTrafficResponse:
        """Return the counters of this process."""
        if not self._may(context):
            return pb.DescribeTrafficResponse(error_code=_DENIED, error_message=_NO_RIGHT)
        return pb.DescribeTrafficResponse(**(await self._traffic.read())._asdict())

    async def ListGroupLags(  # noqa: N802 - the name in the proto
        self, request: pb.ListGroupLagsRequest, context: Context
    ) -> pb.ListGroupLagsResponse:
        """Return the groups with the largest lags, from figures that are computed for metrics."""
        if not self._may(context):
            return pb.ListGroupLagsResponse(error_code=_DENIED, error_message=_NO_RIGHT)
        if not self._facts.config.metrics_group_lag_enable:
            return pb.ListGroupLagsResponse(enabled=False)
        await self._lag.refresh()
        sums = sums_of(self._lag.figures)
        count = min(request.count_max or GROUPS_MAX, GROUPS_MAX)
        return pb.ListGroupLagsResponse(
            enabled=True,
            age_ms=self._lag.age_ms or 0,
            groups_total=len(sums),
            lag_total=sum(one.lag for one in sums),
            unknown_total=sum(one.unknown for one in sums) + self._lag.figures.cut,
            groups=[pb.GroupLag(**one._asdict()) for one in sums[: max(0, count)]],
        )

    def _may(self, context: Context) -> bool:
        requester = caller_of(context).requester
        return self._facts.authorizer.authorize(requester, Operation.DESCRIBE, CLUSTER)


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
