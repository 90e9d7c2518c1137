"""BrokerCollector: the broker's counters and state as Prometheus families, made at each scrape.

Names are those that Kafka's public dashboards use (JMX exporter, lower case).
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    Metric,
    UntypedMetricFamily,
)
from prometheus_client.registry import Collector
from tidemark.kafka.apis import ApiKey
from tidemark.runtime.audit.writer import AuditWriter
from tidemark.runtime.metadata_cache import MetadataCache

from broker.core.cleaning_turns import CleaningTurns
from broker.core.parked import Parked
from broker.metrics_config import MetricsConfig
from broker.shell.client_telemetry.receiver import ClientTelemetry
from broker.shell.counters import BrokerCounters
from broker.shell.groups.group_lag import GroupLag
from broker.shell.listener.limits import ConnectionLimits
from broker.shell.metrics import (
    client_metrics,
    compaction,
    groups,
    logins,
    partition_series,
    quotas,
    replication,
    share_groups,
)
from broker.shell.partitions.disk_health import DiskHealth
from broker.shell.partitions.table import PartitionTable
from broker.shell.request_times import api_name
from broker.shell.share.share_partitions import SharePartitions

_TOPIC_COUNTERS = (
    ("messagesin", "records_in", "records appended"),
    ("bytesin", "bytes_in", "bytes appended"),
    ("bytesout", "bytes_out", "bytes of records sent"),
    ("totalproducerequests", "produces", "produce requests, by partition"),
    ("totalfetchrequests", "fetches", "fetch requests, by partition"),
    ("failedproducerequests", "failed_produces", "produce requests that failed, by partition"),
    ("failedfetchrequests", "failed_fetches", "fetch requests that failed, by partition"),
)


@dataclass(frozen=True, slots=True)
class Measured:
    """Objects whose counters and state are shown."""

    counters: BrokerCounters
    metadata: MetadataCache
    table: PartitionTable
    disks: DiskHealth
    log_dirs: Sequence[str]
    turns: CleaningTurns
    parked: Parked
    fetch_sessions: Sized
    limits: ConnectionLimits
    has_lease: Callable[[], bool]
    shares: SharePartitions
    lag: GroupLag
    connections: Callable[[], Mapping[str, int]]
    """Number of open connections by listener."""
    config: MetricsConfig
    telemetry: ClientTelemetry | None
    audit: AuditWriter | None


class BrokerCollector(Collector):
    """Reads counters and state at each scrape."""

    def __init__(self, measured: Measured) -> None:
        self._measured = measured

    def collect(self) -> Iterator[Metric]:
        """Yield all families of this broker."""
        measured = self._measured
        yield from self._topics()
        yield from self._requests()
        yield from replication.families(
            measured.metadata,
            measured.table,
            measured.disks,
            measured.counters,
            measured.has_lease,
        )
        yield from compaction.families(
            measured.turns, measured.table, measured.disks, measured.log_dirs
        )
        yield from self._network()
        yield from logins.families(measured.counters.logins)
        yield from quotas.families(measured.counters.throttles)
        yield from self._times()
        yield from share_groups.families(measured.shares)
        yield partition_series.stable_lags(measured.table)
        if measured.config.metrics_partition_series_enable:
            yield from partition_series.families(measured.table)
        if measured.config.metrics_group_lag_enable:
            yield from groups.families(measured.lag)
        if measured.telemetry is not None:
            yield from client_metrics.families(measured.telemetry)
        if measured.audit is not None:
            yield from measured.audit.collect()

    def _topics(self) -> Iterator[Metric]:
        counters = dict(self._measured.counters.topics)
        for name, attribute, doc in _TOPIC_COUNTERS:
            family = CounterMetricFamily(
                f"kafka_server_brokertopicmetrics_{name}", doc, labels=["topic"]
            )
            total = getattr(self._measured.counters.topics_gone, attribute)
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
        for topic, refusals in self._measured.counters.internal_topics_refused.items():
            refused.add_metric([topic], refusals.count)
        yield refused

    def _requests(self) -> Iterator[Metric]:
        served = CounterMetricFamily(
            "kafka_network_requestmetrics_requests", "requests received, by API", labels=["request"]
        )
        errors = CounterMetricFamily(
            "kafka_network_requestmetrics_errors",
            "requests answered with an error, in all or in part; not of Metadata, ListOffsets, and"
            " the partitions of share fetches and acknowledgements",
            labels=["request"],
        )
        for key in ApiKey:
            name = api_name(key)
            count = self._measured.counters.requests[key]
            if count:
                served.add_metric([name], count)
                errors.add_metric([name], self._measured.counters.request_errors[key])
        yield served
        yield errors

    def _times(self) -> Iterator[Metric]:
        counters = self._measured.counters
        yield from counters.times.total.collect()
        yield from counters.times.waits.collect()
        yield from counters.flush_seconds.collect()
        yield from counters.isr_change_seconds.collect()
        crc = CounterMetricFamily(
            "tidemark_batch_crc_errors",
            "batches that did not match their CRC when they arrived, by source",
            labels=["source"],
        )
        crc.add_metric(["produce"], counters.crc_errors_produce)
        crc.add_metric(["replication"], counters.crc_errors_replication)
        yield crc

    def _network(self) -> Iterator[Metric]:
        measured, counters, parked = self._measured, self._measured.counters, self._measured.parked
        # Of unknown type, as Kafka's exporter has it: a gauge may not be called a count.
        connections = UntypedMetricFamily(
            "kafka_server_socket_server_metrics_connection_count",
            "open connections, by listener",
            labels=["listener"],
        )
        for listener, count in measured.connections().items():
            connections.add_metric([listener], count)
        yield connections
        yield GaugeMetricFamily(
            "tidemark_buffers_bytes",
            "receive buffers of all connections",
            value=measured.limits.buffered_bytes,
        )
        yield GaugeMetricFamily(
            "kafka_server_delayedoperationpurgatory_purgatorysize",
            "requests parked",
            value=parked.count,
        )
        yield GaugeMetricFamily(
            "kafka_server_fetchsessioncache_numincrementalfetchsessions",
            "fetch sessions",
            value=len(measured.fetch_sessions),
        )
        yield GaugeMetricFamily(
            "tidemark_tasks", "asyncio tasks of the event loop", value=_task_count()
        )
        for name, value, doc in (
            ("flush_errors", counters.flush_errors, "rounds of syncs that failed"),
            ("slow_requests", counters.times.slow_seen, "requests that took slow.request.ms"),
            ("connections_accepted", counters.connections_total, "connections accepted"),
            ("connections_refused", counters.connections_refused, "connections refused at a limit"),
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
                "batches whose inspection exceeded its time or memory, or whose worker died",
            ),
            ("log_damage_found", counters.damage_found, "damaged batches found by rereading"),
            ("log_damage_met", counters.damaged_reads, "requests that read damaged bytes"),
            (
                "polls_refused",
                parked.polls_refused,
                "long polls answered at once, without room",
            ),
            ("writes_held_back", parked.writes_held_back, "writes that waited for room"),
            ("requests_malformed", counters.malformed_requests, "requests that could not be read"),
        ):
            yield CounterMetricFamily(f"tidemark_{name}", doc, value=value)


def _task_count() -> int:
    """Return the number of tasks of the event loop; 0 outside of one."""
    try:
        return len(asyncio.all_tasks())
    except RuntimeError:
        return 0
