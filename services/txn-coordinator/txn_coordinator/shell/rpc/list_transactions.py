"""ListTransactions."""

from collections.abc import AsyncGenerator
from itertools import islice
from typing import Final

from tidemark.model.authorization import Operation, transactional_id_resource
from tidemark.model.errors import ErrorCode, TidemarkError
from tidemark.runtime.coordinator.calls import Context, ask_shard
from tidemark.runtime.coordinator.paging import Row, in_order, page_of
from tidemark_wire.v1 import txn_pb2 as pb

from txn_coordinator.core.requests import ListIds, ListIdsReply, ListSlice, ListTransactionsReply
from txn_coordinator.shell.node import TxnCoordinatorNode
from txn_coordinator.shell.wire_mapping import (
    read_list,
    read_requester,
    write_list_refusal,
    write_listed,
    write_transaction,
)

SLICE_IDS: Final = 500
"""Ids that a shard looks at in one turn of the loop, some milliseconds: others wait meanwhile."""


async def handle(
    node: TxnCoordinatorNode, request: pb.ListTransactionsRequest, context: Context
) -> pb.ListTransactionsResponse:
    """List the transactions of this coordinator's shards. While one of them is loading, the reply
    is its error, because a part of the list would be missing.
    """
    query, requester = read_list(request), read_requester(request)
    unknown_states: tuple[str, ...] = ()

    async def read(shard: int, after: str) -> AsyncGenerator[Row, None]:
        nonlocal unknown_states
        known = await ask_shard(node, shard, ListIds(), ListIdsReply, context)
        ids = await in_order([one for one in known.transactional_ids if one > after])
        while True:
            some = tuple(islice(ids, SLICE_IDS))
            asked = ListSlice(query, some)  # without an id too: the filters are checked
            reply = await ask_shard(node, shard, asked, ListTransactionsReply, context)
            if reply.error_code is not ErrorCode.NONE:
                raise TidemarkError(reply.error_code, reply.error_message)
            unknown_states = reply.unknown_states
            for one in reply.transactions:
                resource = transactional_id_resource(one.transactional_id)
                if node.authorizer.authorize(requester, Operation.DESCRIBE, resource):
                    yield Row(one.transactional_id, write_transaction(one))
            if len(some) < SLICE_IDS:
                return

    try:
        page = await page_of(request, node.shards.owned(), read)
    except TidemarkError as refused:
        return write_list_refusal(refused)
    return write_listed(page, unknown_states)
