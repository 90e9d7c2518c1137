"""DeleteRecords (21): moves a partition's log start forward; records below it are never read
again.
"""

from __future__ import annotations

from typing import Final

from tidemark.kafka.long_tail import Struct
from tidemark.model.authorization import Requester
from tidemark.model.errors import ErrorCode, TidemarkError

from broker.shell.partitions.record_deletion import DeletionTarget, RecordDeletion
from broker.shell.request_context import RequestContext

NO_LOW_WATERMARK: Final = -1


async def handle(
    deletion: RecordDeletion, request: Struct, context: RequestContext
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
                        deletion,
                        DeletionTarget(topic.name, one.partition_index, one.offset),
                        context.requester,
                    )
                    for one in topic.partitions
                ],
            }
            for topic in request.topics
        ]
    }


def _answer(
    deletion: RecordDeletion, target: DeletionTarget, requester: Requester
) -> dict[str, object]:
    error_code, low_watermark = ErrorCode.NONE, NO_LOW_WATERMARK
    try:
        low_watermark = deletion.delete(target, requester)
    except TidemarkError as refused:
        error_code = refused.code
    return {
        "partition_index": target.partition,
        "low_watermark": low_watermark,
        "error_code": int(error_code),
    }
