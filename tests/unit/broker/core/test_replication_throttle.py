"""Replication throttles: the throttled replicas, the rate, and the waits."""

import pytest
from broker.core.replication_throttle import (
    REST_MS_MAX,
    ReplicationThrottle,
    is_named,
    rate_in_force,
)
from hypothesis import given
from hypothesis import strategies as st
from tidemark.model.ids import BrokerId, InstantMs

KEY = "follower.replication.throttled.rate"


def at(instant: int) -> InstantMs:
    return InstantMs(instant)


@pytest.mark.parametrize(
    ("throttled", "named"),
    [((), False), (("*",), True), (("3:7",), True), (("7:3", "3:8"), False), (("13:7",), False)],
)
def test_a_list_names_partition_and_broker(throttled: tuple[str, ...], named: bool) -> None:
    assert is_named(throttled, 3, BrokerId(7)) is named


@pytest.mark.parametrize(
    ("configs", "rate"),
    [
        ({}, 9),
        ({"": {KEY: "5"}}, 5),
        ({"": {KEY: "5"}, "1": {KEY: "4"}}, 4),
        ({"2": {KEY: "4"}}, 9),
        ({"1": {KEY: "0"}}, 1),
    ],
)
def test_a_brokers_own_rate_goes_before_that_of_all(
    configs: dict[str, dict[str, str]], rate: int
) -> None:
    assert rate_in_force(configs, BrokerId(1), KEY, at_start=9) == rate


def test_debt_rests_until_it_is_paid() -> None:
    throttle = ReplicationThrottle(1_000)
    throttle.transferred(1_000, at(0))
    assert throttle.may_transfer(at(0))
    throttle.transferred(500, at(0))
    assert 499 <= throttle.rest_ms(at(0)) <= 501
    assert not throttle.may_transfer(at(400))
    assert throttle.may_transfer(at(501))


def test_a_long_debt_is_looked_at_again_and_a_new_rate_forgives_it() -> None:
    throttle = ReplicationThrottle(1)
    throttle.transferred(1_000_000, at(0))
    assert throttle.rest_ms(at(0)) == REST_MS_MAX
    throttle.set_rate(1)
    assert not throttle.may_transfer(at(1))
    throttle.set_rate(2)
    assert throttle.may_transfer(at(1))


@given(st.lists(st.integers(1, 5_000), max_size=30), st.integers(100, 2_000))
def test_the_average_is_the_rate(sizes: list[int], rate: int) -> None:
    throttle, now, total = ReplicationThrottle(rate), 0, 0
    for size in sizes:
        while rest := throttle.rest_ms(at(now)):
            now += rest
        throttle.transferred(size, at(now))
        total += size
    largest = max(sizes, default=0)
    assert total <= rate + largest + rate * (now + 2 * len(sizes)) / 1_000
