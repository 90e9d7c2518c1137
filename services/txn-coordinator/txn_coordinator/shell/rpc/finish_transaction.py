"""FinishTransaction."""

from tidemark_wire.v1 import txn_pb2 as pb

from txn_coordinator.core.requests import FinishTransactionReply
from txn_coordinator.shell.authorizer import Operation
from txn_coordinator.shell.node import TxnCoordinatorNode
from txn_coordinator.shell.rpc.call import Context, answered, ask, check_allowed
from txn_coordinator.shell.wire_mapping import read_finish, read_handle, write_finished


async def handle(
    node: TxnCoordinatorNode, request: pb.FinishTransactionRequest, context: Context
) -> pb.FinishTransactionResponse:
    """End a transaction of several writers; asked again, the same answer."""

    async def work() -> FinishTransactionReply:
        name = read_handle(request.handle)
        check_allowed(node, request.caller, Operation.WRITE, name)
        return await ask(node, name, read_finish(request), FinishTransactionReply, context)

    return write_finished(await answered(work(), FinishTransactionReply))
