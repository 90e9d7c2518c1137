"""Reports of recoveries, as logged at a start."""

import logging
from typing import Final, NamedTuple

from tidemark.model.topics import TopicPartition

from broker.storage.recovery import Recovered

_log: Final = logging.getLogger(__name__)


class RecoveryReport(NamedTuple):
    """Report of the recovery of one log."""

    topic_partition: TopicPartition
    scanned_bytes: int
    truncated_bytes: int
    truncated_because: str
    damage: str | None
    end_lost: bool = False

    @classmethod
    def of(cls, topic_partition: TopicPartition, recovered: Recovered) -> "RecoveryReport":
        """Create a report from the recovery of one log."""
        return cls(
            topic_partition,
            recovered.scanned_bytes,
            recovered.truncated_bytes,
            recovered.truncated_because,
            recovered.damage,
            recovered.end_lost,
        )


def log_recovery(report: RecoveryReport) -> None:
    """Log a recovery. A crash leaves a torn tail; damage is the fault of a disk."""
    if report.truncated_bytes:
        _log.warning(
            "%s: cut %d bytes off its end: %s",
            report.topic_partition,
            report.truncated_bytes,
            report.truncated_because,
        )
    if report.end_lost and report.damage is None:
        _log.error(
            "%s: end lost: more was cut off than one unfinished batch", report.topic_partition
        )
    if report.damage is not None:
        _log.error("%s: damage found: %s", report.topic_partition, report.damage)
