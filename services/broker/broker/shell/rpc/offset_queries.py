"""ListOffsets over gRPC: the same look-ups as over Kafka's wire."""

from tidemark.model.errors import ErrorCode
from tidemark_wire.v1 import partition_store_pb2

from broker.core.authorizer import Operation
from broker.core.list_offsets import FoundOffset, at_mark
from broker.shell.node import BrokerNode
from broker.shell.offset_lookup import at_time
from broker.shell.rpc.streams import Caller
from broker.shell.wire_mapping import OffsetQuery, read_offset_query


async def answer_offset_query(
    node: BrokerNode,
    caller: Caller,
    asked: partition_store_pb2.ListOffsetsRequest.Query,
    *,
    read_committed: bool = False,
) -> partition_store_pb2.ListOffsetsResponse.Answer:
    """One offset, as a reader of that isolation level sees it, or why there is none."""
    query = read_offset_query(asked)
    found = (
        FoundOffset(query)
        if isinstance(query, ErrorCode)
        else await _look_up(node, caller, query, read_committed=read_committed)
    )
    return partition_store_pb2.ListOffsetsResponse.Answer(
        partition=asked.partition,
        error_code=found.error_code,
        timestamp_ms=found.timestamp,
        offset=found.offset,
        leader_epoch=found.leader_epoch,
    )


async def _look_up(
    node: BrokerNode, caller: Caller, query: OffsetQuery, *, read_committed: bool
) -> FoundOffset:
    hosted = node.table.find(query.topic, query.topic_id, query.partition)
    if isinstance(hosted, ErrorCode):
        return FoundOffset(hosted)
    resource = hosted.resource
    if not node.authorizer.authorize(caller.principal, Operation.DESCRIBE, resource):
        return FoundOffset(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    marked = at_mark(
        hosted.partition,
        query.timestamp_ms,
        leader_epoch_expected=query.leader_epoch,
        read_committed=read_committed,
    )
    if marked is not None:
        return marked
    return await at_time(
        node, hosted, query.timestamp_ms, lane=caller.peer, read_committed=read_committed
    )
