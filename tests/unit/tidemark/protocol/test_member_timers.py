"""One deadline for each member, moved again and again."""

from hypothesis import given
from hypothesis import strategies as st
from tidemark.model.ids import InstantMs
from tidemark.protocol.member_timers import MemberTimers

NAMES = st.sampled_from("abc")
ACTS = st.one_of(
    st.tuples(st.just("start"), NAMES, st.integers(0, 9)),
    st.tuples(st.just("stop"), NAMES, st.just(0)),
    st.tuples(st.just("next"), NAMES, st.just(0)),
)


@given(acts=st.lists(ACTS, max_size=25))
def test_it_is_a_dictionary_with_a_least_value(acts: list[tuple[str, str, int]]) -> None:
    timers = MemberTimers()
    plain: dict[str, int] = {}
    for act, name, due in acts:
        if act == "start":
            timers.start(name, InstantMs(due))
            plain[name] = due
        elif act == "stop":
            timers.stop(name)
            plain.pop(name, None)
        else:
            assert timers.next() == min(plain.values(), default=None)
        timers.check()
    assert timers.next() == min(plain.values(), default=None)


def test_expired_are_those_whose_time_has_come_first_ones_first() -> None:
    timers = MemberTimers()
    for name, due in (("a", 30), ("b", 10), ("c", 20)):
        timers.start(name, InstantMs(due))
    assert timers.expired(InstantMs(9)) == []
    assert timers.expired(InstantMs(20)) == ["b", "c"]


@given(dues=st.dictionaries(st.sampled_from("abc"), st.integers(0, 9)), now=st.integers(0, 9))
def test_the_first_of_those_is_found_by_itself(dues: dict[str, int], now: int) -> None:
    timers = MemberTimers()
    for name, due in dues.items():
        timers.start(name, InstantMs(due + 5))
        timers.start(name, InstantMs(due))
    expired = timers.expired(InstantMs(now))
    assert timers.first_expired(InstantMs(now)) == (expired[0] if expired else None)


def test_a_deadline_moved_on_is_not_reached() -> None:
    timers = MemberTimers()
    timers.start("a", InstantMs(10))
    timers.start("a", InstantMs(50))
    assert timers.expired(InstantMs(10)) == []
    assert timers.next() == 50


def test_a_member_that_beats_for_ever_is_queued_once() -> None:
    timers = MemberTimers()
    for due in range(1_000):
        timers.start("a", InstantMs(due))
    assert len(timers._queue) == 1


def test_a_deadline_can_be_asked_for() -> None:
    timers = MemberTimers()
    timers.start("a", InstantMs(10))
    assert timers.due_of("a") == 10
    assert timers.due_of("b") is None
