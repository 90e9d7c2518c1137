"""ControlledShutdown."""

from tidemark_wire.v1 import controller_pb2 as pb

from controller.core.inputs import ControlledShutdown
from controller.shell.node import ControllerNode
from controller.shell.replication_mapping import write_shutdown_progress
from controller.shell.rpc.call import Context, ask_for_broker


async def handle(
    node: ControllerNode, request: pb.ControlledShutdownRequest, context: Context
) -> pb.ControlledShutdownResponse:
    """Move what a stopping broker leads; it asks again until that is nothing."""
    reply, hint = await ask_for_broker(node, context, request, ControlledShutdown)
    return write_shutdown_progress(reply, hint)
