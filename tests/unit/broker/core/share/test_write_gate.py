"""Acknowledgements of several members are gathered; one at a time never waits."""

import pytest
from broker.core.share.write_gate import (
    GATHERING_MS_MAX,
    LINGER_MS,
    LINGER_MS_MAX,
    WriteGate,
)
from hypothesis import given
from hypothesis import strategies as st
from tidemark.model.ids import InstantMs


def at(ms: int) -> InstantMs:
    """A time."""
    return InstantMs(ms)


def written(
    gate: WriteGate, *requests: object, now: int = 0, during: int = 0, took: int = 0
) -> WriteGate:
    """A call for these requests, with others that come meanwhile; it ends at ``now``."""
    for one in requests:
        gate.acknowledged(one, at(now))
    assert gate.may_begin(at(now))
    gate.began(at(now - took))
    for number in range(during):
        assert not gate.may_begin(at(now + LINGER_MS))
        gate.acknowledged(("during", number), at(now))
    gate.ended(at(now))
    return gate


def test_one_request_at_a_time_never_waits() -> None:
    gate = WriteGate()
    for number in range(3):
        written(gate, number)
        assert gate.may_begin(at(0))


def test_a_call_waits_for_those_that_took_part_in_the_last_one() -> None:
    gate = written(WriteGate(), "a", during=2)
    assert not gate.may_begin(at(LINGER_MS - 1))
    gate.acknowledged("a", at(0))
    assert gate.may_begin(at(0))


def test_it_waits_no_longer_once_none_has_come_for_a_while() -> None:
    gate = written(WriteGate(), "a", "b", "c", now=7)
    assert gate.next_deadline() == 7 + LINGER_MS
    gate.acknowledged("b", at(9))
    assert not gate.may_begin(at(7 + LINGER_MS))
    assert gate.next_deadline() == 9 + LINGER_MS
    assert gate.may_begin(at(9 + LINGER_MS))


def test_it_waits_for_a_bounded_time_while_others_keep_coming() -> None:
    gate = written(WriteGate(), *range(99), now=7)
    first = 7 + LINGER_MS - 1
    for number, now in enumerate(range(first, first + GATHERING_MS_MAX, LINGER_MS - 1)):
        assert not gate.may_begin(at(now))
        gate.acknowledged(number, at(now))
    assert gate.next_deadline() == first + GATHERING_MS_MAX
    assert gate.may_begin(at(first + GATHERING_MS_MAX))


@pytest.mark.parametrize(
    ("took", "waits"),
    [(0, LINGER_MS), (LINGER_MS - 1, 2 * LINGER_MS - 2), (9, 18), (1_000, LINGER_MS_MAX)],
)
def test_it_waits_twice_as_long_as_the_last_call_took_within_bounds(took: int, waits: int) -> None:
    gate = written(WriteGate(), "a", "b", now=took, took=took)
    assert gate.next_deadline() == took + waits
    gate.acknowledged("a", at(took + 1))
    assert gate.next_deadline() == took + 1 + waits


def test_a_request_that_comes_later_than_that_does_not_wait() -> None:
    gate = written(WriteGate(), "a", "b", now=7)
    gate.acknowledged("c", at(7 + LINGER_MS))
    assert gate.may_begin(at(7 + LINGER_MS))


def test_a_request_of_many_partitions_counts_once() -> None:
    assert written(WriteGate(), "a", "a", "a").may_begin(at(0))


def test_a_call_that_waited_in_vain_is_waited_for_no_longer() -> None:
    gate = written(WriteGate(), "a", "b")
    assert written(gate, "a", now=LINGER_MS).may_begin(at(LINGER_MS))


def test_a_gate_is_idle_once_nothing_tells_it_from_a_new_one() -> None:
    gate = written(WriteGate(), "a", "b")
    assert [gate.is_idle(at(ms)) for ms in (0, LINGER_MS)] == [False, True]
    gate.acknowledged("c", at(LINGER_MS))
    assert not gate.is_idle(at(LINGER_MS))


@given(st.lists(st.integers(0, 3), max_size=20))
def test_whatever_happened_a_call_may_begin_after_the_linger(rounds: list[int]) -> None:
    gate, now = WriteGate(), 0
    for number, during in enumerate(rounds):
        now += LINGER_MS_MAX
        written(gate, number, now=now, during=during)
    assert gate.may_begin(at(now + LINGER_MS_MAX))
