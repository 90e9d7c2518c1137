"""Client quotas: precedence, who shares a rate, and bounds."""

from itertools import product

import pytest
from broker.core import client_quotas
from broker.core.client_quotas import Client, InForce, Quotas, in_force
from hypothesis import given
from hypothesis import strategies as st
from tidemark.model.authorization import PROCESS
from tidemark.model.ids import InstantMs
from tidemark.model.quotas import (
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    DEFAULT,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    ClientQuotas,
    QuotaEntity,
)

NOW = InstantMs(1_000_000)
ALICE = Client("User:alice", "app")
NAMES = [None, DEFAULT, "alice", "bob"]
ENTITIES = [QuotaEntity(user, name) for user, name in product(NAMES, repeat=2) if user or name]
PRECEDENCE = [
    (QuotaEntity("alice", "bob"), ("alice", "bob")),
    (QuotaEntity("alice", DEFAULT), ("alice", "bob")),
    (QuotaEntity("alice"), ("alice", "")),
    (QuotaEntity(DEFAULT, "bob"), ("alice", "bob")),
    (QuotaEntity(DEFAULT, DEFAULT), ("alice", "bob")),
    (QuotaEntity(DEFAULT), ("alice", "")),
    (QuotaEntity(None, "bob"), ("", "bob")),
    (QuotaEntity(None, DEFAULT), ("", "bob")),
]
"""As Kafka's documentation lists it."""


@given(st.dictionaries(st.sampled_from(ENTITIES), st.floats(1, 100)))
def test_the_first_entity_of_the_list_is_in_force(limits: dict[QuotaEntity, float]) -> None:
    found = [(one, shared) for one, shared in PRECEDENCE if one in limits]
    expected = InForce(limits[found[0][0]], found[0][1]) if found else None
    assert in_force(limits, "alice", "bob") == expected


def limited(limits: ClientQuotas) -> Quotas:
    quotas = Quotas()
    quotas.configure(limits)
    return quotas


def test_nothing_is_throttled_or_kept_by_default() -> None:
    quotas = Quotas()
    kinds = (quotas.produce, quotas.fetch, quotas.requests, quotas.mutations)
    assert not any(one.enabled for one in (*kinds, quotas.connections))
    assert quotas.produce.record(ALICE, 10**9, NOW) == 0
    assert quotas.connections.connected("127.0.0.1", NOW) == 0
    assert quotas.produce.sensor_count == 0


def test_clients_of_one_user_share_its_rate_and_other_kinds_are_free() -> None:
    quotas = Quotas()
    quotas.configure({QuotaEntity("alice"): {PRODUCER_BYTE_RATE: 1_000.0}})
    assert quotas.produce.enabled
    assert not quotas.fetch.enabled
    assert quotas.produce.record(ALICE, 10_000, NOW) == 0
    assert quotas.produce.record(ALICE._replace(client_id="other"), 500, NOW) == 500
    assert quotas.produce.record(Client("User:bob", "app"), 10**9, NOW) == 0


def test_a_changed_limit_keeps_what_was_used() -> None:
    quotas = Quotas()
    quotas.configure({QuotaEntity("alice"): {CONSUMER_BYTE_RATE: 1_000.0}})
    assert quotas.fetch.largest(ALICE) == 10_000
    assert quotas.fetch.record(ALICE, 12_000, NOW) == 2_000
    quotas.configure({QuotaEntity("alice"): {CONSUMER_BYTE_RATE: 2_000.0}})
    assert quotas.fetch.record(ALICE, 0, NOW) == 0
    quotas.configure({})
    assert quotas.fetch.largest(ALICE) is None
    assert not quotas.fetch.enabled


def test_requests_are_limited_to_a_share_of_the_time_for_at_most_a_sample() -> None:
    requests = limited({QuotaEntity("alice"): {REQUEST_PERCENTAGE: 1.0}}).requests
    assert requests.record(ALICE, 0.1, NOW) == 0  # 10 % of a second: 1 % of ten seconds
    assert requests.throttle_ms(ALICE, 0.005, NOW) == 500
    assert requests.record(ALICE, 0.002, NOW) == 200
    assert requests.record(ALICE, 5.0, NOW) == 1_000
    assert requests.record(Client("User:bob", "app"), 5.0, NOW) == 0
    assert requests.throttle_ms(ALICE, 0.0, InstantMs(NOW + 11_000)) == 0


def test_the_processes_of_the_cluster_may_take_any_time() -> None:
    requests = limited({QuotaEntity(DEFAULT): {REQUEST_PERCENTAGE: 1.0}}).requests
    assert requests.record(Client(PROCESS, ""), 5.0, NOW) == 0
    assert requests.throttle_ms(Client(PROCESS, ""), 5.0, NOW) == 0
    assert requests.record(ALICE, 5.0, NOW) == 1_000


def test_the_processes_of_the_cluster_are_a_user_whose_name_no_client_has() -> None:
    name = PROCESS.partition(":")[2]
    of_client = {QuotaEntity(name): {CONSUMER_BYTE_RATE: 1_000.0}}
    of_processes = {QuotaEntity(PROCESS): {CONSUMER_BYTE_RATE: 2_000.0}}
    client, process = Client(f"User:{name}", ""), Client(PROCESS, "tidemark-controller")
    fetch = limited(of_client).fetch
    assert (fetch.largest(client), fetch.largest(process)) == (10_000, None)
    fetch = limited(of_client | of_processes).fetch
    assert (fetch.largest(client), fetch.largest(process)) == (10_000, 20_000)
    fetch = limited({QuotaEntity(DEFAULT): {CONSUMER_BYTE_RATE: 1_000.0}}).fetch
    assert fetch.record(process, 12_000, NOW) == 2_000
    assert fetch.record(client, 10_000, NOW) == 0, "it has a rate of its own"


def test_a_mutation_is_accepted_until_there_is_a_debt() -> None:
    quotas = Quotas()
    quotas.configure({QuotaEntity("alice"): {CONTROLLER_MUTATION_RATE: 1.0}})
    assert quotas.mutations.throttle_ms(ALICE, NOW) == 0
    quotas.mutations.take(ALICE, 13, NOW)  # of 11
    assert quotas.mutations.throttle_ms(ALICE, NOW) == 2_000
    assert quotas.mutations.throttle_ms(ALICE, InstantMs(NOW + 2_000)) == 0
    assert quotas.mutations.throttle_ms(Client("User:bob", ""), NOW) == 0


def test_connections_beyond_the_rate_of_an_address_are_not_counted() -> None:
    quotas = Quotas()
    limits = {QuotaEntity(ip="10.0.0.1"): 1.0, QuotaEntity(ip=DEFAULT): 2.0}
    quotas.configure({one: {CONNECTION_CREATION_RATE: bound} for one, bound in limits.items()})
    for address, count, wait_ms in (("10.0.0.1", 10, 1_000), ("::ffff:10.0.0.2", 20, 500)):
        waits = [quotas.connections.connected(address, NOW) for _ in range(count + 5)]
        assert waits[:count] == [0] * count
        assert set(waits[count:]) == {wait_ms}
    assert quotas.connections.connected("10.0.0.1", InstantMs(NOW + 11_000)) == 0


def test_rates_and_clients_are_bounded_and_idle_rates_expire(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(client_quotas, "SENSORS_MAX", 8)
    monkeypatch.setattr(client_quotas, "CLIENTS_MAX", 8)
    quotas = Quotas()
    quotas.configure({QuotaEntity(None, DEFAULT): {PRODUCER_BYTE_RATE: 1.0}})
    for number in range(30):
        quotas.produce.record(Client("User:a", f"app-{number}"), 15, NOW)
        assert quotas.produce.sensor_count == min(number + 1, 8)
        assert len(quotas.produce._known) <= 8
    assert quotas.produce.record(Client("User:a", "app-29"), 0, NOW) == 5_000
    for number in range(8):
        quotas.produce.record(Client("User:b", f"new-{number}"), 15, InstantMs(NOW + 11_000))
    assert quotas.produce.sensor_count == 8


def test_all_idle_rates_are_gone_once_half_as_many_new_clients_came() -> None:
    quotas = Quotas()
    quotas.configure({QuotaEntity(None, DEFAULT): {PRODUCER_BYTE_RATE: 1.0}})
    for number in range(100):
        quotas.produce.record(Client("User:a", f"app-{number}"), 1, NOW)
    for number in range(50):
        quotas.produce.record(Client("User:b", f"new-{number}"), 1, InstantMs(NOW + 11_000))
    assert quotas.produce.sensor_count == 50
