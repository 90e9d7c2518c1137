"""Metric of the recovery of logs, under the name of Kafka's LogManager."""

from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from broker.storage.recovery_progress import RecoveryProgress


class RecoveryCollector(Collector):
    """Logs that are not recovered yet, by directory. It is there from the start of the process."""

    def __init__(self, progress: RecoveryProgress) -> None:
        self._progress = progress

    def collect(self) -> Iterator[Metric]:
        """Yield the family."""
        family = GaugeMetricFamily(
            "kafka_log_logmanager_remaininglogstorecover",
            "logs that a start has not recovered yet, by log directory",
            labels=["dir"],
        )
        for path, one in self._progress.by_path.items():
            family.add_metric([path], one.remaining)
        yield family
