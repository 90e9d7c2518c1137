"""AlterPartitions."""

from tidemark.model.ids import BrokerEpoch, BrokerId
from tidemark_wire.v1 import controller_pb2 as pb

from controller.core.inputs import AlterPartitions
from controller.shell.authorizer import Operation
from controller.shell.node import ControllerNode
from controller.shell.replication_mapping import read_isr_changes, write_altered_partitions
from controller.shell.rpc.call import Context, ask, refused


async def handle(
    node: ControllerNode, request: pb.AlterPartitionsRequest, context: Context
) -> pb.AlterPartitionsResponse:
    """Agree to the ISRs that a leader proposes, each on its own."""
    resource = [f"broker:{request.broker_id}"]
    if (denied := refused(node, "", Operation.CLUSTER_ACTION, resource)) is not None:
        return write_altered_partitions(denied, "")
    changes = read_isr_changes(request)
    reply, hint = await ask(
        node,
        context,
        lambda asked: AlterPartitions(
            asked, BrokerId(request.broker_id), BrokerEpoch(request.broker_epoch), changes
        ),
    )
    return write_altered_partitions(reply, hint)
