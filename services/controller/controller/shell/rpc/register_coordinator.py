"""RegisterCoordinator."""

from dataclasses import replace

from tidemark.model.errors import ErrorCode
from tidemark_wire.v1 import controller_pb2 as pb

from controller.core.effects import Reply
from controller.core.inputs import RegisterCoordinator
from controller.shell.coordinator_mapping import (
    read_cluster_id,
    read_coordinator,
    write_coordinator_registered,
)
from controller.shell.node import ControllerNode
from controller.shell.rpc.call import NO_REQUEST, Context, ask, refused_member
from controller.shell.wire_mapping import hint_for


async def handle(
    node: ControllerNode, request: pb.RegisterCoordinatorRequest, context: Context
) -> pb.RegisterCoordinatorResponse:
    """Register a coordinator replica, once its live znode was read."""
    coordinator = read_coordinator(request)
    if (denied := refused_member(node)) is not None:
        return write_coordinator_registered(denied, "")
    live = await node.find_live_coordinator(coordinator)
    if live is None:
        reply = Reply(NO_REQUEST, ErrorCode.NOT_CONTROLLER, "This is not the active controller.")
        return write_coordinator_registered(reply, hint_for(reply.error, node.hint))
    epoch, listing = live
    entitled = replace(coordinator, coordinator_epoch=epoch)
    cluster_id = read_cluster_id(request)
    reply, hint = await ask(
        node,
        context,
        lambda header: RegisterCoordinator(header, entitled, cluster_id, listing),
    )
    return write_coordinator_registered(reply, hint)
