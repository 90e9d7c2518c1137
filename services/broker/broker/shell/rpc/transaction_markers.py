"""TransactionMarkers: markers that end transactions, from their coordinator (Kafka's
WriteTxnMarkers).
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final

import grpc.aio
from tidemark.codec.control_record import EndTxnMarker
from tidemark.model.authorization import CLUSTER, Operation
from tidemark.model.errors import ErrorCode
from tidemark.protocol.shard import Writer
from tidemark.runtime.kept_streams import answer_each
from tidemark_wire.v1 import txn_pb2, txn_pb2_grpc

from broker.shell.facts import BrokerFacts
from broker.shell.partitions.table import PartitionTable
from broker.shell.rpc.streams import caller_of
from broker.shell.transactions.marker_writer import BUMPED_FROM, Ending, MarkerWriter, Written

SERVICE_NAME: Final = "tidemark_wire.v1.TransactionMarkers"
MARKERS_MAX: Final = 100_000
"""Targets of one call."""

Context = grpc.aio.ServicerContext[Any, Any]


class TransactionMarkers(txn_pb2_grpc.TransactionMarkersServicer):
    """One broker's service."""

    def __init__(self, facts: BrokerFacts, table: PartitionTable, markers: MarkerWriter) -> None:
        self._facts = facts
        self._table = table
        self._markers = markers
        self.drained = asyncio.Event()
        """Set once this broker has drained: streams that are kept end."""

    async def StreamMarkers(  # noqa: N802
        self, _requests: object, context: Context
    ) -> None:
        """Answer the requests of one stream as WriteMarkers does."""
        await self._check_caller(context)
        await answer_each(self.WriteMarkers, context, self.drained)

    async def WriteMarkers(  # noqa: N802 - the name in the proto
        self, request: txn_pb2.WriteMarkersRequest, context: Context
    ) -> txn_pb2.WriteMarkersResponse:
        """Append every marker, then wait until the in-sync replicas have them."""
        await self._check_caller(context)
        if sum(len(one.targets) for one in request.markers) > MARKERS_MAX:
            await context.abort(
                grpc.StatusCode.INVALID_ARGUMENT, f"at most {MARKERS_MAX} targets in one call"
            )
        written = [
            [self._write(marker, target) for target in marker.targets] for marker in request.markers
        ]
        await self._markers.relay(one for of_marker in written for one in of_marker)
        return txn_pb2.WriteMarkersResponse(
            markers=[
                txn_pb2.WriteMarkersResponse.Marker(
                    results=[await self._result(one) for one in of_marker]
                )
                for of_marker in written
            ]
        )

    async def _check_caller(self, context: Context) -> None:
        requester = caller_of(context).requester
        if not self._facts.authorizer.authorize(requester, Operation.CLUSTER_ACTION, CLUSTER):
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, "ClusterAction is needed")

    def _write(
        self,
        marker: txn_pb2.WriteMarkersRequest.Marker,
        target: txn_pb2.WriteMarkersRequest.Target,
    ) -> Written:
        hosted = self._table.find(target.topic, target.topic_id or bytes(16), target.partition)
        if isinstance(hosted, ErrorCode):
            return Written(hosted, "")
        ending = Ending(
            Writer(marker.producer_id, marker.producer_epoch),
            EndTxnMarker(marker.commit, marker.coordinator_epoch),
            marker.transaction_version >= BUMPED_FROM,
        )
        return self._markers.write(hosted, ending)

    async def _result(self, written: Written) -> txn_pb2.WriteMarkersResponse.Result:
        code, message = await self._markers.settled(written)
        return txn_pb2.WriteMarkersResponse.Result(error_code=code, error_message=message)


def registration(service: TransactionMarkers) -> Callable[[Any], None]:
    """Return the function with which ``make_grpc_server`` registers the service."""

    def register(server: Any) -> None:
        add = txn_pb2_grpc.add_TransactionMarkersServicer_to_server
        add(service, server)  # type: ignore[no-untyped-call]

    return register
