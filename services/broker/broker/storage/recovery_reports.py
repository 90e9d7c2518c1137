"""What a start found in its logs, as it is logged."""

import logging
from typing import Final, NamedTuple

from tidemark.model.topics import TopicPartition

from broker.storage.recovery import Recovered

_log: Final = logging.getLogger(__name__)


class RecoveryReport(NamedTuple):
    """What a start found in one log."""

    topic_partition: TopicPartition
    scanned_bytes: int
    truncated_bytes: int
    truncated_because: str
    damage: str | None
    end_lost: bool = False

    @classmethod
    def of(cls, topic_partition: TopicPartition, found: Recovered) -> "RecoveryReport":
        """What the recovery of one log came to."""
        return cls(
            topic_partition,
            found.scanned_bytes,
            found.truncated_bytes,
            found.truncated_because,
            found.damage,
            found.end_lost,
        )


def log_recovery(report: RecoveryReport) -> None:
    """A torn tail is what a crash leaves; damage is a disk that does not keep what it was given."""
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
