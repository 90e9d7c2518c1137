"""Looks at a share-partition that change nothing."""

import pytest
from broker.core.share.inspection import RangeView, counts, view
from broker.core.share.settings import ShareSettings
from tidemark.model.ids import InstantMs, Offset
from unit.broker.core.share.share_worlds import (
    ACCEPT,
    ACKNOWLEDGED,
    ACQUIRED,
    ARCHIVED,
    ARCHIVING,
    AVAILABLE,
    RELEASE,
    ShareWorld,
    say,
    state_batch,
)


def looked_at(world: ShareWorld, first: int, last: int) -> list[RangeView]:
    before = world.story()
    seen = list(view(world.share.window, Offset(first), Offset(last)))
    assert world.story() == before
    return seen


def test_browsing_shows_holders_and_what_is_being_written() -> None:
    world = ShareWorld(ShareSettings(lock_ms=50, release_backoff_ms=7)).load()
    world.fetch(records=20)
    world.done(say(0, 4, RELEASE))
    world.acknowledge(say(5, 9, ACCEPT))
    assert looked_at(world, 3, 12) == [
        RangeView(Offset(3), Offset(4), AVAILABLE, 1, ready_at=InstantMs(7)),
        RangeView(Offset(5), Offset(9), ACQUIRED, 1, "m1", InstantMs(50), ACKNOWLEDGED),
        RangeView(Offset(10), Offset(12), ACQUIRED, 1, "m1", InstantMs(50)),
    ]


@pytest.mark.parametrize(("first", "last"), [(0, 99), (50, 60)])
def test_offsets_outside_of_the_window_have_no_state(first: int, last: int) -> None:
    world = ShareWorld(start=10).load(state_batch(10, 19, AVAILABLE, 1))
    seen = [(one.first_offset, one.last_offset) for one in looked_at(world, first, last)]
    assert seen == ([(10, 19)] if first == 0 else [])


def test_an_empty_window_shows_nothing() -> None:
    assert looked_at(ShareWorld().load(), 0, 9) == []


def test_counts_say_what_is_left_to_do() -> None:
    batches = [(0, 4, AVAILABLE), (5, 6, ACKNOWLEDGED), (7, 7, ARCHIVING), (8, 9, ARCHIVED)]
    world = ShareWorld().load(
        *(state_batch(first, last, state, 1) for first, last, state in batches)
    )
    world.fetch(records=1)
    counted = counts(world.share.window, Offset(30))
    assert counted == (0, 10, 0, 5, 2, 1, 2, 20)
    assert counted.lag == 26


def test_nothing_is_behind_a_window_that_is_ahead_of_the_high_watermark() -> None:
    world = ShareWorld().load(state_batch(0, 9, AVAILABLE, 1))
    assert counts(world.share.window, Offset(5)).behind == 0
