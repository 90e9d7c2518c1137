"""ReportLags."""

from tidemark.model.errors import TidemarkError
from tidemark.runtime.coordinator.calls import Context
from tidemark_wire.v1 import share_pb2 as pb

from share_coordinator.shell.node import ShareCoordinatorNode
from share_coordinator.shell.rpc.call import check_cluster
from share_coordinator.shell.wire_mapping import read_lags, write_lags_answer


async def handle(
    node: ShareCoordinatorNode, request: pb.ReportShareLagsRequest, context: Context
) -> pb.ReportShareLagsResponse:
    """Take lags of share-partitions, for the assignor "load". Nothing is written before the
    answer.
    """
    del context
    try:
        check_cluster(node)
        lags = read_lags(request)
        node.shards.check(node.shards.shard_of(lags.group_id)).submit(lags)
    except TidemarkError as refused:
        return write_lags_answer(refused)
    return write_lags_answer()
