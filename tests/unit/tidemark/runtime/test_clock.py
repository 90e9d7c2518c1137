import pytest
from manual_clock import ManualClock
from tidemark.runtime.clock import Clock


def test_a_manual_clock_moves_only_when_told() -> None:
    clock = ManualClock(wall_ms=1_000)
    assert (clock.now_ms(), clock.boot_ms(), clock.wall_ms()) == (0, 0, 1_000)
    clock.advance(5)
    assert (clock.now_ms(), clock.boot_ms(), clock.wall_ms()) == (5, 5, 1_005)


def test_time_does_not_go_back() -> None:
    with pytest.raises(AssertionError):
        ManualClock().advance(-1)


def test_the_real_clocks_are_in_milliseconds() -> None:
    clock = Clock()
    first = clock.now_ms()
    assert first <= clock.now_ms() < first + 10_000
    assert clock.boot_ms() >= first
    assert clock.wall_ms() > 1_600_000_000_000
