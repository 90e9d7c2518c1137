"""AlterReassignments."""

from tidemark_wire.v1 import controller_pb2 as pb

from controller.core.inputs import AlterReassignments
from controller.shell.authorizer import Operation
from controller.shell.node import ControllerNode
from controller.shell.replication_mapping import read_moves, write_altered_reassignments
from controller.shell.rpc.call import Context, ask, refused


async def handle(
    node: ControllerNode, request: pb.AlterReassignmentsRequest, context: Context
) -> pb.AlterReassignmentsResponse:
    """Begin, replace or call off moves of replicas, each partition on its own (KIP-455)."""
    principal = request.caller.principal
    if (denied := refused(node, principal, Operation.ALTER, ["cluster"])) is not None:
        return write_altered_reassignments(denied, "")
    moves = read_moves(request)
    reply, hint = await ask(
        node,
        context,
        lambda asked: AlterReassignments(asked, moves, request.allow_replication_factor_change),
        request.timeout_ms,
    )
    return write_altered_reassignments(reply, hint)
