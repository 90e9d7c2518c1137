"""ListTransactions."""

from collections.abc import Iterator

from tidemark.model.authorization import Operation, transactional_id_resource
from tidemark.model.errors import ErrorCode, TidemarkError
from tidemark.runtime.coordinator.calls import Context, ask_shard
from tidemark.runtime.coordinator.paging import Row, page_of
from tidemark_wire.v1 import txn_pb2 as pb

from txn_coordinator.core.requests import ListTransactionsReply
from txn_coordinator.shell.node import TxnCoordinatorNode
from txn_coordinator.shell.wire_mapping import (
    read_list,
    read_requester,
    write_list_refusal,
    write_listed,
    write_transaction,
)


async def handle(
    node: TxnCoordinatorNode, request: pb.ListTransactionsRequest, context: Context
) -> pb.ListTransactionsResponse:
    """List the transactions of this coordinator's shards. While one of them is loading, the reply
    is its error, because a part of the list would be missing.
    """
    query, requester = read_list(request), read_requester(request)
    unknown_states: tuple[str, ...] = ()

    async def read(shard: int) -> Iterator[Row]:
        nonlocal unknown_states
        reply = await ask_shard(node, shard, query, ListTransactionsReply, context)
        if reply.error_code is not ErrorCode.NONE:
            raise TidemarkError(reply.error_code, reply.error_message)
        unknown_states = reply.unknown_states
        return (
            Row(one.transactional_id, write_transaction(one))
            for one in reply.transactions
            if node.authorizer.authorize(
                requester, Operation.DESCRIBE, transactional_id_resource(one.transactional_id)
            )
        )

    try:
        page = await page_of(request, node.shards.owned(), read)
    except TidemarkError as refused:
        return write_list_refusal(refused)
    return write_listed(page, unknown_states)
