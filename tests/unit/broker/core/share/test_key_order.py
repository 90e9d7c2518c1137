"""Order of records of one key among members."""

from collections.abc import Sequence

import pytest
from broker.core.share.acquisition import LogBatch
from broker.core.share.key_order import KeyOrder
from broker.core.share.settings import ShareSettings
from tidemark.model.ids import Offset
from unit.broker.core.share.share_worlds import (
    ACCEPT,
    ACQUIRED,
    ARCHIVED,
    AVAILABLE,
    LOCK_MS,
    REJECT,
    RELEASE,
    ShareWorld,
    say,
    state_batch,
)

KEYED = ShareSettings(lock_ms=LOCK_MS, is_key_ordered=True, release_backoff_max_ms=500)


def world_of(*batches: str, settings: ShareSettings = KEYED) -> ShareWorld:
    """Each batch: a letter for the key of each record, '-' for none, ' ' for no record."""
    world = ShareWorld(settings)
    world.log = []
    first = 0
    for batch in batches:
        keys = {
            Offset(first + index): None if letter == "-" else ord(letter)
            for index, letter in enumerate(batch)
            if letter != " "
        }
        world.log.append(LogBatch(Offset(first), Offset(first + len(batch) - 1), keys=keys))
        first += len(batch)
    return world.load()


def offsets(acquired: Sequence[tuple[int, int, int]]) -> list[int]:
    return [offset for first, last, _ in acquired for offset in range(first, last + 1)]


def test_one_member_may_take_several_records_of_a_key() -> None:
    assert offsets(world_of("aabb").fetch("m1")) == [0, 1, 2, 3]


def test_another_member_waits_for_a_key_and_takes_other_ones() -> None:
    world = world_of("ab", "acad")
    assert offsets(world.fetch("m1", records=1)) == [0, 1]
    assert offsets(world.fetch("m2")) == [3, 5]
    assert world.story() == [
        "0-1 ACQUIRED 1 m1",
        "2-2 AVAILABLE 0",
        "3-3 ACQUIRED 1 m2",
        "4-4 AVAILABLE 0",
        "5-5 ACQUIRED 1 m2",
    ]


def test_the_holder_of_a_key_takes_more_of_it() -> None:
    world = world_of("a", "a")
    world.fetch("m1", records=1)
    assert world.fetch("m2") == []
    assert offsets(world.fetch("m1")) == [1]


@pytest.mark.parametrize("kind", [ACCEPT, REJECT])
def test_a_key_is_free_once_its_records_are_finished(kind: int) -> None:
    world = world_of("a", "a")
    world.fetch("m1", records=1)
    assert world.acknowledge(say(0, 0, kind)) is None
    assert world.fetch("m2") == [], "not before it is written"
    world.write()
    assert offsets(world.fetch("m2")) == [1]


def test_a_released_record_comes_before_later_ones_of_its_key() -> None:
    world = world_of("a", "a", "b")
    world.fetch("m1", records=1)
    world.done(say(0, 0, RELEASE, delay_ms=500))
    assert offsets(world.fetch("m2")) == [2]
    world.pass_time(500)
    assert offsets(world.fetch("m2")) == [0, 1]


def test_a_released_record_waits_while_a_later_one_of_its_key_is_held() -> None:
    world = world_of("aa", "b")
    world.fetch("m1", records=2)
    world.done(say(0, 0, RELEASE))
    assert offsets(world.fetch("m2")) == [2]
    assert offsets(world.fetch("m1")) == [0]


def test_records_without_a_key_wait_for_nothing() -> None:
    world = world_of("--", "--")
    assert offsets(world.fetch("m1", records=2)) == [0, 1]
    assert offsets(world.fetch("m2")) == [2, 3]


def test_offsets_without_a_record_are_archived() -> None:
    world = world_of("a  b")
    assert offsets(world.fetch("m1")) == [0, 3]
    assert "1-2 ARCHIVED 0" in world.story()


def test_a_read_begins_where_a_member_may_take_something() -> None:
    world = world_of("aaaa", "b")
    world.fetch("m1", records=1)
    world.done(say(1, 3, RELEASE))
    plan = world.share.plan_read(world.now, "m2")
    assert plan == (4, None)
    assert world.share.plan_read(world.now, "m1") == (1, None)


def test_with_an_order_the_window_is_bounded_exactly() -> None:
    settings = ShareSettings(is_key_ordered=True, records_max=3)
    world = world_of("aa", "abc", settings=settings)
    assert offsets(world.fetch("m1", records=9)) == [0, 1, 2]
    assert world.fetch("m2") == []


def test_a_lock_that_ends_frees_its_keys() -> None:
    world = world_of("a", "a")
    world.fetch("m1", records=1)
    world.pass_time(LOCK_MS)
    assert offsets(world.fetch("m2")) == [0, 1]


def test_what_the_log_dropped_frees_its_keys() -> None:
    world = world_of("a", "a")
    world.fetch("m1", records=1)
    world.share.log_start_moved(Offset(1), world.now)
    assert offsets(world.fetch("m2")) == [1]


def test_a_new_leader_keeps_the_order_of_what_it_reads() -> None:
    world = world_of("aab")
    following = ShareWorld(KEYED)
    following.log = world.log
    following.load(state_batch(0, 2, AVAILABLE, 1))
    assert offsets(following.fetch("m1", records=9)) == [0, 1, 2]


def test_keys_that_were_read_in_part_are_read_on() -> None:
    order = KeyOrder()
    order.must_read(Offset(3), Offset(9))
    order.must_read(Offset(20), Offset(20))
    order.was_read(Offset(0), Offset(5))
    assert order.unread(Offset(0)) == (5, 21)
    assert order.unread(Offset(7)) == (7, 21)
    order.was_read(Offset(7), Offset(15))
    assert order.unread(Offset(7)) == (20, 21)
    order.was_read(Offset(20), Offset(21))
    assert order.unread(Offset(7)) is None


def test_only_records_that_are_not_finished_are_kept_in_mind() -> None:
    order = KeyOrder()
    for offset in range(4):
        order.learn(Offset(offset), 7)
        order.take(Offset(offset), "m1")
    order.left(Offset(0), Offset(2), ACQUIRED, AVAILABLE)
    order.left(Offset(0), Offset(1), AVAILABLE, ARCHIVED)
    order.check()
    assert len(order) == 2
    assert Offset(0) not in order
