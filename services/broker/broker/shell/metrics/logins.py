"""Metrics of logins, by listener, with the names of Kafka where it has them."""

from collections.abc import Iterator, Mapping
from typing import Final

from prometheus_client.core import CounterMetricFamily, Metric

from broker.shell.counters import LoginCounters

_KAFKA: Final = "kafka_server_socket_server_metrics_"
_FAMILIES: Final = (
    (f"{_KAFKA}successful_authentication", "succeeded", "logins that succeeded"),
    (f"{_KAFKA}successful_reauthentication", "repeated", "re-authentications that succeeded"),
    (f"{_KAFKA}failed_authentication", "failed", "logins and re-authentications that failed"),
    (f"{_KAFKA}expired_connections_killed", "expired", "connections closed as expired sessions"),
    ("tidemark_logins_late", "late", "connections closed because the login took too long"),
    (
        "tidemark_logins_delayed",
        "delayed",
        "connections that waited before their login, as their address had failed too often",
    ),
    (
        "tidemark_logins_turned_away",
        "turned_away",
        "connections closed because they would have waited too long for their login",
    ),
    (
        "tidemark_requests_before_login",
        "illegal",
        "connections closed because of a request before authentication",
    ),
)


def families(logins: Mapping[str, LoginCounters]) -> Iterator[Metric]:
    """Yield the families, empty without a listener with SASL."""
    for name, attribute, doc in _FAMILIES:
        family = CounterMetricFamily(name, f"{doc}, by listener", labels=["listener"])
        for listener, counts in logins.items():
            family.add_metric([listener], getattr(counts, attribute))
        yield family
