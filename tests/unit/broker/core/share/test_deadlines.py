"""Keys are taken by their deadlines, in order, and never forgotten."""

from broker.core.share.deadlines import Deadlines
from hypothesis import given
from hypothesis import strategies as st
from tidemark.model.ids import InstantMs


@given(st.lists(st.tuples(st.sampled_from("abc"), st.one_of(st.none(), st.integers(0, 50)))))
def test_each_key_has_the_first_of_its_deadlines(moves: list[tuple[str, int | None]]) -> None:
    deadlines: Deadlines[str] = Deadlines()
    plain: dict[str, int] = {}
    for key, at in moves:
        if at is None:
            deadlines.forget(key)
            plain.pop(key, None)
        else:
            deadlines.look_by(key, InstantMs(at))
            plain[key] = min(at, plain.get(key, at))
        assert deadlines.next() == min(plain.values(), default=None)
    due = deadlines.take_due(InstantMs(25))
    assert sorted(due) == sorted(key for key, at in plain.items() if at <= 25)
    assert [plain[key] for key in due] == sorted(plain[key] for key in due)
    assert len(deadlines) == len(plain) - len(due)


def test_a_key_that_was_taken_has_a_later_deadline() -> None:
    deadlines: Deadlines[str] = Deadlines()
    deadlines.look_by("a", InstantMs(5))
    assert deadlines.take_due(InstantMs(5)) == ["a"]
    deadlines.look_by("a", InstantMs(9))
    assert deadlines.next() == 9


def test_a_deadline_that_moves_often_takes_no_memory() -> None:
    deadlines: Deadlines[str] = Deadlines()
    for at in range(10_000, 0, -1):
        deadlines.look_by("a", InstantMs(at))
    assert len(deadlines._heap) < 100
    assert deadlines.next() == 1
