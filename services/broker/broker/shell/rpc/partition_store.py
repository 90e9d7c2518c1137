"""PartitionStore: raw record batches over gRPC, in and out of the partitions that Kafka's listeners
serve.
"""

from collections.abc import AsyncIterator, Callable
from typing import Any, Final

import grpc.aio
from tidemark.runtime.streams import until_gone
from tidemark_wire.v1 import partition_store_pb2, partition_store_pb2_grpc

from broker.shell.partitions.record_deletion import RecordDeletion
from broker.shell.rpc.append_stream import AppendParts, AppendStream
from broker.shell.rpc.byte_budget import ByteBudget
from broker.shell.rpc.descriptions import Descriptions
from broker.shell.rpc.fetch_stream import FetchStream, FetchStreamParts
from broker.shell.rpc.offset_queries import OffsetQueries
from broker.shell.rpc.record_deletion import delete_records
from broker.shell.rpc.streams import caller_of

SERVICE_NAME: Final = "tidemark_wire.v1.PartitionStore"

OFFSET_QUERIES_MAX: Final = 10_000

Context = grpc.aio.ServicerContext[Any, Any]


class PartitionStore(partition_store_pb2_grpc.PartitionStoreServicer):
    """One broker's service on one gRPC server. Streams share the bytes in flight; each has tasks of
    its own, which end with it.

    ``bytes_in_flight`` bounds the batches that the streams of all servers together hold
    (grpc.bulk.bytes.in.flight.max): bulk over gRPC costs several times what it costs over Kafka's
    listener, and must not take the loop or the memory from it.
    """

    def __init__(
        self,
        append: AppendParts,
        fetch: FetchStreamParts,
        offsets: OffsetQueries,
        descriptions: Descriptions,
        deletion: RecordDeletion,
        bytes_in_flight: ByteBudget,
    ) -> None:
        self._append = append
        self._fetch = fetch
        self._offsets = offsets
        self._descriptions = descriptions
        self._deletion = deletion
        self.bytes_in_flight = bytes_in_flight

    async def Append(  # noqa: N802 - the name in the proto
        self, _requests: AsyncIterator[partition_store_pb2.AppendRequest], context: Context
    ) -> None:
        """Append batches, and answer with offsets in the order of the requests."""
        stream = AppendStream(self._append, self.bytes_in_flight, caller_of(context), context)
        await until_gone(stream.run())

    async def Fetch(  # noqa: N802
        self, _requests: AsyncIterator[partition_store_pb2.FetchRequest], context: Context
    ) -> None:
        """Answer each pull once, when there is enough to read or its wait has ended."""
        stream = FetchStream(self._fetch, self.bytes_in_flight, caller_of(context), context)
        await until_gone(stream.run())

    async def ListOffsets(  # noqa: N802
        self, request: partition_store_pb2.ListOffsetsRequest, context: Context
    ) -> partition_store_pb2.ListOffsetsResponse:
        """Return offsets by time or by mark, one answer for each query, in their order."""
        await _check_count(len(request.queries), context)
        caller = caller_of(context)
        return partition_store_pb2.ListOffsetsResponse(
            answers=[
                await self._offsets.answer(caller, query, read_committed=request.read_committed)
                for query in request.queries
            ]
        )

    async def FindEpochEnds(  # noqa: N802
        self, request: partition_store_pb2.FindEpochEndsRequest, context: Context
    ) -> partition_store_pb2.FindEpochEndsResponse:
        """Return the ends of leader epochs, one answer for each query, in their order."""
        await _check_count(len(request.queries), context)
        caller = caller_of(context)
        return partition_store_pb2.FindEpochEndsResponse(
            answers=[self._offsets.epoch_end(caller, query) for query in request.queries]
        )

    async def DeleteRecords(  # noqa: N802
        self, request: partition_store_pb2.DeleteRecordsRequest, context: Context
    ) -> partition_store_pb2.DeleteRecordsResponse:
        """Delete the records of a partition below an offset, at every in-sync replica."""
        return await delete_records(self._deletion, request, caller_of(context).requester)

    async def DescribeEndpoints(  # noqa: N802
        self, _request: partition_store_pb2.DescribeEndpointsRequest, _context: Context
    ) -> partition_store_pb2.DescribeEndpointsResponse:
        """Describe the live brokers."""
        return self._descriptions.describe_endpoints()

    async def DescribeTopics(  # noqa: N802
        self, request: partition_store_pb2.DescribeTopicsRequest, context: Context
    ) -> partition_store_pb2.DescribeTopicsResponse:
        """Describe topics and the leaders of their partitions."""
        return await self._descriptions.describe_topics(caller_of(context), request)

    async def InitProducerId(  # noqa: N802
        self, request: partition_store_pb2.InitProducerIdRequest, context: Context
    ) -> partition_store_pb2.InitProducerIdResponse:
        """Return an idempotent producer's id."""
        return await self._descriptions.init_producer_id(caller_of(context), request)


async def _check_count(queries: int, context: Context) -> None:
    if queries > OFFSET_QUERIES_MAX:
        await context.abort(
            grpc.StatusCode.INVALID_ARGUMENT,
            f"{queries} queries; at most {OFFSET_QUERIES_MAX} in one call",
        )


def registration(service: PartitionStore) -> Callable[[Any], None]:
    """Return the function with which ``make_grpc_server`` registers the service."""

    def register(server: Any) -> None:
        add = partition_store_pb2_grpc.add_PartitionStoreServicer_to_server
        add(service, server)  # type: ignore[no-untyped-call]

    return register
