"""Many share-partitions in one request: one append, and an answer for each."""

from tidemark.model.errors import ErrorCode
from tidemark.model.ids import LeaderEpoch
from tidemark.model.share_state import (
    DeliveryState,
    ReadState,
    ReadStateSummary,
    SharePartitionKey,
    StateRead,
    StateSummary,
)
from unit.broker.core.groups.consumer.worlds import topic_id
from unit.share_coordinator.worlds import G, World, a_write, batch

ACKNOWLEDGED = DeliveryState.ACKNOWLEDGED


def a_world() -> World:
    world = World(t=3)
    world.join("a", "t")
    return world


def test_one_decision_has_the_records_of_all() -> None:
    world = a_world()
    keys = [world.key("t", partition) for partition in range(3)]
    before = len(world.log)
    writes = [a_write(key, world.epoch_of(key), start=4) for key in keys]
    answers = world.ask_states(*writes)
    assert [(one.key, one.error_code) for one in answers] == [(key, ErrorCode.NONE) for key in keys]
    assert len(world.log) == before + 3


def test_one_that_is_refused_leaves_the_others_alone() -> None:
    world = a_world()
    fenced, good = world.key("t", 0), world.key("t", 1)
    answers = world.ask_states(
        a_write(fenced, 1, batch(0, 0, ACKNOWLEDGED), start=0),
        a_write(good, world.epoch_of(good), start=9),
    )
    assert [one.error_code for one in answers] == [ErrorCode.FENCED_STATE_EPOCH, ErrorCode.NONE]
    assert world.read(good).start_offset == 9


def test_a_share_partition_is_named_once() -> None:
    world = a_world()
    write = a_write(world.key("t", 0), world.epoch_of(world.key("t", 0)), start=0)
    answers = world.ask_states(write, write)
    assert [one.error_code for one in answers] == [ErrorCode.NONE, ErrorCode.INVALID_REQUEST]


def test_a_share_partition_is_of_the_requests_group() -> None:
    world = a_world()
    (answer,) = world.ask_states(ReadState(world.key("t", 0, "other"), LeaderEpoch(0)))
    assert isinstance(answer, StateRead)
    assert answer.error_code is ErrorCode.INVALID_REQUEST


def test_an_unknown_topic() -> None:
    world = a_world()
    key = SharePartitionKey(G, topic_id(9), 0)
    answers = world.ask_states(ReadStateSummary(key, LeaderEpoch(0)), group_id=G)
    assert isinstance(answers[0], StateSummary)
    assert answers[0].error_code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
