"""AllocateProducerIds."""

from tidemark.model.ids import BrokerEpoch, BrokerId
from tidemark_wire.v1 import controller_pb2 as pb

from controller.core.inputs import AllocateProducerIds
from controller.shell.authorizer import Operation
from controller.shell.coordinator_mapping import read_asker
from controller.shell.node import ControllerNode
from controller.shell.rpc.call import Context, ask, refused
from controller.shell.wire_mapping import write_producer_ids


async def handle(
    node: ControllerNode, request: pb.AllocateProducerIdsRequest, context: Context
) -> pb.AllocateProducerIdsResponse:
    """A block of producer ids for one broker or coordinator, never given to another."""
    coordinator = read_asker(request)
    resource = [f"broker:{request.broker_id}"]
    if coordinator is not None:
        resource = [f"coordinator:{coordinator.kind}:{coordinator.coordinator_id}"]
    if (denied := refused(node, "", Operation.CLUSTER_ACTION, resource)) is not None:
        return write_producer_ids(denied, "")
    reply, hint = await ask(
        node,
        context,
        lambda asked: AllocateProducerIds(
            asked, BrokerId(request.broker_id), BrokerEpoch(request.broker_epoch), coordinator
        ),
    )
    return write_producer_ids(reply, hint)
