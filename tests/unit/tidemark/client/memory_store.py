"""A PartitionStore over a cluster in memory: the client's gRPC side meets real gRPC."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc.aio
from tidemark.client.wire.transport import (
    EpochItem,
    FetchItem,
    FetchLimits,
    OffsetItem,
    ProduceItem,
)
from tidemark.model.topics import TopicPartition
from tidemark_wire.v1 import partition_store_pb2 as pb
from tidemark_wire.v1 import partition_store_pb2_grpc
from unit.tidemark.client.memory_transport import MemoryTransport


class MemoryStore(partition_store_pb2_grpc.PartitionStoreServicer):
    """One broker, which leads every partition."""

    def __init__(self, cluster: MemoryTransport, address: str) -> None:
        self.cluster = cluster
        self.address = address
        self.streams = 0
        self.breaks = 0
        self.tells_aborted = True
        self.tells_epoch_ends = True
        cluster.leaders = dict.fromkeys(cluster.leaders, 1)

    async def DescribeEndpoints(self, request: Any, context: Any) -> Any:  # noqa: N802
        broker = pb.DescribeEndpointsResponse.Broker(
            broker_id=1, grpc_endpoint=self.address, kafka_host="kafka.example", kafka_port=9092
        )
        return pb.DescribeEndpointsResponse(cluster_id="memory", brokers=[broker])

    async def DescribeTopics(self, request: Any, context: Any) -> Any:  # noqa: N802
        view = await self.cluster.describe(list(request.topics) or None, auto_create=False)
        topics = [
            pb.DescribeTopicsResponse.Topic(
                topic=topic.topic,
                topic_id=topic.topic_id,
                error_code=topic.error_code,
                partitions=[
                    pb.DescribeTopicsResponse.Partition(
                        partition=each.partition, leader=each.leader, leader_epoch=each.leader_epoch
                    )
                    for each in topic.partitions
                ],
            )
            for topic in view.topics.values()
        ]
        return pb.DescribeTopicsResponse(topics=topics)

    async def InitProducerId(self, request: Any, context: Any) -> Any:  # noqa: N802
        identity = await self.cluster.init_producer_id()
        return pb.InitProducerIdResponse(
            producer_id=identity.producer_id, producer_epoch=identity.producer_epoch
        )

    async def Append(self, requests: Any, context: Any) -> AsyncIterator[Any]:  # noqa: N802
        self.streams += 1
        async for request in requests:
            item = ProduceItem(_partition(request), b"", -1, request.batches)
            (outcome,) = await self.cluster.produce(1, [item], acks=-1, timeout_ms=1_000)
            if self.breaks:
                self.breaks -= 1
                await context.abort(grpc.StatusCode.UNAVAILABLE, "broken on purpose")
            yield pb.AppendResponse(
                correlation_id=request.correlation_id,
                error_code=outcome.error_code,
                base_offset=outcome.base_offset,
                log_append_time_ms=-1,
            )

    async def Fetch(self, requests: Any, context: Any) -> AsyncIterator[Any]:  # noqa: N802
        self.streams += 1
        answers: list[asyncio.Task[Any]] = []
        async with asyncio.TaskGroup() as group:
            async for request in requests:
                answers.append(group.create_task(self._fetch(request)))
                while answers:
                    yield await answers.pop(0)

    async def _fetch(self, request: Any) -> Any:
        epoch = request.current_leader_epoch
        item = FetchItem(_partition(request), b"", epoch, request.fetch_offset)
        limits = FetchLimits(
            request.wait_ms_max,
            request.bytes_min,
            request.bytes_max,
            request.bytes_max,
            request.read_committed,
        )
        (outcome,) = await self.cluster.fetch(1, [item], limits)
        return pb.FetchResponse(
            correlation_id=request.correlation_id,
            error_code=outcome.error_code,
            batches=bytes(outcome.records),
            high_watermark=outcome.high_watermark,
            last_stable_offset=outcome.last_stable,
            log_start_offset=outcome.log_start,
            aborted=[
                pb.FetchResponse.AbortedTransaction(producer_id=producer_id, first_offset=first)
                for producer_id, first in outcome.aborted
                if self.tells_aborted
            ],
            read_committed=request.read_committed and self.tells_aborted,
        )

    async def FindEpochEnds(self, request: Any, context: Any) -> Any:  # noqa: N802
        if not self.tells_epoch_ends:
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, "an older release")
        items = [
            EpochItem(_partition(each), each.current_leader_epoch, each.leader_epoch)
            for each in request.queries
        ]
        answers = [
            pb.FindEpochEndsResponse.Answer(
                partition=query.partition,
                error_code=outcome.error_code,
                leader_epoch=outcome.epoch,
                end_offset=outcome.end_offset,
            )
            for query, outcome in zip(
                request.queries, await self.cluster.epoch_ends(1, items), strict=True
            )
        ]
        return pb.FindEpochEndsResponse(answers=answers)

    async def ListOffsets(self, request: Any, context: Any) -> Any:  # noqa: N802
        items = [
            OffsetItem(_partition(each), b"", -1, each.timestamp_ms) for each in request.queries
        ]
        outcomes = await self.cluster.list_offsets(1, items, read_committed=request.read_committed)
        answers = [
            pb.ListOffsetsResponse.Answer(
                partition=query.partition,
                error_code=outcome.error_code,
                offset=outcome.offset,
                timestamp_ms=outcome.timestamp_ms,
            )
            for query, outcome in zip(request.queries, outcomes, strict=True)
        ]
        return pb.ListOffsetsResponse(answers=answers)


def _partition(message: Any) -> TopicPartition:
    return TopicPartition(message.partition.topic, message.partition.partition)


@asynccontextmanager
async def serving(cluster: MemoryTransport) -> AsyncIterator[MemoryStore]:
    """A server on a free port of loopback."""
    server = grpc.aio.server()
    port = server.add_insecure_port("127.0.0.1:0")
    store = MemoryStore(cluster, f"127.0.0.1:{port}")
    partition_store_pb2_grpc.add_PartitionStoreServicer_to_server(store, server)
    await server.start()
    try:
        yield store
    finally:
        await server.stop(None)
