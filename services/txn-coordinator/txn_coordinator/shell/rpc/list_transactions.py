"""ListTransactions."""

from tidemark.model.authorization import Operation, Requester, transactional_id_resource
from tidemark.model.errors import ErrorCode
from tidemark.runtime.coordinator.calls import Context, answered, ask_shard
from tidemark_wire.v1 import txn_pb2 as pb

from txn_coordinator.core.requests import ListTransactionsReply, TransactionView
from txn_coordinator.shell.node import TxnCoordinatorNode
from txn_coordinator.shell.wire_mapping import read_list, read_requester, write_listed


async def handle(
    node: TxnCoordinatorNode, request: pb.ListTransactionsRequest, context: Context
) -> pb.ListTransactionsResponse:
    """List the transactions of this coordinator's shards. While one of them is loading, the reply
    is its error, because a part of the list would be missing.
    """

    async def work() -> ListTransactionsReply:
        query = read_list(request)
        replies = [
            await ask_shard(node, shard, query, ListTransactionsReply, context)
            for shard in node.shards.owned()
        ]
        return _merge(node, read_requester(request), replies)

    return write_listed(await answered(work(), ListTransactionsReply))


def _merge(
    node: TxnCoordinatorNode, requester: Requester, replies: list[ListTransactionsReply]
) -> ListTransactionsReply:
    failed = next((one for one in replies if one.error_code is not ErrorCode.NONE), None)
    if failed is not None:
        return failed

    def may_see(view: TransactionView) -> bool:
        resource = transactional_id_resource(view.transactional_id)
        return node.authorizer.authorize(requester, Operation.DESCRIBE, resource)

    return ListTransactionsReply(
        ErrorCode.NONE,
        unknown_states=replies[0].unknown_states if replies else (),
        transactions=tuple(view for one in replies for view in one.transactions if may_see(view)),
    )
