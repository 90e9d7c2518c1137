from dataclasses import replace

import pytest
from controller.core.cluster import Cluster
from controller.core.effects import Reply
from controller.core.inputs import AlterPartitions, IsrChange, IsrMember, RequestHeader
from controller.core.internal_topics import MOVES_MAX, asked_for, due_raise, extended
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import BrokerId
from tidemark.model.metadata import BrokerImage, InternalTopic, TopicImage
from unit.controller.worlds import (
    NEVER,
    World,
    a_broker,
    a_cluster,
    a_topic,
    applied,
    create,
    new_topic,
)

STATE = "__transaction_state"
WANTED = (InternalTopic(STATE, 3, 2), InternalTopic("__consumer_offsets", 3, 0))


def broker(number: int, **changes: object) -> BrokerImage:
    return a_broker(number, **{"internal_topics": WANTED, **changes})  # type: ignore[arg-type]


def cluster(topic: TopicImage, *brokers: BrokerImage) -> Cluster:
    return a_cluster(topic, brokers=brokers or tuple(map(broker, (1, 2, 3))))


def in_sync(topic: TopicImage) -> TopicImage:
    """The moves have ended: all replicas are there, and in sync."""
    partitions = tuple(
        replace(one, isr=one.replicas, adding=(), removing=()) for one in topic.partitions
    )
    return replace(topic, partitions=partitions)


def small(**configs: str) -> TopicImage:
    """Return the topic as an older release created it with one live broker."""
    return a_topic(STATE, (1,), (1,), configs=configs)


def test_a_topic_with_too_few_replicas_gets_more() -> None:
    made = cluster(small())
    applied(made, due_raise(made))
    for partition in made.image.topics[STATE].partitions:
        assert partition.replicas[0] == 1
        assert set(partition.replicas) == {1, 2, 3}
        assert set(partition.adding) == {2, 3}
        assert (partition.isr, partition.leader) == ((1,), 1)


def test_some_partitions_at_a_time() -> None:
    made = cluster(a_topic(STATE, *[(1,)] * 9))
    applied(made, due_raise(made))
    moving = [one for one in made.image.topics[STATE].partitions if one.is_reassigning]
    assert len(moving) == MOVES_MAX
    assert due_raise(made) is None


@pytest.mark.parametrize(
    "third",
    [broker(3, fenced=True), broker(3, shutting_down=True), broker(3, node="node-2")],
    ids=["fenced", "stopping", "on a machine that has one"],
)
def test_it_waits_for_enough_living_brokers(third: BrokerImage) -> None:
    made = cluster(small(), broker(1), broker(2), third)
    assert due_raise(made) is None


def test_another_rack_comes_first_then_the_least_loaded() -> None:
    racks = {1: "a", 2: "a", 3: "b", 4: "b"}
    brokers = [broker(number, rack=rack) for number, rack in racks.items()]
    made = a_cluster(a_topic("x", (3, 1)), small(), brokers=tuple(brokers))
    present = made.image.brokers
    assert extended((BrokerId(1),), present, made.loads, 2) == (1, 4)
    assert extended((BrokerId(1),), present, made.loads, 3) == (1, 4, 2)


def test_the_minimum_follows_once_all_are_in_sync() -> None:
    configs = {"min.insync.replicas": "1", "segment.bytes": "9"}
    whole = in_sync(a_topic(STATE, (1, 2, 3), (1, 2, 3), configs=configs))
    made = cluster(whole)
    applied(made, due_raise(made))
    assert made.image.topics[STATE].configs == {**configs, "min.insync.replicas": "2"}
    assert due_raise(made) is None


def test_the_minimum_stays_while_a_partition_would_refuse_writes() -> None:
    whole = a_topic(STATE, (1, 2, 3), configs={"min.insync.replicas": "1"})
    behind = replace(whole.partitions[0], isr=(BrokerId(1),))
    assert due_raise(cluster(replace(whole, partitions=(behind,)))) is None


def test_a_topic_as_configured_or_larger_is_left_alone() -> None:
    configs = {"min.insync.replicas": "3"}
    assert due_raise(cluster(a_topic(STATE, (1, 2, 3), configs=configs))) is None
    assert due_raise(cluster(a_topic("__consumer_offsets", (1, 2, 3)))) is None
    assert due_raise(cluster(a_topic("orders", (1,)))) is None


def test_the_least_that_a_living_broker_is_configured_for_counts() -> None:
    lower = broker(2, internal_topics=(InternalTopic(STATE, 1, 1),))
    silent, gone = broker(3, internal_topics=()), replace(lower, fenced=True)
    request = {one.name: one for one in asked_for([broker(1), lower, silent])}
    assert request[STATE] == InternalTopic(STATE, 1, 1)
    assert asked_for([broker(1), silent, gone]) == list(WANTED)


# The machine.


def propose_all(world: World) -> None:
    """The leader has seen every replica catch up."""
    assert world.machine.image is not None
    image = world.machine.image
    topic = image.topics[STATE]
    changes = tuple(
        IsrChange(
            topic.topic_id,
            one.partition,
            one.leader_epoch,
            one.partition_epoch,
            tuple(IsrMember(n, image.brokers[n].broker_epoch) for n in one.replicas),
        )
        for one in topic.partitions
    )
    leader = image.brokers[BrokerId(1)]
    request = AlterPartitions(
        RequestHeader(9, NEVER), leader.broker_id, leader.broker_epoch, changes
    )
    assert isinstance(world.ask(request), Reply)


def test_brokers_that_come_later_raise_the_topics_of_the_first_one() -> None:
    world = World()
    world.register(broker(1))
    made = new_topic(STATE, 2, 1, configs={"min.insync.replicas": "1"})
    assert world.ask(create(made)).error is ErrorCode.NONE
    for number in (2, 3):
        world.register(broker(number))
    propose_all(world)
    assert world.machine.image is not None
    topic = world.machine.image.topics[STATE]
    assert [len(one.isr) for one in topic.partitions] == [3, 3]
    assert topic.configs["min.insync.replicas"] == "2"
