import pytest
from hypothesis import given
from hypothesis import strategies as st
from tidemark.model.topics import TopicPartition
from tidemark.plans.group_lag import Bounds
from tidemark.plans.offset_reset import Goal, Move, Target, plan, timestamp_for

ZERO, ONE = TopicPartition("t", 0), TopicPartition("t", 1)
BOUNDS = {ZERO: Bounds(10, 50, 40)}


@pytest.mark.parametrize(
    ("target", "after"),
    [
        (Target(Goal.EARLIEST), 10),
        (Target(Goal.LATEST), 50),
        (Target(Goal.OFFSET, 33), 33),
        (Target(Goal.OFFSET, 3), 10),
        (Target(Goal.OFFSET, 99), 50),
        (Target(Goal.SHIFT, -5), 15),
        (Target(Goal.SHIFT, 500), 50),
        (Target(Goal.TIME, 1), 25),
        (Target(Goal.CURRENT), 20),
    ],
)
def test_each_goal_is_reached_within_the_log(target: Target, after: int) -> None:
    assert plan(target, {ZERO: 20}, BOUNDS, {ZERO: 25}) == [Move(ZERO, 20, after)]


def test_a_time_younger_than_every_record_is_the_end() -> None:
    assert plan(Target(Goal.TIME, 1), {}, BOUNDS, {ZERO: -1}) == [Move(ZERO, None, 50)]


@pytest.mark.parametrize("goal", [Goal.SHIFT, Goal.CURRENT])
def test_what_starts_from_a_committed_offset_leaves_partitions_without_alone(goal: Goal) -> None:
    assert plan(Target(goal, 1), {}, BOUNDS, {}) == []


@given(
    st.sampled_from(list(Goal)),
    st.integers(-100, 200),
    st.none() | st.integers(0, 100),
    st.tuples(st.integers(0, 50), st.integers(0, 50)),
)
def test_no_move_leaves_the_log(
    goal: Goal, number: int, before: int | None, log: tuple[int, int]
) -> None:
    bounds = Bounds(log[0], log[0] + log[1], log[0])
    committed = {} if before is None else {ZERO: before}
    for move in plan(Target(goal, number), committed, {ZERO: bounds}, {ZERO: number}):
        assert bounds.start <= move.after <= bounds.end


def test_ago_is_counted_from_now() -> None:
    assert timestamp_for(Target(Goal.AGO, 300), 1_000) == 700
    assert timestamp_for(Target(Goal.AGO, 1_001), 1_000) == 0  # -1 would be the end of the log
    assert timestamp_for(Target(Goal.TIME, 300), 1_000) == 300
    assert timestamp_for(Target(Goal.LATEST), 1_000) is None
