"""CreatePartitions."""

from tidemark.model.authorization import Operation
from tidemark_wire.v1 import controller_pb2 as pb

from controller.shell.node import ControllerNode
from controller.shell.rpc.call import Context, ask, refused
from controller.shell.wire_mapping import (
    read_growth,
    read_requester,
    timeout_asked,
    topics_named,
    write_created_partitions,
)


async def handle(
    node: ControllerNode, request: pb.CreatePartitionsRequest, context: Context
) -> pb.CreatePartitionsResponse:
    """Add partitions to topics. Each topic succeeds or fails alone."""
    topics = topics_named(request)
    if (denied := refused(node, read_requester(request), Operation.ALTER, topics)) is not None:
        return write_created_partitions(denied, "")
    make = read_growth(request, node.dice())
    reply, hint = await ask(node, context, make, timeout_asked(request))
    return write_created_partitions(reply, hint)
