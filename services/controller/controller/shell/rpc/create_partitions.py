"""CreatePartitions."""

from tidemark_wire.v1 import controller_pb2 as pb

from controller.core.inputs import CreatePartitions
from controller.shell.authorizer import Operation
from controller.shell.node import ControllerNode
from controller.shell.rpc.call import Context, ask, refused
from controller.shell.wire_mapping import read_more_partitions, write_created_partitions


async def handle(
    node: ControllerNode, request: pb.CreatePartitionsRequest, context: Context
) -> pb.CreatePartitionsResponse:
    """Raise topics' partition counts, each on its own."""
    topics = read_more_partitions(request)
    names = [f"topic:{topic.name}" for topic in topics]
    if (denied := refused(node, request.caller.principal, Operation.ALTER, names)) is not None:
        return write_created_partitions(denied, "")
    dice = node.dice()
    reply, hint = await ask(
        node,
        context,
        lambda asked: CreatePartitions(asked, topics, dice, request.validate_only),
        request.timeout_ms,
    )
    return write_created_partitions(reply, hint)
