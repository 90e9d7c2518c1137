"""DeleteRecords (21): moves a partition's log start forward; records below it are never read
again.
"""

from __future__ import annotations

from typing import Final

from tidemark.kafka.long_tail import Struct
from tidemark.model.errors import ErrorCode, TidemarkError
from tidemark.model.ids import InstantMs

from broker.core.deletion_wait import DeletionWait
from broker.shell.partitions.hosted import HostedPartition
from broker.shell.partitions.record_deletion import DeletionTarget, RecordDeletion
from broker.shell.request_context import RequestContext

NO_LOW_WATERMARK: Final = -1

Begun = DeletionWait[HostedPartition] | ErrorCode


async def handle(
    deletion: RecordDeletion, request: Struct, context: RequestContext
) -> dict[str, object]:
    """Return the low watermark of each partition named: the lowest log start among the replicas
    that may lead (KIP-107). All partitions wait for their followers at the same time.
    """
    due = deletion.due(request.timeout)
    begun = [
        [(one.partition_index, _begin(deletion, topic, one, context)) for one in topic.partitions]
        for topic in request.topics
    ]
    return {
        "topics": [
            {
                "name": topic.name,
                "partitions": [await _answer(deletion, *one, due) for one in partitions],
            }
            for topic, partitions in zip(request.topics, begun, strict=True)
        ]
    }


def _begin(
    deletion: RecordDeletion, topic: Struct, wanted: Struct, context: RequestContext
) -> Begun:
    target = DeletionTarget(topic.name, wanted.partition_index, wanted.offset)
    try:
        return deletion.delete(target, context.requester)
    except TidemarkError as refused:
        return refused.code


async def _answer(
    deletion: RecordDeletion, partition: int, begun: Begun, due: InstantMs
) -> dict[str, object]:
    error_code, low_watermark = ErrorCode.NONE, NO_LOW_WATERMARK
    if isinstance(begun, ErrorCode):
        error_code = begun
    else:
        try:
            low_watermark = await deletion.replicated(begun, due)
        except TidemarkError as refused:
            error_code = refused.code
    return {
        "partition_index": partition,
        "low_watermark": low_watermark,
        "error_code": int(error_code),
    }
