"""Lag of share groups, from leaders over real gRPC."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc.aio
import pytest
from broker.shell.groups.share_groups import StartOffset, TopicStartOffsets
from broker.shell.groups.share_lag import Lags, ShareLag
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import BrokerEpoch, BrokerId
from tidemark.model.metadata import BrokerImage, ClusterImage, TopicImage
from tidemark.runtime.channel_pool import ChannelPool
from tidemark.runtime.metadata_cache import MetadataCache
from tidemark_wire.v1 import partition_store_pb2 as pb
from tidemark_wire.v1 import partition_store_pb2_grpc
from unit.broker.shell.broker_worlds import ME, topic
from virtual_time import run_skipping

ORDERS = topic(partitions=2)


class Leader(partition_store_pb2_grpc.PartitionStoreServicer):
    """Ends of 100 (90 for read_committed); partition 1 has moved."""

    async def ListOffsets(self, request: Any, context: Any) -> Any:  # noqa: N802
        answer = pb.ListOffsetsResponse.Answer
        end = 90 if request.read_committed else 100
        moved = ErrorCode.NOT_LEADER_OR_FOLLOWER
        return pb.ListOffsetsResponse(
            answers=[
                answer(error_code=moved) if one.partition.partition else answer(offset=end)
                for one in request.queries
            ]
        )


@asynccontextmanager
async def leader() -> AsyncIterator[str]:
    server = grpc.aio.server()
    add: Any = partition_store_pb2_grpc.add_PartitionStoreServicer_to_server
    add(Leader(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    yield f"127.0.0.1:{port}"
    await server.stop(None)


def image(endpoint: str, *topics: TopicImage, isolation: str = "") -> ClusterImage:
    broker = BrokerImage(ME, BrokerEpoch(1), b"", (), endpoint, None, "n", fenced=False)
    configs = {"g": {"share.isolation.level": isolation}} if isolation else {}
    return ClusterImage(
        brokers={BrokerId(ME): broker},
        topics={one.name: one for one in topics},
        group_configs=configs,
    )


def lags(*offsets: StartOffset, isolation: str = "", is_live: bool = True) -> Lags:
    async def look_up() -> Lags:
        async with leader() as endpoint:
            shown = image(endpoint if is_live else "127.0.0.1:1", ORDERS, isolation=isolation)
            channels = ChannelPool()
            try:
                topics = [TopicStartOffsets(ORDERS.topic_id, "orders", offsets)]
                return await ShareLag(MetadataCache(shown), channels).of("g", topics)
            finally:
                await channels.close()

    return run_skipping(look_up())


@pytest.mark.parametrize(("isolation", "lag"), [("", 57), ("read_committed", 47)])
def test_lag_is_what_is_left_to_deliver(isolation: str, lag: int) -> None:
    found = lags(StartOffset(0, 40, 1, delivery_complete_count=3), isolation=isolation)
    assert found == {(ORDERS.topic_id, 0): lag}


def test_lag_is_never_below_zero() -> None:
    found = lags(StartOffset(0, 101, 1, delivery_complete_count=0))
    assert found == {(ORDERS.topic_id, 0): 0}


@pytest.mark.parametrize(
    "offset",
    [
        StartOffset(0, -1, 1, delivery_complete_count=0),
        StartOffset(0, 40, 1, delivery_complete_count=-1),
        StartOffset(1, 40, 1, delivery_complete_count=0),
        StartOffset(7, 40, 1, delivery_complete_count=0),
    ],
    ids=["not read yet", "count unknown", "leader moved", "no such partition"],
)
def test_lag_may_be_unknown(offset: StartOffset) -> None:
    assert lags(offset) == {}


def test_a_leader_that_does_not_answer_leaves_lag_unknown() -> None:
    assert lags(StartOffset(0, 40, 1, delivery_complete_count=0), is_live=False) == {}
