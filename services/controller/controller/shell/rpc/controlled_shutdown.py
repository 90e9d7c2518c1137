"""ControlledShutdown."""

from tidemark.model.ids import BrokerEpoch, BrokerId
from tidemark_wire.v1 import controller_pb2 as pb

from controller.core.inputs import ControlledShutdown
from controller.shell.authorizer import Operation
from controller.shell.node import ControllerNode
from controller.shell.replication_mapping import write_shutdown_progress
from controller.shell.rpc.call import Context, ask, refused


async def handle(
    node: ControllerNode, request: pb.ControlledShutdownRequest, context: Context
) -> pb.ControlledShutdownResponse:
    """Move what a stopping broker leads; it asks again until that is nothing."""
    resource = [f"broker:{request.broker_id}"]
    if (denied := refused(node, "", Operation.CLUSTER_ACTION, resource)) is not None:
        return write_shutdown_progress(denied, "")
    reply, hint = await ask(
        node,
        context,
        lambda asked: ControlledShutdown(
            asked, BrokerId(request.broker_id), BrokerEpoch(request.broker_epoch)
        ),
    )
    return write_shutdown_progress(reply, hint)
