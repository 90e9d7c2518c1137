"""Events are found by comparing images, whatever happened in between."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from controller.admin.events import KEPT_MAX, PER_CHANGE_MAX, EventLog, changes
from manual_clock import ManualClock
from tidemark.model.ids import BrokerId, LeaderEpoch, PartitionEpoch, TopicId
from tidemark.model.metadata import BrokerImage, ClusterImage, PartitionImage, TopicImage
from unit.controller.worlds import a_broker

ONE, TWO, THREE = BrokerId(1), BrokerId(2), BrokerId(3)
HERE = PartitionImage(0, (ONE, TWO), (ONE, TWO), ONE, LeaderEpoch(0), PartitionEpoch(0))
UNDER_WAY = replace(HERE, replicas=(THREE, ONE, TWO), adding=(THREE,), removing=(TWO,))
MOVED = replace(HERE, replicas=(THREE, ONE))


def image(partition: PartitionImage) -> ClusterImage:
    topic = TopicImage("orders", TopicId(bytes(16)), {}, (partition,))
    return ClusterImage(cluster_id="here", topics={topic.name: topic})


@pytest.mark.parametrize(
    ("before", "after", "kinds"),
    [
        (HERE, UNDER_WAY, ["reassignment-started"]),
        (UNDER_WAY, MOVED, ["reassignment-ended"]),
        (HERE, MOVED, ["reassignment-ended"]),
        (HERE, replace(HERE, replicas=(TWO, ONE)), []),
        (HERE, replace(HERE, leader=TWO, isr=(TWO,)), ["leader-changed", "isr-changed"]),
    ],
)
def test_a_move_is_an_event_however_short(
    before: PartitionImage, after: PartitionImage, kinds: list[str]
) -> None:
    assert [kind for kind, _, _ in changes(image(before), image(after))] == kinds


EMPTY = ClusterImage(cluster_id="here")
SOME = image(HERE)
ORDERS = SOME.topics["orders"]


def with_topic(**fields: Any) -> ClusterImage:
    return replace(SOME, topics={"orders": replace(ORDERS, **fields)})


@pytest.mark.parametrize(
    ("before", "after", "event"),
    [
        (EMPTY, SOME, ("topic-created", "orders", "topic orders was created with 1 partitions")),
        (SOME, EMPTY, ("topic-deleted", "orders", "topic orders was deleted")),
        (
            SOME,
            with_topic(partitions=(HERE, replace(HERE, partition=1))),
            ("partitions-added", "orders", "topic orders has 2 partitions, had 1"),
        ),
        (
            with_topic(configs={"retention.ms": "1", "segment.ms": "5"}),
            with_topic(configs={"retention.ms": "2", "segment.ms": "5"}),
            ("config-changed", "orders", "configuration of orders: retention.ms"),
        ),
        (
            SOME,
            with_topic(topic_id=TopicId(bytes([1] * 16))),
            ("topic-created", "orders", "topic orders was created with 1 partitions"),
        ),
        (
            SOME,
            replace(SOME, broker_configs={"1": {"a": "b"}}),
            ("config-changed", "broker 1", "configuration of broker 1 has changed"),
        ),
    ],
)
def test_a_change_of_topics_and_settings_is_an_event(
    before: ClusterImage, after: ClusterImage, event: tuple[str, str, str]
) -> None:
    assert list(changes(before, after)) == [event]


FENCED, ONLINE = a_broker(1, fenced=True), a_broker(1)


@pytest.mark.parametrize(
    ("before", "after", "kinds"),
    [
        (None, FENCED, ["broker-registered"]),
        (FENCED, ONLINE, ["broker-online"]),
        (ONLINE, FENCED, ["broker-fenced"]),
        (ONLINE, replace(ONLINE, shutting_down=True), ["broker-stopping"]),
        (ONLINE, ONLINE, []),
    ],
)
def test_a_change_of_a_broker_is_an_event(
    before: BrokerImage | None, after: BrokerImage, kinds: list[str]
) -> None:
    first = replace(EMPTY, brokers={} if before is None else {ONE: before})
    second = replace(EMPTY, brokers={ONE: after})
    assert [kind for kind, _, _ in changes(first, second)] == kinds


def a_log(*subjects: str) -> EventLog:
    log = EventLog(lambda: EMPTY, ManualClock())
    for subject in subjects:
        log.add(iter([("leader-changed", subject, "")]))
    return log


def test_events_after_an_id_are_in_order() -> None:
    log = a_log("a", "b", "c")
    assert [(one.event_id, one.subject) for one in log.after(1)] == [(2, "b"), (3, "c")]
    assert (log.last_id, log.after(3)) == (3, [])


def test_the_latest_events_are_kept() -> None:
    log = a_log(*map(str, range(KEPT_MAX + 5)))
    assert len(log.after(0)) == KEPT_MAX
    assert (log.after(0)[0].event_id, log.last_id) == (6, KEPT_MAX + 5)


def test_a_change_of_everything_is_some_events_and_a_count() -> None:
    log = a_log()
    log.add(("isr-changed", str(number), "") for number in range(PER_CHANGE_MAX + 7))
    assert len(log.after(0)) == PER_CHANGE_MAX + 1
    last = log.after(PER_CHANGE_MAX)[0]
    assert (last.type, last.message) == ("more", "7 further changes at the same time")


@pytest.mark.feature("AD13")
def test_an_event_wakes_those_that_wait() -> None:
    async def body() -> None:
        log = a_log("before")
        async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
            waiting = tasks.create_task(log.wait())
            await asyncio.sleep(0)
            log.add(iter([]))
            await asyncio.sleep(0)
            assert not waiting.done()
            log.add(iter([("leader-changed", "a", "")]))

    asyncio.run(body())
