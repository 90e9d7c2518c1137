"""AddOffsets."""

from tidemark.model.authorization import Operation
from tidemark.runtime.coordinator.calls import Context, answered, ask
from tidemark_wire.v1 import txn_pb2 as pb

from txn_coordinator.core.additions import as_offsets_reply, as_partitions
from txn_coordinator.core.requests import AddOffsetsReply, AddPartitionsReply
from txn_coordinator.shell.node import TxnCoordinatorNode
from txn_coordinator.shell.rpc.call import check_allowed
from txn_coordinator.shell.wire_mapping import (
    read_add_offsets,
    transaction_named,
    write_add_offsets,
)


async def handle(
    node: TxnCoordinatorNode, request: pb.AddOffsetsRequest, context: Context
) -> pb.AddOffsetsResponse:
    """Make a group's offsets a part of the open transaction."""

    async def work() -> AddOffsetsReply:
        name = transaction_named(request)
        check_allowed(node, request, Operation.WRITE, name)
        # The number of partitions is in the metadata, which a shard does not have.
        addition = as_partitions(read_add_offsets(request), await node.offsets_settings())
        return as_offsets_reply(await ask(node, name, addition, AddPartitionsReply, context))

    return write_add_offsets(await answered(work(), AddOffsetsReply))
