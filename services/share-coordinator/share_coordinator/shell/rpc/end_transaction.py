"""EndTransaction."""

from tidemark.model.errors import TidemarkError
from tidemark.runtime.coordinator.calls import Context, ask_shard
from tidemark_wire.v1 import share_pb2 as pb

from share_coordinator.core.requests import EndTransactionReply
from share_coordinator.shell.node import ShareCoordinatorNode
from share_coordinator.shell.rpc.call import check_cluster
from share_coordinator.shell.wire_mapping import (
    read_end_of_transaction,
    shard_named,
    write_end_answer,
)


async def handle(
    node: ShareCoordinatorNode, request: pb.EndShareTransactionRequest, context: Context
) -> pb.EndShareTransactionResponse:
    """End a producer's transactions in one shard."""
    try:
        check_cluster(node)
        end, shard = read_end_of_transaction(request), shard_named(request)
        await ask_shard(node, shard, end, EndTransactionReply, context)
    except TidemarkError as refused:
        return write_end_answer(refused)
    return write_end_answer()
