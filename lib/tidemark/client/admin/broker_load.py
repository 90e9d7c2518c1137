"""Load of one broker over gRPC: its counters, and the lag of the groups that it coordinates.

The caller limits the time of a call.
"""

from typing import Any, NamedTuple

import grpc.aio
from tidemark_wire.v1 import diagnostics_pb2, diagnostics_pb2_grpc

from tidemark.client.errors import error_for
from tidemark.client.wire.grpc_transport import client_error


class TrafficCounters(NamedTuple):
    """Counters of one broker process, which ``started_ms`` identifies. ``at_ms`` is its monotonic
    clock when they were read.
    """

    started_ms: int
    at_ms: int
    bytes_in: int
    bytes_out: int
    records_in: int
    replication_bytes_in: int
    produce_requests: int
    fetch_requests: int
    open_transaction_partitions: int
    """Partitions led by the broker with an open transaction, now."""


class GroupLagSum(NamedTuple):
    """Lag of one group, in records: the sum of the known lags of its partitions."""

    group_id: str
    lag: int
    unknown: int
    """Partitions whose lag is not known."""
    members: int


class GroupLags(NamedTuple):
    """Groups that one broker coordinates. ``is_enabled`` is its metrics.group.lag.enable."""

    is_enabled: bool
    age_ms: int
    groups_total: int
    lag_total: int
    unknown_total: int
    groups: tuple[GroupLagSum, ...]
    """Those with the largest lags, the largest first."""


async def describe_traffic(channel: grpc.aio.Channel, where: str) -> TrafficCounters:
    """Return the counters of the broker at ``where``. Raises ClientError."""
    stub: Any = diagnostics_pb2_grpc.BrokerDiagnosticsStub(channel)
    request = diagnostics_pb2.DescribeTrafficRequest()
    try:
        answer = await stub.DescribeTraffic(request)
    except grpc.aio.AioRpcError as problem:
        raise client_error(problem, where) from None
    _check(answer, "reading the counters failed", where)
    return TrafficCounters(**{name: getattr(answer, name) for name in TrafficCounters._fields})


async def list_group_lags(channel: grpc.aio.Channel, where: str, *, count_max: int) -> GroupLags:
    """Return the lag of the groups that the broker at ``where`` coordinates. Raises ClientError."""
    stub: Any = diagnostics_pb2_grpc.BrokerDiagnosticsStub(channel)
    request = diagnostics_pb2.ListGroupLagsRequest(count_max=count_max)
    try:
        answer = await stub.ListGroupLags(request)
    except grpc.aio.AioRpcError as problem:
        raise client_error(problem, where) from None
    _check(answer, "reading the lag of groups failed", where)
    return GroupLags(
        answer.enabled,
        answer.age_ms,
        answer.groups_total,
        answer.lag_total,
        answer.unknown_total,
        tuple(
            GroupLagSum(one.group_id, one.lag, one.unknown, one.members) for one in answer.groups
        ),
    )


def _check(answer: Any, doing: str, where: str) -> None:
    if answer.error_code:
        detail = answer.error_message or None
        raise error_for(answer.error_code, doing, where=where, detail=detail)
