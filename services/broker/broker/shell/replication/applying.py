"""Truncations of a follower's log: where the leader's log differs, or begins later."""

import logging

from tidemark.runtime.telemetry import fields

from broker.shell.partitions.hosted import HostedPartition

log = logging.getLogger(__name__)


def truncate(hosted: HostedPartition, leader_epoch: int, end: int) -> None:
    """Truncate where the leader's log diverges from the local one. Raises DiskError."""
    partition = hosted.partition
    before, offset = partition.log_end, partition.truncation_for(leader_epoch, end)
    hosted.log.truncate_to(offset)
    partition.truncated(hosted.log.log_end, hosted.log.synced_end)
    log.info(
        "log truncated",
        extra=fields(
            partition=str(hosted.topic_partition),
            leader=partition.leader,
            leader_epoch=leader_epoch,
            log_end=partition.log_end,
            was=before,
        ),
    )


def set_log_start(hosted: HostedPartition, offset: int) -> None:
    """Restart the log at the leader's log start: the leader has nothing of the local log. Raises
    DiskError.
    """
    partition = hosted.partition
    before = partition.log_end
    hosted.log.truncate_fully_and_start_at(offset)
    partition.started_at(offset)
    log.warning(
        "log restarted at the leader's log start",
        extra=fields(partition=str(hosted.topic_partition), log_start=offset, was=before),
    )
