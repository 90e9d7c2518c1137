"""Log lines of partitions that a change of metadata gave another role, leader or leader epoch."""

import logging
from collections.abc import Sequence
from typing import Final

from tidemark.runtime.telemetry import fields, shortened

from broker.shell.partitions.hosted import HostedPartition

log = logging.getLogger(__name__)

LINES_MAX: Final = 100
"""Partitions of one change with a line each. The end of a broker concerns thousands of partitions,
whose lines would take a third of the time until they are led again.
"""


def log_roles(changed: Sequence[HostedPartition]) -> None:
    """Log the new roles of partitions: a line each, or a line for each leader if they are many."""
    if len(changed) > LINES_MAX:
        _log_many(changed)
        return
    for hosted in changed:
        partition = hosted.partition
        log.info(
            "partition role set",
            extra=fields(
                partition=str(partition.topic_partition),
                role=partition.role.name.lower(),
                leader=partition.leader,
                epoch=partition.leader_epoch,
            ),
        )


def _log_many(changed: Sequence[HostedPartition]) -> None:
    named: dict[tuple[str, int], list[str]] = {}
    for hosted in changed:
        partition = hosted.partition
        led = (partition.role.name.lower(), partition.leader)
        named.setdefault(led, []).append(str(partition.topic_partition))
    for (role, leader), names in named.items():
        words = fields(**shortened("partitions", names), role=role, leader=leader)
        log.info("partition roles set", extra=words)
