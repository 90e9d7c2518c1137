"""Metrics of log directories that fail, and of what is left of that after a restart."""

from broker.config import BrokerConfig
from broker.shell.metrics.collector import BrokerCollector
from broker.storage.log_manager import LogManager
from manual_clock import ManualClock
from tidemark.storage.disk import DiskError
from unit.broker.shell.broker_parts import BrokerParts
from unit.broker.storage.log_worlds import new_log, opened

OFFLINE = "kafka_log_logmanager_offlinelogdirectorycount"
FAILED_BEFORE = "tidemark_log_directories_failed_before"


def broker(manager: LogManager) -> BrokerParts:
    return BrokerParts(BrokerConfig(broker_id=1), [manager], clock=ManualClock())


def served(parts: BrokerParts) -> list[float]:
    """Return the values of both metrics."""
    values = {
        sample.name: sample.value
        for metric in BrokerCollector(parts.measured()).collect()
        for sample in metric.samples
    }
    return [values[OFFLINE], values[FAILED_BEFORE]]


def test_a_failure_is_shown_for_the_life_of_the_next_process() -> None:
    disk, manager, _ = new_log()
    parts = broker(manager)
    assert served(parts) == [0, 0]
    manager.fence(DiskError("orders-0/0.log", "Input/output error"))
    assert served(parts) == [1, 0]
    disk.kill()
    manager = opened(disk)
    parts = broker(manager)
    assert served(parts) == [0, 1]
    manager.join_cluster("c")
    assert served(parts) == [0, 1], "it is in use again"
    disk.kill()
    assert served(broker(opened(disk))) == [0, 0]
