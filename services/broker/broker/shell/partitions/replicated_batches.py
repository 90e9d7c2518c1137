"""Batches of a leader's answer that a follower may append."""

import logging
from typing import Final

from crc32c import crc32c
from tidemark.codec.control_record import read_control
from tidemark.codec.record_batch import (
    CONTROL_BIT,
    CRC_START,
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    MAGIC_V2,
    read_header,
)
from tidemark.codec.records import RecordsError
from tidemark.runtime.telemetry import fields

from broker.core.partition import AppendPlan
from broker.shell.partitions.hosted import HostedPartition

log = logging.getLogger(__name__)

CRC_MISMATCH: Final = "a batch does not match its CRC"


def admit_replicated(
    hosted: HostedPartition, records: memoryview, leader_epoch: int
) -> tuple[list[AppendPlan], str | None]:
    """Return the batches that may be appended, in order, and the reason why those after them may
    not. Raises DiskError if there is no room for what a control batch may change besides.
    """
    plans: list[AppendPlan] = []
    plan: AppendPlan | None = None
    admit, position, end = hosted.partition.admit_replicated, 0, len(records)
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
            return plans, CRC_MISMATCH
        control = None
        if header.attributes & CONTROL_BIT:
            hosted.log.expect_room()  # for the index of aborted transactions
            try:
                control = read_control(records[position : position + size], header)
            except RecordsError as problem:
                return plans, f"a control batch that cannot be read: {problem}"
        admitted = admit(header, size, leader_epoch, plan, control)
        if not isinstance(admitted, AppendPlan):
            return plans, admitted.message
        plan = admitted
        plans.append(plan)
        position += size
    return plans, None
