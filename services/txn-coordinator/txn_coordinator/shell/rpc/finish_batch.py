"""FinishBatch."""

from tidemark_wire.v1 import txn_pb2 as pb

from txn_coordinator.core.requests import FinishBatchReply
from txn_coordinator.shell.authorizer import Operation
from txn_coordinator.shell.node import TxnCoordinatorNode
from txn_coordinator.shell.rpc.call import Context, answered, ask, check_allowed
from txn_coordinator.shell.wire_mapping import read_finish_batch, write_finished_batch


async def handle(
    node: TxnCoordinatorNode, request: pb.FinishBatchRequest, context: Context
) -> pb.FinishBatchResponse:
    """Commit or abort a batch; the first commit counts, and is told ever after."""

    async def work() -> FinishBatchReply:
        name = request.sink_id
        check_allowed(node, request.caller, Operation.WRITE, name)
        reply = await ask(node, name, read_finish_batch(request), FinishBatchReply, context)
        node.stats.count_finished(reply)
        return reply

    return write_finished_batch(await answered(work(), FinishBatchReply))
