"""Additions and ends on their way to a txn-coordinator behind a real gRPC server."""

import random
from typing import Any

import grpc.aio
import pytest
from broker.shell.transactions.txn_relay import Producer, TxnRelay
from broker.shell.wire_mapping import Caller
from tidemark.model.authorization import PROCESS, Requester
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import ControllerEpoch
from tidemark.model.metadata import TXN, ClusterImage, CoordinatorImage, FeedPosition, ShardOwner
from tidemark.model.topics import TopicPartition
from tidemark.runtime.channel_pool import ChannelPool
from tidemark.runtime.metadata_cache import MetadataCache
from tidemark_wire.v1 import txn_pb2 as pb
from tidemark_wire.v1 import txn_pb2_grpc
from virtual_time import run_skipping
from waiting import patience

CALLER = Caller(Requester(PROCESS, ""), "c", "r")
PRODUCER = Producer("t", 7, 0)
A0 = TopicPartition("a", 0)


class Coordinator(txn_pb2_grpc.TransactionCoordinatorServicer):
    """Answers calls."""

    def __init__(self) -> None:
        self.came: list[str] = []

    def added(self) -> Any:
        result = pb.AddPartitionsResponse.Result(topic="a", partition=0)
        return pb.AddPartitionsResponse(results=[result])

    def ended(self) -> Any:
        return pb.EndTransactionResponse(producer_id=7, producer_epoch=1)

    async def AddPartitions(self, request: Any, context: Any) -> Any:  # noqa: N802
        self.came.append("AddPartitions")
        return self.added()

    async def EndTransaction(self, request: Any, context: Any) -> Any:  # noqa: N802
        self.came.append("EndTransaction")
        return self.ended()


class Streams(txn_pb2_grpc.TransactionStreamsServicer):
    """Answers on streams, and notes each that is opened."""

    def __init__(self, calls: Coordinator) -> None:
        self._calls = calls

    async def StreamAdditions(self, requests: Any, context: Any) -> None:  # noqa: N802
        self._calls.came.append("StreamAdditions")
        async for _ in requests:
            await context.write(self._calls.added())

    async def StreamEnds(self, requests: Any, context: Any) -> None:  # noqa: N802
        self._calls.came.append("StreamEnds")
        async for _ in requests:
            await context.write(self._calls.ended())


def image_of(endpoint: str) -> ClusterImage:
    one = CoordinatorImage(TXN, 1, b"", endpoint)
    return ClusterImage(
        position=FeedPosition(ControllerEpoch(1), 1),
        coordinators={one.key: one},
        shards={TXN: (ShardOwner(0, 1, 1),)},
    )


@pytest.mark.parametrize(
    ("has_streams", "came"),
    [
        (True, ["StreamAdditions", "StreamEnds"]),
        (False, ["AddPartitions", "EndTransaction", "AddPartitions", "EndTransaction"]),
    ],
)
def test_additions_and_ends_share_a_stream_each_if_the_coordinator_has_streams(
    has_streams: bool, came: list[str]
) -> None:
    async def main() -> list[str]:
        server, channels, coordinator = grpc.aio.server(), ChannelPool(), Coordinator()
        txn_pb2_grpc.add_TransactionCoordinatorServicer_to_server(coordinator, server)
        if has_streams:
            txn_pb2_grpc.add_TransactionStreamsServicer_to_server(Streams(coordinator), server)
        endpoint = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        await server.start()
        relay = TxnRelay(MetadataCache(image_of(endpoint)), channels, random.random)
        async with patience():
            for _ in range(2):
                added = await relay.add_partitions(CALLER, PRODUCER, [A0])
                ended = await relay.end(CALLER, PRODUCER, commit=True, transactions_v2=True)
                assert (added, ended.producer_epoch) == ({A0: ErrorCode.NONE}, 1)
        await relay.close()
        await server.stop(None)
        return coordinator.came

    assert run_skipping(main()) == came
