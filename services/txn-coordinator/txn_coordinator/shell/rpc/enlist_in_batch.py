"""EnlistInBatch."""

from tidemark_wire.v1 import txn_pb2 as pb

from txn_coordinator.core.requests import EnlistInBatchReply
from txn_coordinator.shell.authorizer import Operation
from txn_coordinator.shell.node import TxnCoordinatorNode
from txn_coordinator.shell.rpc.call import Context, answered, ask_with_spare, check_allowed
from txn_coordinator.shell.wire_mapping import read_enlist_in_batch, write_enlisted_in_batch


async def handle(
    node: TxnCoordinatorNode, request: pb.EnlistInBatchRequest, context: Context
) -> pb.EnlistInBatchResponse:
    """Hand out a slot of a batch, which is opened if it is not, or say that it is done."""

    async def work() -> EnlistInBatchReply:
        name = request.sink_id
        check_allowed(node, request.caller, Operation.WRITE, name)
        reply = await ask_with_spare(
            node,
            name,
            lambda spare: read_enlist_in_batch(request, spare),
            EnlistInBatchReply,
            context,
        )
        node.stats.count_enlisted(reply)
        return reply

    return write_enlisted_in_batch(await answered(work(), EnlistInBatchReply))
