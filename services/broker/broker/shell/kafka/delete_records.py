"""DeleteRecords (21): moves a partition's log start forward; records below it are never read
again.
"""

from __future__ import annotations

import logging
from typing import Final

from tidemark.kafka.long_tail import Struct
from tidemark.model.authorization import Operation, topic_resource
from tidemark.model.errors import ErrorCode, TidemarkError
from tidemark.model.ids import NO_TOPIC_ID, Offset
from tidemark.runtime.telemetry import fields
from tidemark.storage.disk import DiskError

from broker.core.partition import Role
from broker.shell.facts import BrokerFacts
from broker.shell.partitions.disk_health import DiskHealth
from broker.shell.partitions.hosted import HostedPartition
from broker.shell.partitions.log_moves import LogMoves
from broker.shell.partitions.table import PartitionTable
from broker.shell.request_context import RequestContext

log = logging.getLogger(__name__)

TO_HIGH_WATERMARK: Final = -1
NO_LOW_WATERMARK: Final = -1


async def handle(
    facts: BrokerFacts,
    table: PartitionTable,
    disks: DiskHealth,
    log_moves: LogMoves,
    request: Struct,
    context: RequestContext,
) -> dict[str, object]:
    """Return the low watermark of each partition named: the lowest log start among its live
    replicas, here the leader's.
    """
    return {
        "topics": [
            {
                "name": topic.name,
                "partitions": [
                    _answer(
                        facts,
                        table,
                        disks,
                        log_moves,
                        topic.name,
                        one.partition_index,
                        one.offset,
                        context,
                    )
                    for one in topic.partitions
                ],
            }
            for topic in request.topics
        ]
    }


def _answer(
    facts: BrokerFacts,
    table: PartitionTable,
    disks: DiskHealth,
    log_moves: LogMoves,
    topic: str,
    partition: int,
    offset: int,
    context: RequestContext,
) -> dict[str, object]:
    error_code, low_watermark = ErrorCode.NONE, NO_LOW_WATERMARK
    try:
        low_watermark = _delete(facts, table, disks, log_moves, topic, partition, offset, context)
    except TidemarkError as refused:
        error_code = refused.code
    return {
        "partition_index": partition,
        "low_watermark": low_watermark,
        "error_code": int(error_code),
    }


def _delete(
    facts: BrokerFacts,
    table: PartitionTable,
    disks: DiskHealth,
    log_moves: LogMoves,
    topic: str,
    partition: int,
    offset: int,
    context: RequestContext,
) -> Offset:
    """Delete records, and return the log start after that. Raises TidemarkError."""
    if not facts.authorizer.authorize(context.principal, Operation.DELETE, topic_resource(topic)):
        raise TidemarkError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Authorization failed.")
    hosted = table.find(topic, NO_TOPIC_ID, partition) if topic else ErrorCode.INVALID_REQUEST
    if isinstance(hosted, ErrorCode):
        raise TidemarkError(hosted, hosted.name)
    if hosted.partition.role is not Role.LEADER:
        raise TidemarkError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "not the leader")
    if hosted.log.config.is_compacted and not hosted.log.config.deletes_by_retention:
        raise TidemarkError(
            ErrorCode.POLICY_VIOLATION, "records of a compacted topic cannot be deleted by offset"
        )
    high_watermark = hosted.partition.high_watermark
    wanted = high_watermark if offset == TO_HIGH_WATERMARK else offset
    if not 0 <= wanted <= high_watermark:
        raise TidemarkError(ErrorCode.OFFSET_OUT_OF_RANGE, f"offset {offset} is out of range")
    if wanted > hosted.partition.log_start:
        _advance(disks, log_moves, hosted, Offset(wanted), context)
    return Offset(hosted.partition.log_start)


def _advance(
    disks: DiskHealth,
    log_moves: LogMoves,
    hosted: HostedPartition,
    log_start: Offset,
    context: RequestContext,
) -> None:
    if hosted.manager.fenced is not None:
        raise TidemarkError(ErrorCode.KAFKA_STORAGE_ERROR, "the log directory is fenced")
    try:
        hosted.log.advance_log_start(log_start)
    except DiskError as failure:
        disks.fence_directory(hosted.manager, failure)
        raise TidemarkError(ErrorCode.KAFKA_STORAGE_ERROR, str(failure)) from failure
    log_moves.log_start_moved(hosted)
    log.info(
        "records deleted",
        extra=fields(
            partition=str(hosted.topic_partition),
            log_start=log_start,
            principal=context.principal,
        ),
    )
