"""A flood of wrong passwords from one address, at a broker that allows few of them."""

import contextlib
import threading
from collections.abc import Iterator

import pytest
from e2e.kafka_wire import Wire
from e2e.secured import Secured, codes, secured_cluster
from e2e.wire import ask
from prometheus_client.parser import text_string_to_metric_families
from tidemark.kafka.apis import ApiKey
from waiting import wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

USER = "alice"
BURST = 4
ATTACKERS = 12
DEADLINE_MS = 6_000
FAILED = "kafka_server_socket_server_metrics_failed_authentication_total"
DELAYED = "tidemark_logins_delayed_total"
TURNED_AWAY = "tidemark_logins_turned_away_total"


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    options = {
        "failed.authentication.burst.per.ip": str(BURST),
        "failed.authentication.rate.per.ip": "1",
        "sasl.login.deadline.ms": str(DEADLINE_MS),
    }
    with secured_cluster(tmp_path_factory.mktemp("floods"), broker=options) as secured:
        secured.add_users([USER])
        yield secured


def count(secured: Secured, name: str) -> float:
    page = secured.cluster.ops("broker-1", "/metrics")
    samples = [one for each in text_string_to_metric_families(page) for one in each.samples]
    return next(
        one.value for one in samples if one.name == name and one.labels == {"listener": "SAFE"}
    )


def is_in(wire: Wire) -> bool:
    """True if the connection is served. Raises EOFError, OSError if it is closed."""
    return codes(ask(wire, ApiKey.LIST_GROUPS, 3, {})) == {0}


def may_log_in(secured: Secured, password: str) -> bool:
    """One try. False if the password is refused, or the broker closes the connection."""
    try:
        with secured.login(USER, password) as wire:
            return is_in(wire)
    except (EOFError, OSError):
        return False


@contextlib.contextmanager
def flood(secured: Secured) -> Iterator[None]:
    over = threading.Event()

    def attack() -> None:
        while not over.is_set():
            assert not may_log_in(secured, "wrong")

    attackers = [threading.Thread(target=attack) for _ in range(ATTACKERS)]
    for one in attackers:
        one.start()
    try:
        yield
    finally:
        over.set()
        for one in attackers:
            one.join()


@pytest.mark.feature("SE05", "SE31")
def test_attack_a_flood_of_wrong_passwords_is_slowed_down_and_shuts_nobody_out(
    secured: Secured,
) -> None:
    with secured.login(USER) as before:
        assert is_in(before)
        with flood(secured):
            wait_for(lambda: count(secured, DELAYED) >= ATTACKERS - BURST)
            refused, turned_away = count(secured, FAILED), count(secured, TURNED_AWAY)
            assert is_in(before), "who is in is served"
            wait_for(lambda: may_log_in(secured, USER))
            wait_for(lambda: count(secured, TURNED_AWAY) > turned_away)
            assert count(secured, FAILED) > refused, "guesses go on, a few"
        assert is_in(before)
    wait_for(lambda: may_log_in(secured, USER))
