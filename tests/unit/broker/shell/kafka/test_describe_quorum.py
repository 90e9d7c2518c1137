"""DescribeQuorum: the feed of the active controller in the form of Kafka's quorum."""

import pytest
from tidemark.kafka.apis import ApiKey
from tidemark.kafka.long_tail import Struct
from tidemark.model.errors import ErrorCode
from tidemark_wire.v1 import common_pb2
from tidemark_wire.v1 import controller_pb2 as pb
from unit.broker.shell.kafka.conftest import Ask, StubController

NOW_MS = 1_700_000_000_000


def at(epoch: int, version: int) -> common_pb2.FeedPosition:
    return common_pb2.FeedPosition(controller_epoch=epoch, version=version)


def subscriber(name: str, epoch: int, version: int) -> pb.DescribeFeedResponse.Subscriber:
    return pb.DescribeFeedResponse.Subscriber(name=name, applied=at(epoch, version))


@pytest.fixture
def feed(controller: StubController) -> StubController:
    controller.answers["DescribeFeed"] = pb.DescribeFeedResponse(
        controller_id=7,
        grpc_endpoint="10.0.0.1:9093",
        position=at(3, 20),
        subscribers=[
            subscriber("broker-2", 3, 18),
            subscriber("broker-1", 3, 20),
            subscriber("broker-2", 2, 99),
            subscriber("broker-3", 2, 99),
            subscriber("txn-coordinator-1", 3, 20),
        ],
    )
    return controller


def quorum(ask: Ask, version: int | None = None, topic: str = "__cluster_metadata") -> Struct:
    topics = [{"topic_name": topic, "partitions": [{"partition_index": 0}]}]
    return ask(ApiKey.DESCRIBE_QUORUM, {"topics": topics}, version)


@pytest.mark.parametrize("version", range(3))
def test_the_active_controller_leads_and_brokers_observe(
    ask: Ask, feed: StubController, version: int
) -> None:
    (partition,) = quorum(ask, version).topics[0].partitions
    assert (partition.leader_id, partition.leader_epoch, partition.high_watermark) == (7, 3, 20)
    assert [(one.replica_id, one.log_end_offset) for one in partition.current_voters] == [(7, 20)]
    observers = [(one.replica_id, one.log_end_offset) for one in partition.observers]
    assert observers == [(1, 20), (2, 18), (3, 0)]


def test_only_who_has_all_of_it_is_caught_up_now(ask: Ask, feed: StubController) -> None:
    (partition,) = quorum(ask).topics[0].partitions
    times = [one.last_caught_up_timestamp for one in partition.observers]
    assert times == [NOW_MS, -1, -1]


def test_the_controller_is_named_with_its_address(ask: Ask, feed: StubController) -> None:
    (node,) = quorum(ask).nodes
    (listener,) = node.listeners
    assert (node.node_id, listener.name, listener.host, listener.port) == (
        *(7, "GRPC"),
        *("10.0.0.1", 9093),
    )


def test_another_partition_is_unknown(ask: Ask, controller: StubController) -> None:
    (partition,) = quorum(ask, topic="orders").topics[0].partitions
    assert partition.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert controller.asked == []


def test_an_error_of_the_controller_is_answered(ask: Ask, controller: StubController) -> None:
    denied = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    controller.answers["DescribeFeed"] = pb.DescribeFeedResponse(error_code=denied)
    answer = quorum(ask)
    assert (answer.error_code, answer.topics) == (denied, [])
