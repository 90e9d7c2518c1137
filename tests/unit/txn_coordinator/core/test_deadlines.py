from hypothesis import given
from hypothesis import strategies as st
from tidemark.model.ids import InstantMs
from txn_coordinator.core.deadlines import Deadlines


def test_the_earliest_comes_first() -> None:
    deadlines = Deadlines()
    deadlines.put("a", InstantMs(20))
    deadlines.put("b", InstantMs(10))
    assert deadlines.first() == 10
    assert deadlines.pop_due(InstantMs(20), 10) == ["b", "a"]
    assert deadlines.first() is None


def test_a_moved_deadline_counts_once() -> None:
    deadlines = Deadlines()
    deadlines.put("a", InstantMs(10))
    deadlines.put("a", InstantMs(30))
    assert deadlines.pop_due(InstantMs(29), 10) == []
    assert deadlines.pop_due(InstantMs(30), 10) == ["a"]


def test_at_most_the_requested_number_is_popped() -> None:
    deadlines = Deadlines()
    for key in "abc":
        deadlines.put(key, InstantMs(1))
    assert len(deadlines.pop_due(InstantMs(1), 2)) == 2
    assert len(deadlines) == 1


def test_discarded_deadlines_do_not_pile_up() -> None:
    deadlines = Deadlines()
    for number in range(10_000):
        deadlines.put(f"id-{number}", InstantMs(10**6 - number))
        deadlines.discard(f"id-{number}")
    assert len(deadlines._heap) < 200


@given(
    st.lists(st.tuples(st.sampled_from("abcd"), st.one_of(st.none(), st.integers(0, 50)))),
    st.integers(0, 50),
)
def test_agrees_with_a_plain_dictionary(acts: list[tuple[str, int | None]], now: int) -> None:
    deadlines, plain = Deadlines(), dict[str, int]()
    for key, due in acts:
        if due is None:
            deadlines.discard(key)
            plain.pop(key, None)
        else:
            deadlines.put(key, InstantMs(due))
            plain[key] = due
    assert deadlines.first() == min(plain.values(), default=None)
    expected = {key for key, due in plain.items() if due <= now}
    assert set(deadlines.pop_due(InstantMs(now), 100)) == expected
    assert set(deadlines.keys()) == plain.keys() - expected
