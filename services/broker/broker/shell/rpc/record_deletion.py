"""DeleteRecords over gRPC: the same deletion as over Kafka's protocol."""

from tidemark.model.authorization import Requester
from tidemark.model.errors import ErrorCode, TidemarkError
from tidemark_wire.v1 import partition_store_pb2 as pb

from broker.shell.partitions.record_deletion import DeletionTarget, RecordDeletion
from broker.shell.wire_mapping import read_topic_id


def delete_records(
    deletion: RecordDeletion, request: pb.DeleteRecordsRequest, requester: Requester
) -> pb.DeleteRecordsResponse:
    """Delete the records of a partition below an offset. Answers when the leader has done so: the
    coordinators that call it delete what they do not need, and again after a failover.
    """
    try:
        deleted = deletion.delete(_read(request), requester)
    except TidemarkError as refused:
        return pb.DeleteRecordsResponse(error_code=refused.code, error_message=refused.message)
    return pb.DeleteRecordsResponse(log_start_offset=deleted.hosted.partition.log_start)


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
