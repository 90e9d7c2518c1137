"""Metrics that clients pushed last: what is kept, for how long, and how many."""

import pytest
from broker.core.client_metrics.series import ClientSample, ClientSeries, Point
from hypothesis import given
from hypothesis import strategies as st
from tidemark.model.ids import InstantMs

A, B = b"a" * 16, b"b" * 16
ALICE, BOB = (("client_id", "alice"),), (("client_id", "bob"),)
LATE = InstantMs(1_000)


def point(name: str, value: float, topic: str = "", *, is_delta: bool = False) -> Point:
    return Point(name, (("topic", topic),) if topic else (), value, is_delta)


def shown(series: ClientSeries, name: str) -> list[ClientSample]:
    series.check()
    return list(series.samples(name))


@pytest.mark.feature("AD91")
def test_the_last_push_of_each_client_is_shown() -> None:
    series = ClientSeries(10)
    series.put(A, ALICE, [point("n", 1, "t"), point("old", 1)], LATE)
    series.put(B, BOB, [point("n", 2)], LATE)
    series.put(A, ALICE, [point("n", 3, "t")], LATE)
    assert series.names() == ["n"]
    topic = (("topic", "t"),)
    assert shown(series, "n") == [ClientSample(BOB, (), 2), ClientSample(ALICE, topic, 3)]


def test_increases_are_added_up() -> None:
    series = ClientSeries(10)
    for _ in range(3):
        series.put(A, ALICE, [point("n", 2, is_delta=True)], LATE)
    assert shown(series, "n") == [ClientSample(ALICE, (), 6)]


def test_a_client_that_is_silent_is_no_longer_shown() -> None:
    series = ClientSeries(10)
    series.put(A, ALICE, [point("n", 1)], InstantMs(100))
    series.put(B, BOB, [point("n", 2)], InstantMs(101))
    series.expire(InstantMs(100))
    assert shown(series, "n") == [ClientSample(BOB, (), 2)]


@pytest.mark.feature("AD91")
def test_series_beyond_the_bound_are_dropped_and_counted() -> None:
    series = ClientSeries(3)
    series.put(A, ALICE, [point("n", 1), point("m", 1)], LATE)
    series.put(B, BOB, [point("n", 2), point("n", 3), point("m", 2)], LATE)
    assert (series.count, series.dropped) == (3, 1)
    assert shown(series, "n") == [ClientSample(ALICE, (), 1), ClientSample(BOB, (), 3)]
    series.forget(A)
    series.put(B, BOB, [point("n", 2), point("m", 2)], LATE)
    assert (series.count, series.dropped) == (2, 1)


POINTS = st.lists(st.builds(point, st.sampled_from("nm"), st.floats(0, 9), st.sampled_from("xy")))
PUTS = st.lists(st.tuples(st.sampled_from([A, B]), POINTS, st.integers(0, 50)))


@given(PUTS)
def test_the_two_indexes_agree(puts: list[tuple[bytes, list[Point], int]]) -> None:
    series = ClientSeries(5)
    for now, (instance, points, stay) in enumerate(puts):
        series.put(instance, ALICE, points, InstantMs(now + stay))
        series.check()
        series.expire(InstantMs(now))
        series.check()
