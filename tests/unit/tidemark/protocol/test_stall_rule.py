from hypothesis import given
from hypothesis import strategies as st
from tidemark.model.ids import InstantMs
from tidemark.protocol.stall_rule import StallBegan, StallEnded, StallRule

LIMIT_MS, LOOK_MS = 5_000, 500


def looks(*seen: tuple[int, int]) -> list[object]:
    """What looks find, each (turns so far, milliseconds since the look before)."""
    rule, now, found = StallRule(limit_ms=LIMIT_MS, look_ms=LOOK_MS, now=InstantMs(0)), 0, []
    for turns, passed_ms in seen:
        now += passed_ms
        found.append(rule.look(turns, InstantMs(now)))
    return [one for one in found if one is not None]


def test_a_loop_that_stands_still_is_noticed_once_and_its_end_with_the_length() -> None:
    still = [(1, LOOK_MS)] * 15
    assert looks((1, LOOK_MS), *still, (2, LOOK_MS), (3, LOOK_MS)) == [
        StallBegan(5_000),
        StallEnded(8_000),
    ]


def test_each_stall_is_one_of_its_own() -> None:
    one = [(1, LOOK_MS)] * 11
    two = [(2, LOOK_MS)] * 11
    found = looks(*one, *two, (3, LOOK_MS))
    assert [type(one) for one in found] == [StallBegan, StallEnded, StallBegan, StallEnded]


def test_a_watcher_that_was_stopped_too_blames_nobody() -> None:
    assert looks((1, LOOK_MS), (1, 3_600_000), (2, LOOK_MS)) == []


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 20_000)), max_size=60))
def test_no_loop_that_turned_within_the_limit_is_blamed(seen: list[tuple[bool, int]]) -> None:
    turns, counted_ms = 0, 0
    rule, now = StallRule(limit_ms=LIMIT_MS, look_ms=LOOK_MS, now=InstantMs(0)), 0
    for has_turned, passed_ms in seen:
        turns += has_turned
        now += passed_ms
        counted_ms = 0 if has_turned else counted_ms + min(passed_ms, 2 * LOOK_MS)
        rule.look(turns, InstantMs(now))
        assert rule.is_stalled == (counted_ms >= LIMIT_MS)
