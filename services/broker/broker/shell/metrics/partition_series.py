"""Metrics with a series for each partition: logs, and led partitions under the names of Kafka and
of kafka_exporter.

The leader of a partition serves its series, so that each exists once in a cluster. Partitions
without a leader are the active controller's.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from prometheus_client.core import Metric
from tidemark.runtime.exposition import LabelValues, ManySamples

from broker.core.partition import Partition, Role
from broker.shell.partitions.hosted import HostedPartition
from broker.shell.partitions.table import PartitionTable

_LABELS: Final = ("topic", "partition")
_LOGS: Final[tuple[tuple[str, str, Callable[[HostedPartition], float]], ...]] = (
    ("kafka_log_log_size", "bytes of a partition's log", lambda one: one.log.size_bytes),
    (
        "kafka_log_log_logstartoffset",
        "first offset",
        lambda one: one.partition.log_start,
    ),
    ("kafka_log_log_logendoffset", "next offset", lambda one: one.partition.log_end),
)
_LED: Final[tuple[tuple[str, str, Callable[[Partition], float]], ...]] = (
    (
        "kafka_cluster_partition_underminisr",
        "1 if fewer replicas are in sync than min.insync.replicas",
        lambda one: len(one.isr) < one.commitment.min_insync,
    ),
    (
        "kafka_cluster_partition_atminisr",
        "1 if exactly min.insync.replicas are in sync",
        lambda one: len(one.isr) == one.commitment.min_insync,
    ),
    (
        "kafka_topic_partition_current_offset",
        "end of the committed records of a partition",
        lambda one: one.high_watermark,
    ),
    (
        "kafka_topic_partition_oldest_offset",
        "first offset of a partition",
        lambda one: one.log_start,
    ),
    (
        "kafka_topic_partition_in_sync_replica",
        "in-sync replicas of a partition",
        lambda one: len(one.isr),
    ),
    (
        "kafka_topic_partition_replicas",
        "replicas of a partition",
        lambda one: len(one.replicas),
    ),
    (
        "kafka_topic_partition_leader",
        "broker id of a partition's leader",
        lambda one: one.broker_id,
    ),
    (
        "kafka_topic_partition_leader_is_preferred",
        "1 if a partition is led by its preferred replica",
        lambda one: one.replicas[0] == one.broker_id,
    ),
    (
        "kafka_topic_partition_under_replicated_partition",
        "1 if a replica of a partition is not in sync",
        lambda one: len(one.isr) < len(one.replicas),
    ),
)


def families(table: PartitionTable) -> Iterator[Metric]:
    """Yield all families; their samples are made while they are written."""
    for name, doc, read in _LOGS:
        yield ManySamples(name, doc, _LABELS, _each(table, read))
    for name, doc, look in _LED:
        yield ManySamples(name, doc, _LABELS, _each_led(table, look))
    yield ManySamples(
        "tidemark_follower_lag_offsets",
        "offsets by which a follower is behind the log's end",
        (*_LABELS, "replica"),
        lambda: _follower_lags(table),
    )


def stable_lags(table: PartitionTable) -> ManySamples:
    """Return how far the last stable offset is behind, for partitions where it is behind."""
    return ManySamples(
        "tidemark_partition_stable_lag_records",
        "offsets between the last stable offset and the high watermark, of led partitions with an"
        " open transaction: read_committed consumers do not get them",
        _LABELS,
        lambda: (
            (_names(one), one.partition.high_watermark - one.partition.last_stable)
            for one in _led(table)
            if one.partition.producers.txns
        ),
    )


def _names(hosted: HostedPartition) -> LabelValues:
    topic, number = hosted.topic_partition
    return topic, str(number)


def _led(table: PartitionTable) -> Iterator[HostedPartition]:
    return (one for one in tuple(table.by_name.values()) if one.partition.role is Role.LEADER)


def _each(
    table: PartitionTable, read: Callable[[HostedPartition], float]
) -> Callable[[], Iterable[tuple[LabelValues, float]]]:
    return lambda: ((_names(one), read(one)) for one in tuple(table.by_name.values()))


def _each_led(
    table: PartitionTable, look: Callable[[Partition], float]
) -> Callable[[], Iterable[tuple[LabelValues, float]]]:
    return lambda: ((_names(one), look(one.partition)) for one in _led(table))


def _follower_lags(table: PartitionTable) -> Iterator[tuple[LabelValues, float]]:
    """Yield the lag of each follower of each led partition."""
    for hosted in _led(table):
        end = hosted.partition.log_end
        for replica, progress in tuple(hosted.partition.replica_set.progress.items()):
            yield (*_names(hosted), str(replica)), end - max(progress.log_end, 0)
