"""Metrics of compaction, under the names of Kafka's LogCleanerManager."""

from collections import Counter
from collections.abc import Iterator, Sequence

from prometheus_client.core import GaugeMetricFamily, Metric, UntypedMetricFamily

from broker.core.cleaning_turns import CleaningTurns
from broker.shell.partitions.disk_health import DiskHealth
from broker.shell.partitions.table import PartitionTable
from broker.storage.log_manager import LogManager


def families(
    turns: CleaningTurns, table: PartitionTable, disks: DiskHealth, log_dirs: Sequence[str]
) -> Iterator[Metric]:
    """Yield the number and the size of the logs that are left out, for each log directory."""
    logs, size_bytes = Counter[LogManager](), Counter[LogManager]()
    for key in turns.uncleanable:
        hosted = table.by_name.get(key)
        if hosted is not None:
            logs[hosted.manager] += 1
            size_bytes[hosted.manager] += hosted.log.size_bytes
    opened = [path for path in log_dirs if path not in disks.failed_directories]
    prefix = "kafka_log_logcleanermanager_uncleanable"
    # Of unknown type, as Kafka's exporter has it: a gauge may not be called a count.
    number = UntypedMetricFamily(
        f"{prefix}_partitions_count",
        "logs that compaction leaves out, as it failed there, by log directory",
        labels=["dir"],
    )
    size = GaugeMetricFamily(
        f"{prefix}_bytes",
        "size of the logs that compaction leaves out, by log directory",
        labels=["dir"],
    )
    for path, manager in zip(opened, disks.log_managers, strict=True):
        number.add_metric([path], logs[manager])
        size.add_metric([path], size_bytes[manager])
    yield number
    yield size
