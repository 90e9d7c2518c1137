"""AlterPartitions."""

from tidemark_wire.v1 import controller_pb2 as pb

from controller.core.inputs import AlterPartitions
from controller.shell.node import ControllerNode
from controller.shell.replication_mapping import read_isr_changes, write_altered_partitions
from controller.shell.rpc.call import Context, ask_for_broker


async def handle(
    node: ControllerNode, request: pb.AlterPartitionsRequest, context: Context
) -> pb.AlterPartitionsResponse:
    """Agree to the ISRs that a leader proposes, each on its own."""
    changes = read_isr_changes(request)
    reply, hint = await ask_for_broker(
        node,
        context,
        request,
        lambda asked, broker, epoch: AlterPartitions(asked, broker, epoch, changes),
    )
    return write_altered_partitions(reply, hint)
