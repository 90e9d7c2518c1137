"""What a leader's answer does to a follower's log: append, cut, begin anew."""

import logging
from typing import TYPE_CHECKING

from crc32c import crc32c
from tidemark.codec.control_record import read_control
from tidemark.codec.record_batch import (
    CRC_START,
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    MAGIC_V2,
    read_header,
)
from tidemark.codec.records import RecordsError
from tidemark.runtime.telemetry import fields

from broker.core.partition import AppendPlan

if TYPE_CHECKING:
    from broker.shell.hosted import HostedPartition
    from broker.shell.node import BrokerNode

log = logging.getLogger(__name__)


def append_records(
    node: "BrokerNode", hosted: "HostedPartition", records: memoryview, leader_epoch: int
) -> str | None:
    """Append whole batches as they are, in as few writes as can be. What does not match its CRC,
    and all behind it, is left out: says why. Raises DiskError, LogDamagedError.
    """
    partition, now_ms = hosted.partition, node.clock.wall_ms()
    plans, problem = _admit(hosted, records, leader_epoch)
    if any(plan.control is not None for plan in plans):
        hosted.log.expect_room()  # for the index of what markers abort
    position, taken = 0, 0
    while taken < len(plans):
        count = hosted.log.append_run(records[position:], plans[taken:], now_ms)  # type: ignore[arg-type]
        for plan in plans[taken : taken + count]:
            partition.appended(plan, now_ms)
            position += plan.size_bytes
        taken += count
    if partition.producers.newly_aborted:
        hosted.log.index_aborted()
    if position:
        node.counters.replication_bytes_in += position
        if partition.limits.flush_group:
            node.on_group_write()
    return problem


def _admit(
    hosted: "HostedPartition", records: memoryview, leader_epoch: int
) -> tuple[list[AppendPlan], str | None]:
    """The batches that may be appended, in order, and why not those behind them."""
    plans: list[AppendPlan] = []
    plan: AppendPlan | None = None
    position, end = 0, len(records)
    while end - position >= HEADER_BYTES:
        header = read_header(records, position)
        size = header.batch_length + LENGTH_PREFIX_BYTES
        if size < HEADER_BYTES or size > end - position:
            break
        covered = records[position + CRC_START : position + size]
        if header.magic != MAGIC_V2 or crc32c(covered) != header.crc:
            log.error(
                "leader sent a damaged batch",
                extra=fields(
                    partition=str(hosted.topic_partition),
                    leader=hosted.partition.leader,
                    offset=header.base_offset,
                ),
            )
            return plans, "a batch does not match its CRC"
        control = None
        if header.is_control:
            try:
                control = read_control(records[position : position + size], header)
            except RecordsError as problem:
                return plans, f"a control batch that cannot be read: {problem}"
        admitted = hosted.partition.admit_replicated(header, size, leader_epoch, plan, control)
        if not isinstance(admitted, AppendPlan):
            return plans, admitted.message
        plan = admitted
        plans.append(plan)
        position += size
    return plans, None


def truncate(hosted: "HostedPartition", leader_epoch: int, end: int) -> None:
    """Cut where the leader's log parts from ours. Raises DiskError."""
    partition = hosted.partition
    before, offset = partition.log_end, partition.truncation_for(leader_epoch, end)
    hosted.log.truncate_to(offset)
    partition.truncated(hosted.log.log_end, hosted.log.synced_end)
    log.info(
        "truncated",
        extra=fields(
            partition=str(hosted.topic_partition),
            leader=partition.leader,
            leader_epoch=leader_epoch,
            log_end=partition.log_end,
            was=before,
        ),
    )


def set_log_start(hosted: "HostedPartition", offset: int) -> None:
    """The leader has nothing of what we have or want: begin anew at its log start."""
    partition = hosted.partition
    before = partition.log_end
    hosted.log.truncate_fully_and_start_at(offset)
    partition.started_at(offset)
    log.warning(
        "log begun anew at the leader's start",
        extra=fields(partition=str(hosted.topic_partition), log_start=offset, was=before),
    )
