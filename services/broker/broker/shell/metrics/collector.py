"""BrokerCollector: the broker's counters and state as Prometheus families, made at each scrape.

Names are those that Kafka's public dashboards use (JMX exporter, lower case).
"""

import asyncio
from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from tidemark.kafka.apis import ApiKey

from broker.shell.metrics import replication
from broker.shell.node import BrokerNode

_TOPIC_COUNTERS = (
    ("messagesin", "records_in", "records appended"),
    ("bytesin", "bytes_in", "bytes appended"),
    ("bytesout", "bytes_out", "bytes of records sent"),
    ("totalproducerequests", "produces", "produce requests, by partition"),
    ("totalfetchrequests", "fetches", "fetch requests, by partition"),
    ("failedproducerequests", "failed_produces", "produce requests that failed, by partition"),
    ("failedfetchrequests", "failed_fetches", "fetch requests that failed, by partition"),
)


class BrokerCollector(Collector):
    """Reads the counters and the node's state at each scrape."""

    def __init__(self, node: BrokerNode) -> None:
        self._node = node

    def collect(self) -> Iterator[Metric]:
        """All families of this broker."""
        yield from self._topics()
        yield from self._requests()
        yield from replication.families(self._node)
        yield from self._network()
        yield from self._logs()

    def _topics(self) -> Iterator[Metric]:
        counters = dict(self._node.counters.topics)
        for name, attribute, doc in _TOPIC_COUNTERS:
            family = CounterMetricFamily(
                f"kafka_server_brokertopicmetrics_{name}", doc, labels=["topic"]
            )
            total = 0
            for topic, one in counters.items():
                value = getattr(one, attribute)
                total += value
                family.add_metric([topic], value)
            family.add_metric([""], total)
            yield family
        refused = CounterMetricFamily(
            "tidemark_internal_topics_refused",
            "requests that needed an internal topic for which there are too few brokers",
            labels=["topic"],
        )
        for topic, refusals in self._node.counters.internal_topics_refused.items():
            refused.add_metric([topic], refusals.count)
        yield refused

    def _requests(self) -> Iterator[Metric]:
        served = CounterMetricFamily(
            "kafka_network_requestmetrics_requests", "requests taken, by API", labels=["request"]
        )
        errors = CounterMetricFamily(
            "kafka_network_requestmetrics_errors",
            "requests answered with an error",
            labels=["request"],
        )
        for key in ApiKey:
            name = _api_name(key)
            count = self._node.counters.requests[key]
            if count:
                served.add_metric([name], count)
                errors.add_metric([name], self._node.counters.request_errors[key])
        yield served
        yield errors

    def _network(self) -> Iterator[Metric]:
        node, counters, parked = self._node, self._node.counters, self._node.parked
        yield GaugeMetricFamily(
            "kafka_server_socket_server_metrics_connection_count",
            "open connections",
            value=node.limits.connections,
        )
        yield GaugeMetricFamily(
            "tidemark_buffers_bytes",
            "receive buffers of all connections",
            value=node.limits.buffered_bytes,
        )
        yield GaugeMetricFamily(
            "kafka_server_delayedoperationpurgatory_purgatorysize",
            "requests parked",
            value=parked.count,
        )
        yield GaugeMetricFamily(
            "kafka_server_fetchsessioncache_numincrementalfetchsessions",
            "fetch sessions",
            value=len(node.fetch_sessions),
        )
        yield GaugeMetricFamily(
            "tidemark_tasks", "asyncio tasks of the event loop", value=_task_count()
        )
        for name, value, doc in (
            ("connections_accepted", counters.connections_total, "connections accepted"),
            ("connections_refused", counters.connections_refused, "connections beyond a limit"),
            ("connections_idle_closed", counters.closed_idle, "connections closed as idle"),
            (
                "disk_calls_refused",
                counters.calls_refused,
                "requests refused because descriptors or memory had run out",
            ),
            ("frames_late", counters.closed_late_frame, "connections closed within a frame"),
            ("frames_refused", counters.closed_frame, "frames too large or of negative length"),
            (
                "inspections_given_up",
                counters.inspections_given_up,
                "batches whose records were not walked within time, memory or a worker's life",
            ),
            ("log_damage_found", counters.damage_found, "damaged batches found by rereading"),
            ("log_damage_met", counters.damaged_reads, "requests that met damaged bytes"),
            ("polls_refused", parked.polls_refused, "long polls answered at once, without room"),
            ("writes_held_back", parked.writes_held_back, "writes that waited for room"),
            ("requests_malformed", counters.malformed_requests, "requests that could not be read"),
        ):
            yield CounterMetricFamily(f"tidemark_{name}", doc, value=value)

    def _logs(self) -> Iterator[Metric]:
        sizes = GaugeMetricFamily(
            "kafka_log_log_size", "bytes of a partition's log", labels=["topic", "partition"]
        )
        starts = GaugeMetricFamily(
            "kafka_log_log_logstartoffset", "first offset", labels=["topic", "partition"]
        )
        ends = GaugeMetricFamily(
            "kafka_log_log_logendoffset", "next offset", labels=["topic", "partition"]
        )
        for (topic, partition), one in dict(self._node.table.by_name).items():
            labels = [topic, str(partition)]
            sizes.add_metric(labels, one.log.size_bytes)
            starts.add_metric(labels, one.partition.log_start)
            ends.add_metric(labels, one.partition.log_end)
        yield from (sizes, starts, ends)


def _task_count() -> int:
    """Scrapes run on the event loop; outside of one there are none."""
    try:
        return len(asyncio.all_tasks())
    except RuntimeError:
        return 0


def _api_name(key: ApiKey) -> str:
    return "".join(word.capitalize() for word in key.name.split("_"))
