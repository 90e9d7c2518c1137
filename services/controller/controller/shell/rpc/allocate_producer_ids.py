"""AllocateProducerIds."""

from tidemark.model.ids import BrokerEpoch, BrokerId
from tidemark_wire.v1 import controller_pb2 as pb

from controller.core.inputs import AllocateProducerIds
from controller.shell.authorizer import Operation
from controller.shell.node import ControllerNode
from controller.shell.rpc.call import Context, ask, refused
from controller.shell.wire_mapping import write_producer_ids


async def handle(
    node: ControllerNode, request: pb.AllocateProducerIdsRequest, context: Context
) -> pb.AllocateProducerIdsResponse:
    """A block of producer ids for one broker, never given to another."""
    resource = [f"broker:{request.broker_id}"]
    if (denied := refused(node, "", Operation.CLUSTER_ACTION, resource)) is not None:
        return write_producer_ids(denied, "")
    reply, hint = await ask(
        node,
        context,
        lambda asked: AllocateProducerIds(
            asked, BrokerId(request.broker_id), BrokerEpoch(request.broker_epoch)
        ),
    )
    return write_producer_ids(reply, hint)
