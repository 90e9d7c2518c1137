"""AcquireShard."""

from tidemark_wire.v1 import controller_pb2 as pb

from controller.core.inputs import AcquireShard
from controller.shell.authorizer import Operation
from controller.shell.coordinator_mapping import read_acquirer, write_shard_acquired
from controller.shell.node import ControllerNode
from controller.shell.rpc.call import Context, ask, refused


async def handle(
    node: ControllerNode, request: pb.AcquireShardRequest, context: Context
) -> pb.AcquireShardResponse:
    """A new owner epoch for a shard's present owner."""
    coordinator = read_acquirer(request)
    resource = [f"coordinator:{coordinator.kind}:{coordinator.coordinator_id}"]
    if (denied := refused(node, "", Operation.CLUSTER_ACTION, resource)) is not None:
        return write_shard_acquired(denied, "")
    reply, hint = await ask(
        node, context, lambda asked: AcquireShard(asked, coordinator, request.shard)
    )
    return write_shard_acquired(reply, hint)
