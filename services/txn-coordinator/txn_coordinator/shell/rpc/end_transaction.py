"""EndTransaction."""

from tidemark_wire.v1 import txn_pb2 as pb

from txn_coordinator.core.requests import NO_PRODUCER_ID, EndTransactionReply
from txn_coordinator.shell.authorizer import Operation
from txn_coordinator.shell.node import TxnCoordinatorNode
from txn_coordinator.shell.rpc.call import (
    Context,
    answered,
    ask,
    ask_with_spare,
    check_allowed,
)
from txn_coordinator.shell.wire_mapping import read_end, write_end


async def handle(
    node: TxnCoordinatorNode, request: pb.EndTransactionRequest, context: Context
) -> pb.EndTransactionResponse:
    """Commit or abort. With v2 the epoch rises, and a new producer id may be needed for it."""

    async def work() -> EndTransactionReply:
        name = request.transactional_id
        check_allowed(node, request.caller, Operation.WRITE, name)
        if not request.transactions_v2:
            asked = read_end(request, NO_PRODUCER_ID)
            return await ask(node, name, asked, EndTransactionReply, context)
        return await ask_with_spare(
            node, name, lambda spare: read_end(request, spare), EndTransactionReply, context
        )

    return write_end(await answered(work(), EndTransactionReply))
