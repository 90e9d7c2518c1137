"""EnlistWriter."""

from tidemark_wire.v1 import txn_pb2 as pb

from txn_coordinator.core.requests import EnlistWriterReply
from txn_coordinator.shell.authorizer import Operation
from txn_coordinator.shell.node import TxnCoordinatorNode
from txn_coordinator.shell.rpc.call import Context, answered, ask_with_spare, check_allowed
from txn_coordinator.shell.wire_mapping import read_enlist, read_handle, write_enlisted


async def handle(
    node: TxnCoordinatorNode, request: pb.EnlistWriterRequest, context: Context
) -> pb.EnlistWriterResponse:
    """Hand out a slot of an open transaction, fencing whoever had it."""

    async def work() -> EnlistWriterReply:
        name = read_handle(request.handle)
        check_allowed(node, request.caller, Operation.WRITE, name)
        return await ask_with_spare(
            node, name, lambda spare: read_enlist(request, spare), EnlistWriterReply, context
        )

    return write_enlisted(await answered(work(), EnlistWriterReply))
