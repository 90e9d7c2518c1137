"""InitTransactionalId."""

from tidemark_wire.v1 import txn_pb2 as pb

from txn_coordinator.core.requests import InitTransactionalIdReply
from txn_coordinator.shell.authorizer import Operation
from txn_coordinator.shell.node import TxnCoordinatorNode
from txn_coordinator.shell.rpc.call import Context, answered, ask_with_spare, check_allowed
from txn_coordinator.shell.wire_mapping import read_init, write_init


async def handle(
    node: TxnCoordinatorNode, request: pb.InitTransactionalIdRequest, context: Context
) -> pb.InitTransactionalIdResponse:
    """A session of a transactional id: its producer id and epoch, fencing all before."""

    async def work() -> InitTransactionalIdReply:
        name = request.transactional_id
        check_allowed(node, request.caller, Operation.WRITE, name)
        return await ask_with_spare(
            node, name, lambda spare: read_init(request, spare), InitTransactionalIdReply, context
        )

    return write_init(await answered(work(), InitTransactionalIdReply))
