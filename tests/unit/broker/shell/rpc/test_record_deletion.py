"""DeleteRecords over gRPC: an owner deletes old state, and the log goes on knowing the owner."""

import asyncio

import pytest
from broker.core.producers import ProducerTable
from broker.shell.rpc.record_deletion import delete_records
from tidemark.codec.control_record import OwnerRecord, build_owner, read_control
from tidemark.codec.record_batch import iterate_headers
from tidemark.codec.records import build_batch
from tidemark.model.authorization import Requester
from tidemark.model.errors import ErrorCode
from tidemark.model.topics import SHARE_GROUP_STATE
from tidemark_wire.v1 import common_pb2
from tidemark_wire.v1 import partition_store_pb2 as pb
from unit.broker.shell.broker_worlds import World, topic

OWNER = 5


def shard() -> World:
    """The state of a shard: its owner, and three records."""
    world = World()
    world.show(topic(SHARE_GROUP_STATE, configs={"cleanup.policy": "delete"}))
    hosted, owner = world.hosted(SHARE_GROUP_STATE), OwnerRecord(OWNER)
    world.appender.append_internal(
        hosted, build_owner(owner, timestamp=world.clock.wall_ms()), control=owner
    )
    for _ in range(3):
        world.appender.append_internal(
            hosted, build_batch([(world.clock.wall_ms(), None, b"x", ())])
        )
    return world


def deleted(world: World, offset: int, owner_epoch: int) -> pb.DeleteRecordsResponse:
    """What a coordinator hears."""
    hosted = world.hosted(SHARE_GROUP_STATE)
    place = common_pb2.TopicPartition(
        topic=SHARE_GROUP_STATE, topic_id=hosted.topic_id, partition=0
    )
    request = pb.DeleteRecordsRequest(partition=place, offset=offset, owner_epoch=owner_epoch)
    deletion = world.parts.partitions.deletion
    return asyncio.run(delete_records(deletion, request, Requester("User:ANONYMOUS", "")))


def owner_of_what_is_left(world: World) -> int:
    """The owner that a replica knows which is made anew from the leader's log."""
    log = world.hosted(SHARE_GROUP_STATE).log
    read = log.read(log.log_start, 1 << 20, end=log.log_end)
    content = b"".join(one.file.read_at(one.position, one.length) for one in read.slices)
    producers = ProducerTable()
    for at, header in iterate_headers(memoryview(content)):
        batch = content[at : at + header.size_bytes]
        producers.replay(header, 0, read_control(batch, header) if header.is_control else None)
    return producers.owner_epoch


@pytest.mark.feature("E12")
@pytest.mark.parametrize(("offset", "log_start"), [(3, 3), (-1, 4)])
def test_a_replica_that_is_made_anew_knows_the_owner_whose_record_was_deleted(
    offset: int, log_start: int
) -> None:
    world = shard()
    answer = deleted(world, offset, OWNER)
    assert (answer.error_code, answer.log_start_offset) == (ErrorCode.NONE, log_start)
    assert owner_of_what_is_left(world) == OWNER


def test_an_earlier_owner_deletes_nothing() -> None:
    world = shard()
    answer = deleted(world, 3, OWNER - 1)
    assert answer.error_code == ErrorCode.TRANSACTION_COORDINATOR_FENCED
    log = world.hosted(SHARE_GROUP_STATE).log
    assert (log.log_start, log.log_end) == (0, 4)


def test_nothing_is_written_when_nothing_is_deleted() -> None:
    world = shard()
    for _ in range(2):
        deleted(world, 3, OWNER)
    assert world.hosted(SHARE_GROUP_STATE).log.log_end == 5
