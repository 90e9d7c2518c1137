"""Deadlines that move are found at their last time, in order."""

from broker.core.share.deadlines import Deadlines
from hypothesis import given
from hypothesis import strategies as st
from tidemark.model.ids import InstantMs


@given(st.lists(st.tuples(st.sampled_from("abc"), st.one_of(st.none(), st.integers(0, 50)))))
def test_each_key_has_its_last_deadline(moves: list[tuple[str, int | None]]) -> None:
    deadlines: Deadlines[str] = Deadlines()
    plain: dict[str, int] = {}
    for key, at in moves:
        deadlines.set(key, None if at is None else InstantMs(at))
        plain.pop(key, None)
        if at is not None:
            plain[key] = at
        assert deadlines.next() == min(plain.values(), default=None)
    due = deadlines.take_due(InstantMs(25))
    assert sorted(due) == sorted(key for key, at in plain.items() if at <= 25)
    assert [plain[key] for key in due] == sorted(plain[key] for key in due)
    assert len(deadlines) == len(plain) - len(due)


def test_a_deadline_that_moves_often_takes_no_memory() -> None:
    deadlines: Deadlines[str] = Deadlines()
    for at in range(10_000):
        deadlines.set("a", InstantMs(at))
    assert len(deadlines._heap) < 100
    assert deadlines.next() == 9_999
