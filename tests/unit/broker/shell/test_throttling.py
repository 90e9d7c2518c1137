from broker.shell.metrics.quotas import families
from broker.shell.throttling import CONNECTION, FETCH, MUTATION, PRODUCE, REQUEST, Throttling
from manual_clock import ManualClock
from tidemark.model.quotas import (
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    QuotaEntity,
)

ALICE = "User:alice"


def test_nothing_is_looked_at_until_somebody_has_a_quota() -> None:
    throttling = Throttling(ManualClock())
    throttling.configure({QuotaEntity("alice"): {PRODUCER_BYTE_RATE: 1.0}})
    assert (throttling.limits_produce, throttling.limits_fetch) == (True, False)
    throttling.configure({})
    assert not throttling.limits_produce


def test_throttles_are_counted_by_kind() -> None:
    throttling = Throttling(ManualClock())
    values = {PRODUCER_BYTE_RATE: 10.0, CONSUMER_BYTE_RATE: 10.0}
    throttling.configure({QuotaEntity("alice"): values})
    assert throttling.produced(ALICE, None, 100) == 0
    assert throttling.produced(ALICE, "app", 5) == 500
    assert throttling.produced(ALICE, "app", 5) == 1_000
    assert throttling.fetched("User:bob", "app", 10**9) == 0
    counters = throttling.counters[PRODUCE]
    assert (counters.count, counters.total_ms) == (2, 1_500)
    count, seconds = families(throttling.counters)
    assert [(one.labels["quota"], one.value) for one in seconds.samples] == [
        (PRODUCE, 1.5),
        (FETCH, 0.0),
        (REQUEST, 0.0),
        (MUTATION, 0.0),
        (CONNECTION, 0.0),
    ]
    assert count.samples[0].value == 2


def test_one_fetch_returns_what_a_window_allows_at_most() -> None:
    throttling = Throttling(ManualClock())
    throttling.configure({QuotaEntity("alice"): {CONSUMER_BYTE_RATE: 10.0}})
    assert throttling.fetch_bytes_max(ALICE, "app", 1_000) == 100
    assert throttling.fetch_bytes_max(ALICE, "app", 50) == 50
    assert throttling.fetch_bytes_max("User:bob", "app", 1_000) == 1_000


def test_connections_are_counted_by_address() -> None:
    throttling = Throttling(ManualClock())
    assert throttling.connected("10.0.0.1") == 0
    throttling.configure({QuotaEntity(ip="10.0.0.1"): {CONNECTION_CREATION_RATE: 1.0}})
    waits = [throttling.connected("10.0.0.1") for _ in range(12)]
    assert waits == [0] * 10 + [1_000] * 2
    assert throttling.connected("10.0.0.2") == 0
    assert throttling.counters[CONNECTION].count == 2


def test_an_answer_tells_of_the_time_that_its_request_took_so_far() -> None:
    clock = ManualClock()
    clock.advance(1)
    throttling = Throttling(clock)
    assert throttling.request_ms(ALICE, "app") == 0
    throttling.configure({QuotaEntity("alice"): {REQUEST_PERCENTAGE: 1.0}})
    assert (throttling.limits_requests, throttling.tells_producers) == (True, True)
    throttling.handling_since_s = clock.precise_s()
    clock.advance(105)
    assert throttling.request_ms(ALICE, "app") == 500
    throttling.handling_since_s = 0.0
    assert throttling.request_ms(ALICE, "app") == 0
    assert throttling.requested(ALICE, "app", 0.105) == 500
    assert throttling.counters[REQUEST].total_ms == 500
