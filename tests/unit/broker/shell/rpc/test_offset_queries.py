"""FindEpochEnds over gRPC: what a consumer is told about the epochs of a log."""

import pytest
from tidemark.codec.records import build_batch
from tidemark.model.errors import ErrorCode
from tidemark_wire.v1 import common_pb2
from tidemark_wire.v1 import partition_store_pb2 as pb
from unit.broker.shell.broker_worlds import World, topic
from unit.broker.shell.rpc.peers import CALLER, offset_queries


def answer(world: World, place: common_pb2.TopicPartition) -> tuple[int, int, int]:
    epoch = world.hosted(topic().name).partition.leader_epoch
    query = pb.FindEpochEndsRequest.Query(
        partition=place, current_leader_epoch=epoch, leader_epoch=epoch
    )
    found = offset_queries(world.parts).epoch_end(CALLER, query)
    assert found.partition == place
    return found.error_code, found.leader_epoch - epoch, found.end_offset


def test_an_epoch_ends_with_the_log_of_its_leader() -> None:
    world = World()
    world.show(topic())
    hosted = world.hosted(topic().name)
    world.appender.append_internal(hosted, build_batch([(0, None, b"x", ())] * 3))
    place = common_pb2.TopicPartition(topic=topic().name, partition=0)
    assert answer(world, place) == (0, 0, 3)


@pytest.mark.parametrize(
    ("place", "error"),
    [
        ({"topic": "unknown"}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"topic_id": b"short"}, ErrorCode.INVALID_REQUEST),
    ],
)
def test_partitions_that_are_not_there_have_no_epochs(
    place: dict[str, object], error: ErrorCode
) -> None:
    world = World()
    world.show(topic())
    code, _, end = answer(world, common_pb2.TopicPartition(**place))  # type: ignore[arg-type]
    assert (code, end) == (error, -1)
