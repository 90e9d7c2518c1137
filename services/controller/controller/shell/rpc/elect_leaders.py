"""ElectLeaders."""

from tidemark.model.errors import ErrorCode
from tidemark_wire.v1 import controller_pb2 as pb

from controller.core.effects import Reply
from controller.core.inputs import ElectLeaders
from controller.shell.authorizer import Operation
from controller.shell.node import ControllerNode
from controller.shell.replication_mapping import (
    PREFERRED,
    UNCLEAN,
    read_election,
    write_elected_leaders,
)
from controller.shell.rpc.call import NO_REQUEST, Context, ask, refused


async def handle(
    node: ControllerNode, request: pb.ElectLeadersRequest, context: Context
) -> pb.ElectLeadersResponse:
    """Elect preferred leaders, or any for those that have none, each partition on its own."""
    principal = request.caller.principal
    if (denied := refused(node, principal, Operation.ALTER, ["cluster"])) is not None:
        return write_elected_leaders(denied, "")
    if request.election_type not in (PREFERRED, UNCLEAN):
        return write_elected_leaders(Reply(NO_REQUEST, ErrorCode.INVALID_REQUEST), "")
    preferred, partitions = request.election_type == PREFERRED, read_election(request)
    reply, hint = await ask(
        node,
        context,
        lambda asked: ElectLeaders(asked, preferred, partitions),
        request.timeout_ms,
    )
    return write_elected_leaders(reply, hint)
