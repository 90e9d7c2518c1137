"""Metrics under the names that Kafka's public dashboards use (those of its JMX exporter).

A hot path adds to a plain attribute (``tally.value += n``: no lock, no lookup); the numbers
become Prometheus samples when /metrics is read. All of it runs on one event loop.
"""

import bisect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from prometheus_client import PlatformCollector, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector, CollectorRegistry

from tidemark.runtime.exposition import LabelValues as LabelValues
from tidemark.runtime.exposition import ManySamples, ReadSamples
from tidemark.runtime.service_config import version

SECONDS_BUCKETS: Final = (
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
)  # fmt: skip

# Names of Kafka's JMX exporter with descriptions. A counter's sample gets the suffix ``_total``.
KAFKA_METRICS: Final[Mapping[str, str]] = {
    "kafka_server_brokertopicmetrics_messagesin": "records appended",
    "kafka_server_brokertopicmetrics_bytesin": "bytes of record batches appended",
    "kafka_server_brokertopicmetrics_bytesout": "bytes of record batches sent to consumers",
    "kafka_server_brokertopicmetrics_totalproducerequests": "produce requests",
    "kafka_server_brokertopicmetrics_totalfetchrequests": "fetch requests",
    "kafka_server_brokertopicmetrics_failedproducerequests": "refused writes to partitions",
    "kafka_server_brokertopicmetrics_failedfetchrequests": "refused reads of partitions",
    "kafka_network_requestmetrics_requests": "requests answered, by API and version",
    "kafka_network_requestmetrics_errors": "answers with an error code, by API and error",
    "kafka_server_replicamanager_partitioncount": "partitions hosted",
    "kafka_server_replicamanager_leadercount": "partitions led",
    "kafka_server_replicamanager_underreplicatedpartitions": "led partitions, ISR incomplete",
    "kafka_server_replicamanager_offlinereplicacount": "replicas on failed log directories",
    "kafka_log_log_size": "bytes on disk, by partition",
    "kafka_log_log_logstartoffset": "first offset, by partition",
    "kafka_log_log_logendoffset": "next offset, by partition",
    "kafka_log_logmanager_offlinelogdirectorycount": "log directories that are full or have failed",
    "kafka_controller_kafkacontroller_activecontrollercount": "1 on the active controller",
    "kafka_controller_kafkacontroller_offlinepartitionscount": "partitions without a leader",
    "kafka_controller_kafkacontroller_globaltopiccount": "topics",
    "kafka_controller_kafkacontroller_globalpartitioncount": "partitions",
    "kafka_controller_kafkacontroller_fencedbrokercount": "registered brokers that are fenced",
    "kafka_controller_kafkacontroller_activebrokercount": "registered brokers that are not fenced",
}


class Tally:
    """One number. A counter only grows; a gauge may be set."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value: float = 0


class Timings:
    """Histogram of observed seconds."""

    __slots__ = ("_bounds", "counts", "sum_seconds")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum_seconds = 0.0

    def observe(self, seconds: float) -> None:
        """Add one duration."""
        self.counts[bisect.bisect_left(self._bounds, seconds)] += 1
        self.sum_seconds += seconds


class TallyFamily(Collector):
    """Tallies under one name, one for each combination of label values."""

    def __init__(self, name: str, doc: str, labels: Sequence[str], *, counter: bool) -> None:
        self._name = name
        self._doc = doc
        self._labels = tuple(labels)
        self._counter = counter
        self._tallies: dict[LabelValues, Tally] = {}

    def at(self, *values: str) -> Tally:
        """Return the tally of these label values, created at the first call.

        Keep the result: the look-up is the slow part.
        """
        assert len(values) == len(self._labels), f"{self._name} has labels {self._labels}"
        tally = self._tallies.get(values)
        if tally is None:
            tally = self._tallies[values] = Tally()
        return tally

    def forget(self, *values: str) -> None:
        """Drop these label values, for instance those of a deleted topic."""
        self._tallies.pop(values, None)

    def collect(self) -> Iterator[Metric]:
        """Yield the samples; called when /metrics is read."""
        kind = CounterMetricFamily if self._counter else GaugeMetricFamily
        family = kind(self._name, self._doc, labels=self._labels)
        for values, tally in list(self._tallies.items()):
            family.add_metric(values, tally.value)
        yield family


class TimingsFamily(Collector):
    """Timings under one name, one for each combination of label values."""

    def __init__(self, name: str, doc: str, labels: Sequence[str], bounds: Sequence[float]) -> None:
        self._name = name
        self._doc = doc
        self._labels = tuple(labels)
        self._bounds = tuple(bounds)
        self._timings: dict[LabelValues, Timings] = {}

    def at(self, *values: str) -> Timings:
        """Return the timings of these label values, created at the first call. Keep the result."""
        assert len(values) == len(self._labels), f"{self._name} has labels {self._labels}"
        timings = self._timings.get(values)
        if timings is None:
            timings = self._timings[values] = Timings(self._bounds)
        return timings

    def collect(self) -> Iterator[Metric]:
        """Yield the samples; called when /metrics is read."""
        family = HistogramMetricFamily(self._name, self._doc, labels=self._labels)
        for values, timings in list(self._timings.items()):
            running, buckets = 0, []
            for bound, count in zip([*map(str, self._bounds), "+Inf"], timings.counts, strict=True):
                running += count
                buckets.append((bound, float(running)))
            family.add_metric(values, buckets, timings.sum_seconds)
        yield family


class _Computed(Collector):
    """Gauge whose samples are computed when /metrics is read."""

    def __init__(self, name: str, doc: str, labels: Sequence[str], read: ReadSamples) -> None:
        self._family = ManySamples(name, doc, labels, read)

    def collect(self) -> Iterator[Metric]:
        yield self._family


class Metrics:
    """Metrics of one service. OpsServer shows ``registry``."""

    def __init__(self, service: str) -> None:
        self.registry = CollectorRegistry(auto_describe=False)
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        self.gauge("tidemark_build_info", "the running release", ("service", "version")).at(
            service, version()
        ).value = 1

    def counter(self, name: str, doc: str = "", labels: Sequence[str] = ()) -> TallyFamily:
        """Register a counter, which only grows; shown as ``<name>_total``.

        A name of KAFKA_METRICS needs no ``doc``.
        """
        return self._registered(TallyFamily(name, _doc(name, doc), labels, counter=True))

    def gauge(self, name: str, doc: str = "", labels: Sequence[str] = ()) -> TallyFamily:
        """Register a gauge, which may be set."""
        return self._registered(TallyFamily(name, _doc(name, doc), labels, counter=False))

    def timings(
        self,
        name: str,
        doc: str = "",
        labels: Sequence[str] = (),
        *,
        bounds: Sequence[float] = SECONDS_BUCKETS,
    ) -> TimingsFamily:
        """Register a histogram of seconds."""
        family = TimingsFamily(name, _doc(name, doc), labels, bounds)
        self.registry.register(family)
        return family

    def computed(
        self,
        name: str,
        read: ReadSamples,
        doc: str = "",
        labels: Sequence[str] = (),
    ) -> None:
        """Register a gauge whose samples, (label values, number), come from ``read``. It is called
        when /metrics is read.
        """
        self.registry.register(_Computed(name, _doc(name, doc), labels, read))

    def computed_one(self, name: str, read: Callable[[], float], doc: str = "") -> None:
        """Register a gauge without labels that is computed when /metrics is read."""
        self.computed(name, lambda: (((), read()),), doc)

    def _registered(self, family: TallyFamily) -> TallyFamily:
        self.registry.register(family)
        return family


def _doc(name: str, doc: str) -> str:
    text = doc or KAFKA_METRICS.get(name, "")
    assert text, f"metric {name} needs a description"
    return text
