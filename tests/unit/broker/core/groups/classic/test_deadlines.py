"""Deadlines: a heap that is moved far more often than it is reached, against a plain table."""

from broker.core.groups.classic.deadlines import Deadlines, Key, Kind
from hypothesis import given, settings
from hypothesis import strategies as st
from tidemark.model.ids import InstantMs

A, B = Key(Kind.SESSION, "g", "a"), Key(Kind.JOIN, "g")
KEYS = [Key(Kind.SESSION, "g", name) for name in "abcd"]


def at(ms: int) -> InstantMs:
    return InstantMs(ms)


def test_the_earliest_comes_first_and_once() -> None:
    deadlines = Deadlines()
    deadlines.set(A, at(20))
    deadlines.set(B, at(10))
    assert deadlines.next() == 10
    assert [deadlines.take_due(at(30)) for _ in range(3)] == [B, A, None]
    assert deadlines.next() is None


def test_what_moved_later_is_not_due_at_its_old_time() -> None:
    deadlines = Deadlines()
    deadlines.set(A, at(10))
    deadlines.set(A, at(50))
    assert deadlines.take_due(at(10)) is None
    assert deadlines.next() == 50


def test_what_moved_earlier_is_due_then() -> None:
    deadlines = Deadlines()
    deadlines.set(A, at(50))
    deadlines.set(A, at(10))
    assert deadlines.take_due(at(10)) == A
    assert deadlines.take_due(at(60)) is None


def test_what_is_cancelled_is_never_due() -> None:
    deadlines = Deadlines()
    deadlines.set(A, at(10))
    deadlines.cancel(A)
    deadlines.cancel(B)
    assert deadlines.next() is None
    assert len(deadlines) == 0


def test_a_thousand_heartbeats_leave_one_entry() -> None:
    deadlines = Deadlines()
    for beat in range(1_000):
        deadlines.set(A, at(10_000 + beat))
    assert len(deadlines._heap) == 1


STEPS = st.lists(
    st.tuples(st.sampled_from(["set", "cancel", "take"]), st.sampled_from(KEYS), st.integers(0, 9))
)


@settings(max_examples=25, deadline=None)
@given(STEPS)
def test_agrees_with_a_plain_table(steps: list[tuple[str, Key, int]]) -> None:
    deadlines, table, now = Deadlines(), dict[Key, int](), 0
    for act, key, ms in steps:
        if act == "set":
            deadlines.set(key, at(now + ms))
            table[key] = now + ms
        elif act == "cancel":
            deadlines.cancel(key)
            table.pop(key, None)
        else:
            now += ms
            taken = deadlines.take_due(at(now))
            assert (taken is None) == all(due > now for due in table.values())
            if taken is not None:
                assert table.pop(taken) <= now
        soonest = deadlines.next()
        assert (soonest is None) == (not table)
        assert soonest is None or soonest <= min(table.values())
