"""Start offsets as administrators see and change them."""

import pytest
from share_coordinator.core.requests import (
    AlterOffsets,
    AlterOffsetsReply,
    DeleteOffsets,
    DeleteOffsetsReply,
    DescribedOffset,
    DescribeOffsets,
    DescribeOffsetsReply,
    NewOffset,
    NewOffsets,
    TopicPartitions,
)
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import Offset
from tidemark.model.share_state import DeliveryState, SharePartitionKey
from unit.broker.core.groups.consumer.worlds import topic_id
from unit.share_coordinator.worlds import G, World, batch

T = topic_id(1)
ACKNOWLEDGED = DeliveryState.ACKNOWLEDGED
NOT_FOUND, NON_EMPTY = ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.NON_EMPTY_GROUP


def an_empty_group() -> tuple[World, SharePartitionKey]:
    """Without members, at offset 10 with one acknowledged record."""
    world = World(t=2)
    world.join("a", "t")
    key = world.key("t", 0)
    world.write(key, batch(12, 12, ACKNOWLEDGED), start=10, complete=1)
    world.beat("a", -1)
    return world, key


def alter(world: World, partition: int, offset: int) -> AlterOffsetsReply:
    topics = (NewOffsets(T, "t", (NewOffset(partition, Offset(offset)),)),)
    return world.ask(AlterOffsets(G, topics), AlterOffsetsReply)


def delete(world: World, topic: str = "t", of: bytes = T) -> DeleteOffsetsReply:
    topics = (TopicPartitions(of, topic, ()),)  # type: ignore[arg-type]
    return world.ask(DeleteOffsets(G, topics), DeleteOffsetsReply)


def test_a_reset_forgets_deliveries_and_fences_the_window_before_it() -> None:
    world, key = an_empty_group()
    before = world.epoch_of(key)
    (topic,) = alter(world, 0, 3).topics
    assert topic.partitions[0].error_code is ErrorCode.NONE
    found = world.read(key)
    assert (found.start_offset, found.batches) == (3, ())
    assert found.state_epoch > before
    assert world.dropped() == [key]


def test_offsets_change_only_while_there_are_no_members() -> None:
    world, _ = an_empty_group()
    world.join("a", "t")
    log = list(world.log)
    assert alter(world, 0, 3).error_code is NON_EMPTY
    assert delete(world).error_code is NON_EMPTY
    assert world.log == log


def test_a_group_that_does_not_exist_has_no_offsets() -> None:
    world = World(t=1)
    described = world.ask(DescribeOffsets(G, None), DescribeOffsetsReply)
    codes = {described.error_code, alter(world, 0, 0).error_code, delete(world).error_code}
    assert codes == {NOT_FOUND}


@pytest.mark.parametrize(
    ("partition", "offset", "code"),
    [
        (2, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (-1, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (0, -1, ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_bad_offset_is_refused_by_itself(partition: int, offset: int, code: ErrorCode) -> None:
    world, key = an_empty_group()
    bad, good = NewOffset(partition, Offset(offset)), NewOffset(1, Offset(5))
    request = AlterOffsets(G, (NewOffsets(T, "t", (bad, good)),))
    (topic,) = world.ask(request, AlterOffsetsReply).topics
    assert [one.error_code for one in topic.partitions] == [code, ErrorCode.NONE]
    assert world.read(key).start_offset == 10
    assert world.read(world.key("t", 1)).start_offset == 5


def test_a_share_partition_may_begin_by_a_reset() -> None:
    world, _ = an_empty_group()
    world.topics.put("t", 3)
    alter(world, 2, 7)
    assert world.read(world.key("t", 2)).start_offset == 7
    world.join("a", "t")
    assert world.read(world.key("t", 2)).start_offset == 7


def test_offsets_are_described_with_what_lag_needs() -> None:
    world, _ = an_empty_group()
    (topic,) = world.ask(DescribeOffsets(G, None), DescribeOffsetsReply).topics
    assert (topic.topic, topic.topic_id) == ("t", T)
    assert topic.offsets == (
        DescribedOffset(0, Offset(10), 0, 1),
        DescribedOffset(1, Offset(-1), 0, -1),
    )


def test_an_offset_that_is_not_there_is_described_as_such() -> None:
    world, _ = an_empty_group()
    asked = (TopicPartitions(T, "t", (9,)),)
    (topic,) = world.ask(DescribeOffsets(G, asked), DescribeOffsetsReply).topics
    assert topic.offsets == (DescribedOffset(9, Offset(-1), -1, -1),)


def test_a_forgotten_topic_begins_as_a_new_one() -> None:
    world, key = an_empty_group()
    (topic,) = delete(world).topics
    assert topic.error_code is ErrorCode.NONE
    assert world.dropped() == [key, world.key("t", 1)]
    world.join("a", "t")
    assert world.read(key).start_offset == -1


def test_a_topic_without_offsets_cannot_be_forgotten() -> None:
    world, _ = an_empty_group()
    (topic,) = delete(world, "u", topic_id(5)).topics
    assert topic.error_code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
