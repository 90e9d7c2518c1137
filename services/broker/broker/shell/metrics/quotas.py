"""Metrics of client quotas, by kind of quota. Clients are not labels: their number has no bound."""

from collections.abc import Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, Metric

from broker.shell.throttling import ThrottleCounters


def families(throttles: Mapping[str, ThrottleCounters]) -> Iterator[Metric]:
    """Yield the families."""
    count = CounterMetricFamily(
        "tidemark_quota_throttles", "answers with a throttle time, by quota", labels=["quota"]
    )
    seconds = CounterMetricFamily(
        "tidemark_quota_throttle_seconds",
        "seconds for which clients were throttled, by quota",
        labels=["quota"],
    )
    for kind, one in throttles.items():
        count.add_metric([kind], one.count)
        seconds.add_metric([kind], one.total_ms / 1_000)
    yield count
    yield seconds
