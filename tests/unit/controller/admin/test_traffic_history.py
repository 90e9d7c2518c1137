"""Rates from two answers of one process."""

import pytest
from controller.admin.traffic_history import POINTS_MAX, Rates, TrafficHistory, rates_between
from tidemark.client.admin.broker_load import TrafficCounters

pytestmark = pytest.mark.feature("AD44")


def counted(at_ms: int, bytes_in: int = 0, started_ms: int = 1) -> TrafficCounters:
    return TrafficCounters(started_ms, at_ms, bytes_in, 0, 0, 0, 0, 0, 0)


def test_a_rate_is_the_difference_over_the_brokers_own_time() -> None:
    assert rates_between(counted(1_000, 100), counted(3_000, 700)) == Rates(bytes_in=300.0)


@pytest.mark.parametrize("after", [counted(2_000, 900, started_ms=2), counted(1_000, 900)])
def test_two_processes_and_one_moment_give_no_rate(after: TrafficCounters) -> None:
    assert rates_between(counted(1_000, 100), after) is None


def test_a_broker_without_an_answer_has_no_rate_until_it_has_two_again() -> None:
    history = TrafficHistory()
    rounds = [{1: counted(0)}, {}, {1: counted(2_000, 50)}, {1: counted(3_000, 60)}]
    rates = []
    for at, answers in enumerate(rounds):
        history.add(at, answers)
        rates.append(history.rates(1))
    assert rates == [None, None, None, Rates(bytes_in=10.0)]


def test_a_point_is_the_sum_of_the_brokers_that_are_known() -> None:
    history = TrafficHistory()
    history.add(0, {1: counted(0), 2: counted(0)})
    history.add(1, {1: counted(1_000, 5), 2: counted(1_000, 7), 3: counted(1_000, 9)})
    history.add(2, {1: counted(2_000, 6)})
    assert [(one.at_ms, one.rates.bytes_in, one.brokers) for one in history.points] == [
        (1, 12.0, 2),
        (2, 1.0, 1),
    ]


def test_the_past_is_bounded() -> None:
    history = TrafficHistory()
    for at in range(POINTS_MAX + 5):
        history.add(at, {1: counted(at * 1_000)})
    assert len(history.points) == POINTS_MAX
    assert history.points[-1].at_ms == POINTS_MAX + 4
