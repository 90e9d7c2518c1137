"""Truncations of a follower's log: where the leader's log differs, or begins elsewhere."""

import asyncio
import logging

from tidemark.codec.record_batch import HEADER_BYTES, read_header
from tidemark.runtime.telemetry import fields

from broker.shell.partitions.hosted import HostedPartition
from broker.storage.producer_replay import ProducerReplay

log = logging.getLogger(__name__)


async def prepare_cut(
    hosted: HostedPartition, leader_epoch: int, end: int
) -> ProducerReplay | None:
    """Walk, in a thread, what a truncation would walk on the event loop, if that is much. Return
    the walk for ``truncate``. Raises DiskError, LogDamagedError.
    """
    offset = hosted.partition.truncation_for(leader_epoch, end)
    if offset >= hosted.log.log_end:
        return None
    replay = hosted.log.history.begin_replay(offset, hosted.log.log_end)
    if not replay.is_long:
        return None
    await asyncio.to_thread(replay.run)
    return replay


def truncate(
    hosted: HostedPartition, leader_epoch: int, end: int, replay: ProducerReplay | None = None
) -> None:
    """Truncate where the leader's log diverges from the local one. ``replay``: as prepared for that
    leader epoch and end; other code may have run since. Raises DiskError.
    """
    partition = hosted.partition
    before, offset = partition.log_end, partition.truncation_for(leader_epoch, end)
    if replay is not None and replay.end != offset:
        replay = None
    with hosted.log.history.replayed(replay, hosted.log.log_end):
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


def make_room(hosted: HostedPartition, records: memoryview) -> None:
    """Let an empty log begin with the leader's batch that contains its start. The log start follows
    the leader's again once the batch is appended. Raises DiskError.
    """
    if len(records) >= HEADER_BYTES:
        header = read_header(records)
        if hosted.partition.starts_within(header):
            _restart(hosted, header.base_offset)
            log.info(
                "log restarted at the first offset of the leader's batch",
                extra=fields(partition=str(hosted.topic_partition), log_start=header.base_offset),
            )


def set_log_start(hosted: HostedPartition, offset: int) -> None:
    """Restart the log at the leader's log start: the leader has nothing of the local log. Raises
    DiskError.
    """
    before = hosted.partition.log_end
    _restart(hosted, offset)
    log.warning(
        "log restarted at the leader's log start",
        extra=fields(partition=str(hosted.topic_partition), log_start=offset, was=before),
    )


def _restart(hosted: HostedPartition, offset: int) -> None:
    hosted.log.truncate_fully_and_start_at(offset)
    hosted.partition.started_at(offset)
