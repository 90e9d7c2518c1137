"""A coordinator dies when only some records of a decision are safe, and no reply is sent. Wherever
the log is cut, the remaining members have all partitions in the end.
"""

from collections.abc import Callable, Sequence

import pytest
from broker.core.groups.requests import ConsumerGroupHeartbeat
from tidemark.codec.group_records_consumer import ConsumerRecord
from unit.broker.core.groups.consumer.worlds import (
    REBALANCE_MS,
    SESSION_MS,
    World,
    compacted,
    heartbeat,
    joining,
    said,
)

RECORDS_MAX = 14
"""More records than any of these decisions has."""

Decide = Callable[[World], Sequence[ConsumerRecord]]


def three_members() -> World:
    """Members ``m`` and ``n``, and ``s``, which is static."""
    world = World(a=6, b=2)
    world.join("m", "a", "b")
    world.join("n", "a", "b")
    world.join("s", "a", instance_id="i")
    world.settle("m", "n", "s")
    assert world.group.state == "Stable"
    return world


def asked(world: World, request: ConsumerGroupHeartbeat) -> Sequence[ConsumerRecord]:
    records, _ = world.decide(request)
    return records


def leaves(world: World) -> Sequence[ConsumerRecord]:
    return asked(world, heartbeat("n", -1))


def joins(world: World) -> Sequence[ConsumerRecord]:
    return asked(world, joining("o", "a"))


def is_silent(world: World) -> Sequence[ConsumerRecord]:
    world.now += SESSION_MS
    world.beat("m", world.epoch_of("m"))
    return world.group.wake(world.moment)


def returns(world: World) -> Sequence[ConsumerRecord]:
    world.beat("s", -2, instance_id="i")
    return asked(world, joining("t", "a", instance_id="i"))


def sees_more_partitions(world: World) -> Sequence[ConsumerRecord]:
    world.topics.put("b", 5)
    return asked(world, heartbeat("n", world.epoch_of("n")))


def has_a_pattern(world: World) -> None:
    world.beat("n", world.epoch_of("n"), subscribed_topic_names=(), subscribed_topic_regex=".*")
    world.settle("m", "n", "s")


def sees_a_topic_that_matches(world: World) -> Sequence[ConsumerRecord]:
    has_a_pattern(world)
    world.topics.put("b2", 3)
    return asked(world, heartbeat("m", world.epoch_of("m")))


def leaves_with_its_pattern(world: World) -> Sequence[ConsumerRecord]:
    has_a_pattern(world)
    return asked(world, heartbeat("n", -1))


def everything(member_id: str, epoch: int, world: World, *topics: str) -> ConsumerGroupHeartbeat:
    return heartbeat(
        member_id,
        epoch,
        rebalance_timeout_ms=REBALANCE_MS,
        subscribed_topic_names=topics,
        topic_partitions=said(world.has(member_id)),
    )


def go_on(world: World, *member_ids: str) -> None:
    """Run until all others are fenced, and nothing changes."""
    for _ in range(12):
        world.sleep(SESSION_MS // 9)
        world.settle(*member_ids, rounds=2)


@pytest.mark.feature("A09", "E13")
@pytest.mark.parametrize("compact", [False, True])
@pytest.mark.parametrize("cut", range(RECORDS_MAX))
@pytest.mark.parametrize(
    ("decide", "survivors"),
    [
        (leaves, "ms"),
        (joins, "mns"),
        (is_silent, "m"),
        (returns, "mn"),
        (sees_more_partitions, "mns"),
        (sees_a_topic_that_matches, "mns"),
        (leaves_with_its_pattern, "ms"),
    ],
)
def test_wherever_the_log_ends_who_goes_on_has_everything(
    decide: Decide, survivors: str, cut: int, compact: bool
) -> None:
    world = three_members()
    records = decide(world)
    assert len(records) < RECORDS_MAX
    world.append(records[:cut])
    world.log = compacted(world.log) if compact else world.log
    world.reload()
    go_on(world, *survivors)
    assert world.group.state == "Stable"
    wanted = world.topics.names() if "n" in survivors else "ab"
    assert set().union(*map(world.has, survivors)) == world.topics.all(*wanted)
    patterns = {one.subscription.regex for one in world.group.logged.members.values()}
    assert world.group.logged.matches.keys() == patterns - {None}


@pytest.mark.parametrize("cut", range(RECORDS_MAX))
def test_who_did_not_hear_that_it_subscribed_anew_says_so_again(cut: int) -> None:
    world = three_members()
    epoch = world.epoch_of("n")
    request = everything("n", epoch, world, "a")
    world.append(asked(world, request)[:cut])
    world.reload()
    world.ask(everything("n", epoch, world, "a"))
    go_on(world, "m", "n", "s")
    assert world.group.state == "Stable"
    assert world.has("m") >= world.topics.all("b")
    assert world.has("m") | world.has("n") | world.has("s") == world.topics.all("a", "b")
