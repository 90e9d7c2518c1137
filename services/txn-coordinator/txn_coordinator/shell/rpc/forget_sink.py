"""ForgetSink."""

from tidemark_wire.v1 import txn_pb2 as pb

from txn_coordinator.core.requests import ForgetSinkReply
from txn_coordinator.shell.authorizer import Operation
from txn_coordinator.shell.node import TxnCoordinatorNode
from txn_coordinator.shell.rpc.call import Context, answered, ask, check_allowed
from txn_coordinator.shell.wire_mapping import read_forget_sink, write_forgotten


async def handle(
    node: TxnCoordinatorNode, request: pb.ForgetSinkRequest, context: Context
) -> pb.ForgetSinkResponse:
    """Lose all that is known of a sink's batches."""

    async def work() -> ForgetSinkReply:
        name = request.sink_id
        check_allowed(node, request.caller, Operation.WRITE, name)
        return await ask(node, name, read_forget_sink(request), ForgetSinkReply, context)

    return write_forgotten(await answered(work(), ForgetSinkReply))
