"""KeepBatchAlive."""

from tidemark_wire.v1 import txn_pb2 as pb

from txn_coordinator.core.requests import KeepBatchAlive, KeepBatchAliveReply
from txn_coordinator.shell.authorizer import Operation
from txn_coordinator.shell.node import TxnCoordinatorNode
from txn_coordinator.shell.rpc.call import Context, answered, ask, check_allowed
from txn_coordinator.shell.wire_mapping import read_handle, write_kept_alive


async def handle(
    node: TxnCoordinatorNode, request: pb.KeepBatchAliveRequest, context: Context
) -> pb.KeepBatchAliveResponse:
    """The timeout of an open batch counts from now."""

    async def work() -> KeepBatchAliveReply:
        name = read_handle(request.handle)
        check_allowed(node, request.caller, Operation.WRITE, name)
        asked = KeepBatchAlive(request.handle)
        return await ask(node, name, asked, KeepBatchAliveReply, context)

    return write_kept_alive(await answered(work(), KeepBatchAliveReply))
