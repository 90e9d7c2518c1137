"""TransactionMarkers: ends of transactions, from their coordinator (Kafka's WriteTxnMarkers)."""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import grpc.aio
from tidemark.codec.control_record import EndTxnMarker, build_marker
from tidemark.machine.shard import Writer
from tidemark.model.errors import ErrorCode
from tidemark.model.topics import CONSUMER_OFFSETS
from tidemark_wire.v1 import txn_pb2, txn_pb2_grpc

from broker.core.authorizer import CLUSTER, Operation
from broker.shell.node import BrokerNode
from broker.shell.partitions.commit_wait import CommitWait
from broker.shell.partitions.hosted import HostedPartition
from broker.shell.rpc.streams import caller_of

SERVICE_NAME: Final = "tidemark_wire.v1.TransactionMarkers"
COMMIT_WAIT_MS: Final = 10_000
MARKERS_MAX: Final = 100_000
"""Targets of one call."""
BUMPED_FROM: Final = 2
"""Of ``transaction_version``."""

Context = grpc.aio.ServicerContext[Any, Any]


class Ending(NamedTuple):
    """How one producer's transaction ends."""

    writer: Writer
    marker: EndTxnMarker
    bumped: bool
    """Its epoch is above that of the transaction's records (transactions v2)."""


class Written(NamedTuple):
    """One target's result so far; ``commit`` is to be waited for."""

    error_code: ErrorCode
    message: str
    commit: CommitWait | None = None


def write_marker(node: BrokerNode, hosted: HostedPartition, ending: Ending) -> Written:
    """Append one marker, if it is not there already."""
    number = hosted.topic_partition.partition
    is_groups = hosted.topic_partition.topic == CONSUMER_OFFSETS
    if is_groups and not node.groups.is_serving(number):
        return Written(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "the group's shard is being loaded")
    batch = build_marker(
        ending.marker,
        producer_id=ending.writer.producer_id,
        producer_epoch=ending.writer.producer_epoch,
        timestamp=node.clock.wall_ms(),
    )
    end_before = hosted.partition.log_end
    outcome = node.appender.append_internal(
        hosted, batch, control=ending.marker, bumped=ending.bumped
    )
    if outcome.error_code is not ErrorCode.NONE:
        return Written(outcome.error_code, outcome.message or "")
    if is_groups and outcome.end > end_before:
        node.groups.transaction_ended(
            hosted, ending.writer, outcome.end, commits=ending.marker.commits
        )
    if not outcome.must_wait:
        return Written(ErrorCode.NONE, "")
    return Written(ErrorCode.NONE, "", CommitWait.of(hosted, outcome.end))


async def settled(node: BrokerNode, written: Written) -> tuple[ErrorCode, str]:
    """What became of one target, once the in-sync replicas have it or it is too late."""
    code, message, commit = written
    if commit is not None:
        if not commit.is_lost and not commit.is_committed:
            await node.parked.wait_committed(commit.hosted, commit.end, wait_ms=COMMIT_WAIT_MS)
        if commit.is_lost or not commit.is_committed:
            return commit.failure(), "appended, but not replicated in time"
    return code, message


class TransactionMarkers(txn_pb2_grpc.TransactionMarkersServicer):
    """One broker's service."""

    def __init__(self, node: BrokerNode) -> None:
        self._node = node

    async def WriteMarkers(  # noqa: N802 - the name in the proto
        self, request: txn_pb2.WriteMarkersRequest, context: Context
    ) -> txn_pb2.WriteMarkersResponse:
        """Append every marker, then wait until the in-sync replicas have them."""
        node = self._node
        principal = caller_of(context).principal
        if not node.authorizer.authorize(principal, Operation.CLUSTER_ACTION, CLUSTER):
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, "ClusterAction is needed")
        if sum(len(one.targets) for one in request.markers) > MARKERS_MAX:
            await context.abort(
                grpc.StatusCode.INVALID_ARGUMENT, f"at most {MARKERS_MAX} targets in one call"
            )
        written = [
            [self._write(marker, target) for target in marker.targets] for marker in request.markers
        ]
        return txn_pb2.WriteMarkersResponse(
            markers=[
                txn_pb2.WriteMarkersResponse.Marker(
                    results=[await self._result(one) for one in of_marker]
                )
                for of_marker in written
            ]
        )

    def _write(
        self,
        marker: txn_pb2.WriteMarkersRequest.Marker,
        target: txn_pb2.WriteMarkersRequest.Target,
    ) -> Written:
        hosted = self._node.table.find(target.topic, target.topic_id or bytes(16), target.partition)
        if isinstance(hosted, ErrorCode):
            return Written(hosted, "")
        ending = Ending(
            Writer(marker.producer_id, marker.producer_epoch),
            EndTxnMarker(marker.commit, marker.coordinator_epoch),
            marker.transaction_version >= BUMPED_FROM,
        )
        return write_marker(self._node, hosted, ending)

    async def _result(self, written: Written) -> txn_pb2.WriteMarkersResponse.Result:
        code, message = await settled(self._node, written)
        return txn_pb2.WriteMarkersResponse.Result(error_code=code, error_message=message)


def registration(service: TransactionMarkers) -> Callable[[Any], None]:
    """What ``make_grpc_server`` calls to put the service on a server."""

    def register(server: Any) -> None:
        add = txn_pb2_grpc.add_TransactionMarkersServicer_to_server
        add(service, server)  # type: ignore[no-untyped-call]

    return register
