"""Which records of a read go to a member."""

import pytest
from broker.core.share.acquisition import AcquireMode
from broker.core.share.settings import ShareSettings
from unit.broker.core.share.share_worlds import (
    ACKNOWLEDGED,
    ARCHIVED,
    AVAILABLE,
    RELEASE,
    ShareWorld,
    log_batch,
    say,
    state_batch,
)

STRICT = AcquireMode.RECORD_LIMIT


@pytest.mark.parametrize(("records", "last"), [(1, 9), (10, 9), (11, 19), (25, 29)])
def test_whole_batches_are_acquired_even_beyond_the_number_asked_for(
    records: int, last: int
) -> None:
    assert ShareWorld().load().fetch(records=records) == [(0, last, 1)]


@pytest.mark.parametrize(("records", "last"), [(1, 0), (10, 9), (11, 10), (25, 24)])
def test_with_a_strict_limit_batches_are_cut(records: int, last: int) -> None:
    world = ShareWorld().load()
    assert world.fetch(records=records, mode=STRICT) == [(0, last, 1)]
    assert world.fetch(records=5, mode=STRICT) == [(last + 1, last + 5, 1)]


@pytest.mark.parametrize(("batch_records", "parts"), [(1, 3), (10, 3), (11, 2), (20, 2), (21, 1)])
def test_batches_of_the_log_are_reported_together_up_to_a_size(
    batch_records: int, parts: int
) -> None:
    acquired = ShareWorld().load().fetch(records=30, batch_records=batch_records)
    assert len(acquired) == parts
    assert (acquired[0][0], acquired[-1][1]) == (0, 29)


def test_each_member_gets_other_records() -> None:
    world = ShareWorld().load()
    got = [world.fetch(member) for member in ("m1", "m2", "m3")]
    assert got == [[(0, 9, 1)], [(10, 19, 1)], [(20, 29, 1)]]


def test_the_window_is_bounded() -> None:
    world = ShareWorld(ShareSettings(records_max=25)).load()
    assert world.fetch(records=100) == [(0, 29, 1)], "the last batch stays whole"
    assert world.fetch("m2") == []


def test_the_bound_cuts_a_batch_that_is_longer_than_it() -> None:
    world = ShareWorld(ShareSettings(records_max=6)).load()
    assert world.fetch(records=100) == [(0, 5, 1)]
    world.done(say(0, 5, 1))
    assert world.fetch(records=100) == [(6, 11, 1)]


def test_a_strict_limit_never_passes_the_bound() -> None:
    world = ShareWorld(ShareSettings(records_max=25)).load()
    assert world.fetch(records=100, mode=STRICT) == [(0, 24, 1)]


def test_what_is_available_within_a_full_window_is_acquired() -> None:
    world = ShareWorld(ShareSettings(records_max=20)).load()
    world.fetch(records=20)
    world.done(say(3, 4, RELEASE))
    assert world.fetch("m2", records=100) == [(3, 4, 2)]


def test_released_records_come_before_new_ones() -> None:
    world = ShareWorld().load()
    world.fetch("m1")
    world.fetch("m2")
    world.done(say(0, 9, RELEASE))
    assert world.fetch("m2", records=20) == [(0, 9, 2), (20, 29, 1)]


def test_offsets_of_an_answer_ascend() -> None:
    world = ShareWorld().load(state_batch(5, 14, ACKNOWLEDGED, 1), state_batch(17, 18, ARCHIVED, 1))
    assert world.fetch(records=10) == [(0, 4, 1), (15, 16, 1), (19, 29, 1)]


def test_control_batches_are_archived_on_the_way() -> None:
    world = ShareWorld().load()
    world.log[1] = log_batch(10, 19, has_records=False)
    assert world.fetch(records=20) == [(0, 9, 1), (20, 29, 1)]
    assert "10-19 ARCHIVED 0" in world.story()


def test_a_window_begins_behind_control_batches() -> None:
    world = ShareWorld().load()
    world.log[0] = log_batch(0, 9, has_records=False)
    assert world.fetch() == [(10, 19, 1)]
    assert world.share.window.start == 10


def test_offsets_that_compaction_removed_are_archived() -> None:
    world = ShareWorld().load()
    del world.log[1]
    assert world.fetch(records=20) == [(0, 9, 1), (20, 29, 1)]
    assert "10-19 ARCHIVED 0" in world.story()


def test_released_records_that_compaction_removed_are_archived() -> None:
    world = ShareWorld().load()
    world.fetch(records=20)
    world.done(say(0, 9, RELEASE))
    del world.log[0]
    assert world.fetch("m2") == [(20, 29, 1)]
    assert world.share.window.start == 10


def test_a_batch_that_fails_is_halved_with_each_attempt() -> None:
    world = ShareWorld(ShareSettings(deliveries_max=6)).load(state_batch(0, 7, AVAILABLE, 3))
    assert world.fetch(records=100) == [(0, 3, 4)]
    assert world.fetch(records=100) == [(4, 7, 4)]
    world.done(say(0, 3, RELEASE))
    assert world.fetch(records=100) == [(0, 1, 5)]


def test_the_last_attempt_is_alone() -> None:
    world = ShareWorld().load(state_batch(0, 2, AVAILABLE, 4))
    got = [world.fetch(records=100) for _ in range(3)]
    assert got == [[(0, 0, 5)], [(1, 1, 5)], [(2, 2, 5)]]


def test_isolated_records_do_not_share_an_answer() -> None:
    world = ShareWorld().load(state_batch(0, 1, AVAILABLE, 1), state_batch(2, 3, AVAILABLE, 3))
    assert world.fetch(records=100) == [(0, 1, 2)]
    assert world.fetch(records=100) == [(2, 2, 4)]


def test_with_two_deliveries_nothing_is_isolated() -> None:
    world = ShareWorld(ShareSettings(deliveries_max=2)).load(state_batch(0, 9, AVAILABLE, 1))
    assert world.fetch() == [(0, 9, 2)]


def test_records_beyond_a_limit_that_was_lowered_are_archived() -> None:
    world = ShareWorld(ShareSettings(deliveries_max=2)).load(state_batch(0, 9, AVAILABLE, 3))
    assert world.fetch() == [(10, 19, 1)]
    assert world.share.window.start == 10
    assert world.begin_write().start_offset == 10


def test_a_member_that_wants_nothing_gets_nothing() -> None:
    assert ShareWorld().load().fetch(records=0) == []
