"""Metrics that clients pushed, and figures about them."""

from collections.abc import Iterator
from typing import Final, cast

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    Metric,
    UntypedMetricFamily,
)
from prometheus_client.samples import Sample

from broker.core.client_metrics.series import ClientSeries
from broker.shell.client_telemetry.receiver import ClientTelemetry

_KAFKA: Final = "kafka_server_client_metrics_"


def families(telemetry: ClientTelemetry) -> Iterator[Metric]:
    """Yield all families: the broker's own, then those of clients, without the stale ones."""
    telemetry.expire()
    instances, series = telemetry.instances, telemetry.series
    # Of unknown type: a gauge may not be called a count.
    yield UntypedMetricFamily(
        f"{_KAFKA}instance_count", "client instances that ask or push", value=len(instances)
    )
    yield GaugeMetricFamily(
        "tidemark_client_metrics_series", "series of clients' metrics", value=series.count
    )
    counts = instances.counts
    for name, count, doc in (
        (f"{_KAFKA}throttle", counts.throttled, "requests before the client's push interval"),
        (
            f"{_KAFKA}unknown_subscription_request",
            counts.unknown_subscriptions,
            "pushes for a subscription that has changed",
        ),
        (f"{_KAFKA}plugin_export", telemetry.pushes, "pushes of clients that were taken"),
        (f"{_KAFKA}plugin_error", telemetry.failures, "pushes of clients that were not readable"),
        (
            "tidemark_client_metrics_dropped",
            telemetry.dropped + series.dropped,
            "points of pushes that were not kept: beyond telemetry.series.max or 1,000 of a push,"
            " and histograms",
        ),
    ):
        yield CounterMetricFamily(name, doc, value=count)
    for name in series.names():
        yield _ClientFamily(name, series)


class _ClientFamily(Metric):
    """One metric of clients, of the type that the client gives it, which is not kept."""

    def __init__(self, name: str, series: ClientSeries) -> None:
        super().__init__(name, "metric of clients", "unknown")
        self.samples = cast("list[Sample]", _ClientSamples(name, series))


class _ClientSamples:
    """Samples of one family, made while it is written."""

    def __init__(self, name: str, series: ClientSeries) -> None:
        self._name = name
        self._series = series

    def __iter__(self) -> Iterator[Sample]:
        for client, labels, value in self._series.samples(self._name):
            yield Sample(self._name, dict(client + labels), value)
