"""What a start found in its logs, as it is logged."""

import logging
from typing import Final, NamedTuple

from tidemark.model.topics import TopicPartition

_log: Final = logging.getLogger(__name__)


class RecoveryReport(NamedTuple):
    """What a start found in one log."""

    topic_partition: TopicPartition
    scanned_bytes: int
    truncated_bytes: int
    truncated_because: str
    damage: str | None


def log_recovery(report: RecoveryReport) -> None:
    """A torn tail is what a crash leaves; damage is a disk that does not keep what it was given."""
    if report.truncated_bytes:
        _log.warning(
            "%s: cut %d bytes off its end: %s",
            report.topic_partition,
            report.truncated_bytes,
            report.truncated_because,
        )
    if report.damage is not None:
        _log.error("%s: damage found: %s", report.topic_partition, report.damage)
