"""UnregisterBroker."""

from tidemark.model.authorization import CLUSTER, Operation
from tidemark.model.errors import ErrorCode
from tidemark_wire.v1 import controller_pb2 as pb

from controller.core.effects import Reply
from controller.shell.node import ControllerNode
from controller.shell.replication_mapping import read_unregistration
from controller.shell.rpc.call import NO_REQUEST, Context, ask, refused
from controller.shell.wire_mapping import (
    hint_for,
    read_requester,
    timeout_asked,
    write_unregistered,
)


async def handle(
    node: ControllerNode, request: pb.UnregisterBrokerRequest, context: Context
) -> pb.UnregisterBrokerResponse:
    """Forget a broker, once the live znodes were read."""
    denied = refused(node, read_requester(request), Operation.ALTER, (CLUSTER,))
    if denied is not None:
        return write_unregistered(denied, "")
    listing = await node.list_live()
    if listing is None:
        reply = Reply(NO_REQUEST, ErrorCode.NOT_CONTROLLER, "This is not the active controller.")
        return write_unregistered(reply, hint_for(reply.error, node.hint))
    make = read_unregistration(request, listing)
    reply, hint = await ask(node, context, make, timeout_asked(request))
    return write_unregistered(reply, hint)
