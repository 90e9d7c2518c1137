"""CPU of a tree of processes."""

from bench.peers.process_times import ProcessTimes, descendants, read_stat, ticks_of

_TREE = {
    1: ProcessTimes(parent=0, ticks=1_000),
    10: ProcessTimes(parent=1, ticks=5),
    11: ProcessTimes(parent=10, ticks=70),
    12: ProcessTimes(parent=11, ticks=300),
    20: ProcessTimes(parent=1, ticks=9_000),
}


def test_a_name_may_hold_parentheses_and_spaces() -> None:
    line = "42 (a) b (c) S 7 42 42 0 -1 4194304 100 200 0 0 11 22 33 44 20 0 1 0 5 6 7"
    assert read_stat(line) == ProcessTimes(parent=7, ticks=11 + 22 + 33 + 44)


def test_descendants_are_found_at_any_depth() -> None:
    assert descendants([10], _TREE) == {10, 11, 12}


def test_ticks_count_each_process_once() -> None:
    assert ticks_of([10, 11], _TREE) == 375


def test_a_process_that_has_ended_counts_nothing() -> None:
    assert ticks_of([99], _TREE) == 0
