"""DescribeTransactions."""

from typing import Any

from tidemark.model.authorization import Operation
from tidemark.model.errors import TidemarkError
from tidemark.runtime.coordinator.calls import Context, ask_shard
from tidemark_wire.v1 import txn_pb2 as pb

from txn_coordinator.core.requests import (
    DescribeTransactions,
    DescribeTransactionsReply,
    TransactionView,
)
from txn_coordinator.shell.node import TxnCoordinatorNode
from txn_coordinator.shell.rpc.call import check_allowed
from txn_coordinator.shell.wire_mapping import read_described, write_described


async def handle(
    node: TxnCoordinatorNode, request: pb.DescribeTransactionsRequest, context: Context
) -> pb.DescribeTransactionsResponse:
    """Describe each transactional id, with an error of its own, in the order of the request."""
    by_shard: dict[int, list[str]] = {}
    views: dict[str, TransactionView] = {}
    all_names = read_described(request)
    for name in dict.fromkeys(all_names):
        try:
            check_allowed(node, request, Operation.DESCRIBE, name)
            by_shard.setdefault(node.shards.shard_of(name), []).append(name)
        except TidemarkError as refused:
            views[name] = TransactionView(name, refused.code, refused.message)
    for shard, names in by_shard.items():
        for view in await _describe(node, shard, tuple(names), context):
            views[view.transactional_id] = view
    return write_described(views[name] for name in all_names)


async def _describe(
    node: TxnCoordinatorNode, shard: int, names: tuple[str, ...], context: Any
) -> tuple[TransactionView, ...]:
    query = DescribeTransactions(names)
    try:
        reply = await ask_shard(node, shard, query, DescribeTransactionsReply, context)
    except TidemarkError as refused:
        return tuple(TransactionView(name, refused.code, refused.message) for name in names)
    return reply.transactions
