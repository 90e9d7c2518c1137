"""Brokers that note the markers they are sent, behind real gRPC servers on loopback."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import grpc
import grpc.aio
from tidemark.model.errors import ErrorCode
from tidemark.model.metadata import ClusterImage
from tidemark.model.topics import TopicPartition
from tidemark.runtime.kept_streams import answer_each
from tidemark_wire.v1 import txn_pb2 as pb
from tidemark_wire.v1 import txn_pb2_grpc
from unit.txn_coordinator import marker_images


class MarkerBroker(txn_pb2_grpc.TransactionMarkersServicer):
    """Answers NONE, or what ``refusals`` holds for a partition: one code a request."""

    def __init__(self, broker_id: int) -> None:
        self.broker_id = broker_id
        self.endpoint = ""
        self.refusals: dict[TopicPartition, list[ErrorCode]] = {}
        self.requests: list[pb.WriteMarkersRequest] = []
        self.has_streams = True
        """False: of a release that has calls only."""
        self.streams = 0
        self.was_asked = asyncio.Event()
        self.gate = asyncio.Event()
        self.gate.set()

    async def WriteMarkers(  # noqa: N802
        self, request: pb.WriteMarkersRequest, context: Any
    ) -> pb.WriteMarkersResponse:
        self.requests.append(request)
        self.was_asked.set()
        await self.gate.wait()
        return pb.WriteMarkersResponse(
            markers=[
                pb.WriteMarkersResponse.Marker(
                    results=[
                        pb.WriteMarkersResponse.Result(error_code=self._answer(target))
                        for target in marker.targets
                    ]
                )
                for marker in request.markers
            ]
        )

    async def StreamMarkers(self, requests: Any, context: Any) -> None:  # noqa: N802
        del requests
        if not self.has_streams:
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, "no such method")
        self.streams += 1
        await answer_each(self.WriteMarkers, context, asyncio.Event())

    def _answer(self, target: Any) -> ErrorCode:
        codes = self.refusals.get(TopicPartition(target.topic, target.partition))
        return codes.pop(0) if codes else ErrorCode.NONE

    def targets(self) -> list[list[str]]:
        """Partitions of each request, as text."""
        return [
            [
                f"{target.topic}-{target.partition}"
                for one in request.markers
                for target in one.targets
            ]
            for request in self.requests
        ]


@asynccontextmanager
async def marker_brokers(count: int) -> AsyncIterator[list[MarkerBroker]]:
    """So many, with numbers from 1."""
    made = [MarkerBroker(number) for number in range(1, count + 1)]
    async with AsyncExitStack() as stack:
        for broker in made:
            server = grpc.aio.server()
            txn_pb2_grpc.add_TransactionMarkersServicer_to_server(broker, server)
            broker.endpoint = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
            await server.start()
            stack.push_async_callback(server.stop, None)
        yield made


def image_of(
    version: int, made: Sequence[MarkerBroker], leaders: Mapping[str, Sequence[int]]
) -> ClusterImage:
    """Metadata: ``leaders`` has the leader of each partition of each topic (-1: none)."""
    endpoints = {broker.broker_id: broker.endpoint for broker in made}
    return marker_images.image_of(version, endpoints, leaders)
