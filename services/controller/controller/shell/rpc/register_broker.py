"""RegisterBroker."""

from tidemark.model.errors import ErrorCode
from tidemark_wire.v1 import controller_pb2 as pb

from controller.core.effects import Reply
from controller.shell.node import ControllerNode
from controller.shell.replication_mapping import read_registering, read_registration
from controller.shell.rpc.call import NO_REQUEST, Context, ask, refused_member
from controller.shell.wire_mapping import hint_for, write_registered


async def handle(
    node: ControllerNode, request: pb.RegisterBrokerRequest, context: Context
) -> pb.RegisterBrokerResponse:
    """Register a broker, once its live znode was read."""
    broker = read_registering(request)
    if (denied := refused_member(node)) is not None:
        return write_registered(denied, "")
    live = await node.find_live(broker)
    if live is None:
        reply = Reply(NO_REQUEST, ErrorCode.NOT_CONTROLLER, "This is not the active controller.")
        return write_registered(reply, hint_for(reply.error, node.hint))
    broker_epoch, listing = live
    make = read_registration(request, broker, broker_epoch, listing)
    reply, hint = await ask(node, context, make)
    return write_registered(reply, hint)
