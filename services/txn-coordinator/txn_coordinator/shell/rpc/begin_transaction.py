"""BeginTransaction."""

from tidemark_wire.v1 import txn_pb2 as pb

from txn_coordinator.core.requests import BeginTransactionReply
from txn_coordinator.shell.authorizer import Operation
from txn_coordinator.shell.node import TxnCoordinatorNode
from txn_coordinator.shell.rpc.call import Context, answered, ask, check_allowed
from txn_coordinator.shell.wire_mapping import read_begin, write_begun


async def handle(
    node: TxnCoordinatorNode, request: pb.BeginTransactionRequest, context: Context
) -> pb.BeginTransactionResponse:
    """Open a transaction with several writers; the handle serves any process."""

    async def work() -> BeginTransactionReply:
        name = request.transactional_id
        check_allowed(node, request.caller, Operation.WRITE, name)
        return await ask(node, name, read_begin(request), BeginTransactionReply, context)

    return write_begun(await answered(work(), BeginTransactionReply))
