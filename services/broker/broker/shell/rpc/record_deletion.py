"""DeleteRecords over gRPC: the same deletion as over Kafka's protocol."""

from typing import Final

from tidemark.model.authorization import Requester
from tidemark.model.errors import ErrorCode, TidemarkError
from tidemark_wire.v1 import partition_store_pb2 as pb

from broker.shell.partitions.record_deletion import DeletionTarget, RecordDeletion
from broker.shell.wire_mapping import read_topic_id

WAIT_MS: Final = 4_000
"""Longest wait for the in-sync replicas; below the time that coordinators wait for the answer."""


async def delete_records(
    deletion: RecordDeletion, request: pb.DeleteRecordsRequest, requester: Requester
) -> pb.DeleteRecordsResponse:
    """Delete the records of a partition below an offset, at every in-sync replica."""
    try:
        due = deletion.due(WAIT_MS)
        target = await deletion.keep_owner(_read(request), requester, due)
        low_watermark = await deletion.replicated(deletion.delete(target, requester), due)
    except TidemarkError as refused:
        return pb.DeleteRecordsResponse(error_code=refused.code, error_message=refused.message)
    return pb.DeleteRecordsResponse(log_start_offset=low_watermark)


def _read(request: pb.DeleteRecordsRequest) -> DeletionTarget:
    topic_id = read_topic_id(request.partition.topic_id)
    if topic_id is None:
        raise TidemarkError(ErrorCode.INVALID_REQUEST, "the topic id does not have 16 bytes")
    return DeletionTarget(
        request.partition.topic,
        request.partition.partition,
        request.offset,
        topic_id,
        request.owner_epoch,
    )
