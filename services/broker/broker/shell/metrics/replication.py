"""Metrics of replication and leadership, under the names of Kafka's ReplicaManager."""

from collections import Counter
from collections.abc import Callable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from tidemark.runtime.metadata_cache import MetadataCache

from broker.core.partition import Partition, Role
from broker.shell.counters import BrokerCounters
from broker.shell.partitions.disk_health import DiskHealth
from broker.shell.partitions.table import PartitionTable

_DOCS = {
    "leadercount": "partitions led",
    "underreplicatedpartitions": "led partitions with a replica outside the ISR",
    "underminisrpartitioncount": "led partitions with fewer in sync than min.insync.replicas",
    "atminisrpartitioncount": "led partitions with exactly min.insync.replicas in sync",
    "offlinereplicacount": "hosted partitions that are offline",
    "reassigningpartitions": "led partitions whose replicas are being moved",
}


def families(
    metadata: MetadataCache,
    table: PartitionTable,
    disks: DiskHealth,
    counters: BrokerCounters,
    has_lease: Callable[[], bool],
) -> Iterator[Metric]:
    """Yield all families, from the present state of the partitions."""
    counts: Counter[str] = Counter()
    for hosted in table.by_name.values():
        counts.update(_states(metadata, hosted.partition))
    prefix = "kafka_server_replicamanager"
    yield GaugeMetricFamily(f"{prefix}_partitioncount", "partitions hosted", len(table.by_name))
    for name, doc in _DOCS.items():
        yield GaugeMetricFamily(f"{prefix}_{name}", doc, counts[name])
    for name, value, doc in (
        (f"{prefix}_isrexpands", counters.isr_expands, "ISR expansions"),
        (f"{prefix}_isrshrinks", counters.isr_shrinks, "ISR shrinks"),
        (f"{prefix}_failedisrupdates", counters.isr_updates_failed, "proposals refused"),
        (
            "kafka_server_brokertopicmetrics_replicationbytesin",
            counters.replication_bytes_in,
            "bytes fetched from leaders",
        ),
        (
            "kafka_server_brokertopicmetrics_replicationbytesout",
            counters.replication_bytes_out,
            "bytes sent to followers",
        ),
    ):
        yield CounterMetricFamily(name, doc, value)
    yield GaugeMetricFamily(
        "tidemark_lease_held", "1 while no other broker can lead what this one leads", has_lease()
    )
    yield GaugeMetricFamily(
        "kafka_log_logmanager_offlinelogdirectorycount",
        "log directories fenced, or not opened",
        disks.offline_directories,
    )
    yield GaugeMetricFamily(
        "tidemark_log_directories_failed_before",
        "log directories in use that had failed before this start",
        disks.failed_before,
    )
    lags = [
        hosted.log.log_end - hosted.move.future.log_end
        for hosted in table.by_name.values()
        if hosted.move is not None
    ]
    yield GaugeMetricFamily(
        "kafka_server_replicaalterlogdirsmanager_maxlag",
        "offsets by which the copy that is furthest behind is behind its log, of replicas that move"
        " to another log directory",
        max([0, *lags]),
    )
    damaged = sum(1 for hosted in table.by_name.values() if hosted.log.damage is not None)
    yield GaugeMetricFamily(
        "tidemark_replicas_damaged", "hosted partitions whose log is known to be damaged", damaged
    )


def _states(metadata: MetadataCache, partition: Partition) -> list[str]:
    """Return the names of the counts that include this partition."""
    if partition.role is not Role.LEADER:
        return [] if partition.role is Role.FOLLOWER else ["offlinereplicacount"]
    name, number = partition.topic_partition
    in_sync = len(partition.isr)
    topic = metadata.image.topics.get(name)
    states = topic.partitions if topic is not None else ()
    belongs = {
        "leadercount": True,
        "underreplicatedpartitions": in_sync < len(partition.replicas),
        "underminisrpartitioncount": in_sync < partition.commitment.min_insync,
        "atminisrpartitioncount": in_sync == partition.commitment.min_insync,
        "reassigningpartitions": number < len(states) and states[number].is_reassigning,
    }
    return [name for name, does in belongs.items() if does]
