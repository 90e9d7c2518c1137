"""Windows: consecutive ranges that are cut, joined and passed."""

import pytest
from broker.core.share.states import ACKNOWLEDGED, ACQUIRED, ARCHIVED, ARCHIVING, AVAILABLE
from broker.core.share.window import Lock, Range, Window
from tidemark.model.ids import InstantMs, Offset
from tidemark.model.share_state import DeliveryState

NOW = InstantMs(0)


def window_of(*parts: tuple[int, DeliveryState, int], start: int = 0) -> Window:
    """Each part: number of records, state, delivery count."""
    window = Window(Offset(start), isolated_from=3)
    for records, state, count in parts:
        lock = Lock("m1", InstantMs(9)) if state is ACQUIRED else None
        last = Offset(window.end + records - 1)
        if lock is not None:
            lock.hold(window.end, last)
        window.append(Range(window.end, last, state, count, lock))
    window.check()
    return window


def shown(window: Window) -> list[str]:
    window.check()
    return [str(one) for one in window]


def test_a_range_is_found_by_any_of_its_offsets() -> None:
    window = window_of((10, AVAILABLE, 0), (5, ARCHIVED, 1), start=100)
    assert [str(window.at(Offset(o))) for o in (100, 109, 110, 114)] == [
        "100-109 AVAILABLE 0",
        "100-109 AVAILABLE 0",
        "110-114 ARCHIVED 1",
        "110-114 ARCHIVED 1",
    ]


def test_ranges_over_a_span_are_those_that_touch_it() -> None:
    window = window_of((10, AVAILABLE, 0), (10, AVAILABLE, 1), (10, AVAILABLE, 2))
    assert [one.first for one in window.over(Offset(9), Offset(20))] == [0, 10, 20]
    assert [one.first for one in window.over(Offset(10), Offset(19))] == [10]


@pytest.mark.parametrize(
    ("first", "last", "bounds"),
    [
        (0, 9, [(0, 9)]),
        (0, 3, [(0, 3), (4, 9)]),
        (4, 9, [(0, 3), (4, 9)]),
        (4, 6, [(0, 3), (4, 6), (7, 9)]),
    ],
)
def test_a_range_is_cut_at_the_ends_of_what_is_carved(
    first: int, last: int, bounds: list[tuple[int, int]]
) -> None:
    window = window_of((10, AVAILABLE, 1))
    (piece,) = window.carve(Offset(first), Offset(last))
    assert (piece.first, piece.last) == (first, last)
    assert [(one.first, one.last) for one in window] == bounds
    window.check()


def test_a_carving_goes_over_several_ranges() -> None:
    window = window_of((10, AVAILABLE, 1), (10, AVAILABLE, 2))
    assert [(one.first, one.last) for one in window.carve(Offset(5), Offset(14))] == [
        (5, 9),
        (10, 14),
    ]


def test_neighbours_that_share_everything_are_joined() -> None:
    window = window_of((5, ACKNOWLEDGED, 1), (5, AVAILABLE, 1), (5, ACKNOWLEDGED, 1))
    middle = window.at(Offset(5))
    window.become(middle, ACKNOWLEDGED)
    window.join(middle)
    assert shown(window) == ["0-14 ACKNOWLEDGED 1"]


@pytest.mark.parametrize("other", [(5, ARCHIVED, 2), (5, ACKNOWLEDGED, 2), (5, ARCHIVED, 1)])
def test_neighbours_that_differ_are_not_joined(other: tuple[int, DeliveryState, int]) -> None:
    window = window_of((5, AVAILABLE, 1), other)
    first = window.at(Offset(0))
    window.become(first, ACQUIRED)
    first.lock = Lock("m1", NOW)
    window.join(first)
    assert len(window) == 2


def test_bounds_of_isolated_records_stay() -> None:
    window = window_of((5, AVAILABLE, 3), (5, AVAILABLE, 3))
    window.join(window.at(Offset(0)))
    assert shown(window) == ["0-4 AVAILABLE 3", "5-9 AVAILABLE 3"]


def test_joining_what_was_joined_already_changes_nothing() -> None:
    window = window_of((5, AVAILABLE, 1), (5, AVAILABLE, 1))
    second = window.at(Offset(5))
    window.join(window.at(Offset(0)))
    window.join(second)
    assert shown(window) == ["0-9 AVAILABLE 1"]


def test_the_start_passes_what_is_finished() -> None:
    window = window_of((5, ACKNOWLEDGED, 1), (5, ARCHIVED, 2), (5, AVAILABLE, 0), (5, ARCHIVED, 1))
    assert window.advance()
    assert shown(window) == ["10-14 AVAILABLE 0", "15-19 ARCHIVED 1"]
    assert (window.start, window.end, window.finished_records) == (10, 20, 5)


@pytest.mark.parametrize("state", [AVAILABLE, ACQUIRED, DeliveryState.ARCHIVING])
def test_the_start_does_not_pass_what_is_not_finished(state: DeliveryState) -> None:
    window = window_of((5, state, 1), (5, ARCHIVED, 1))
    assert not window.advance()
    assert window.start == 0


def test_a_window_that_is_finished_is_empty_at_its_end() -> None:
    window = window_of((5, ACKNOWLEDGED, 1))
    window.advance()
    assert (window.start, window.end, len(window)) == (5, 5, 0)


@pytest.mark.parametrize(("start", "left"), [(3, 2), (5, 1), (7, 1), (10, 0), (12, 0)])
def test_what_the_log_dropped_leaves_the_window(start: int, left: int) -> None:
    window = window_of((5, ACQUIRED, 1), (5, AVAILABLE, 1))
    window.cut_below(Offset(start))
    window.check()
    assert (window.start, window.end, len(window)) == (start, max(10, start), left)


def test_a_lock_holds_less_once_the_log_dropped_records() -> None:
    window = window_of((5, ACQUIRED, 1))
    lock = window.at(Offset(0)).lock
    window.cut_below(Offset(2))
    assert lock is not None
    assert lock.records == 3


def test_the_first_available_records_are_found_behind_others() -> None:
    window = window_of((5, ACQUIRED, 1), (5, AVAILABLE, 1), (5, AVAILABLE, 2), (5, ACQUIRED, 1))
    assert window.available_run(NOW) == (5, 14)


def test_records_with_a_delay_are_passed_over_until_it_is_looked_again() -> None:
    window = window_of((5, AVAILABLE, 1), (5, ACQUIRED, 1))
    window.at(Offset(0)).ready_at = InstantMs(10)
    assert window.available_run(InstantMs(9)) is None
    window.look_again_from(Offset(0))
    assert window.available_run(InstantMs(10)) == (0, 4)


def test_a_window_that_is_extended_holds_more_under_the_same_lock() -> None:
    window = window_of((5, ACQUIRED, 1))
    window.extend(Offset(9))
    (only,) = window
    assert only.lock is not None
    assert only.lock.records == 10
    assert only.lock.span == (0, 9)
    assert shown(window) == ["0-9 ACQUIRED 1 m1"]


def waiting(*counted: tuple[int, DeliveryState]) -> Window:
    """A window from 0 on, with so many records of each state."""
    window = Window(Offset(0), 2)
    for number, (count, state) in enumerate(counted):
        last = Offset(window.end + count - 1)
        lock = Lock("m1", InstantMs(9)) if state is ACQUIRED else None
        window.append(Range(window.end, last, state, number, lock))
    return window


def test_dead_letters_at_the_start_do_not_count_towards_the_limit() -> None:
    window = waiting((1, ARCHIVING), (90, ACKNOWLEDGED), (5, ACQUIRED))
    assert window.room(20) == 15
    assert waiting((5, ACQUIRED), (1, ARCHIVING), (4, ACKNOWLEDGED)).room(20) == 10
    assert waiting((5, ACQUIRED), (14, ACKNOWLEDGED)).room(20) == 1


def test_many_dead_letters_count_towards_the_limit() -> None:
    assert waiting((10, ARCHIVING), (5, ACQUIRED)).room(20) == 15
    assert waiting((11, ARCHIVING), (5, ACQUIRED)).room(20) == 4


def test_many_ranges_count_towards_the_limit() -> None:
    ranges = [(1, ARCHIVING), *((1, ACKNOWLEDGED) for _ in range(9))]
    assert waiting(*ranges).room(20) == 20
    assert waiting(*ranges, (1, ACKNOWLEDGED)).room(20) == 9
