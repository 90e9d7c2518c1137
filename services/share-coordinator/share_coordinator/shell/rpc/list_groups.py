"""ListGroups."""

from collections.abc import AsyncGenerator
from itertools import islice
from typing import Final

from tidemark.model.authorization import Operation, group_resource
from tidemark.model.errors import TidemarkError
from tidemark.runtime.coordinator.calls import Context, ask_shard
from tidemark.runtime.coordinator.paging import Row, in_order, page_of
from tidemark_wire.v1 import share_pb2 as pb

from share_coordinator.core.requests import (
    ListGroupIds,
    ListGroupIdsReply,
    ListShareGroups,
    ListShareGroupsReply,
)
from share_coordinator.shell.node import ShareCoordinatorNode
from share_coordinator.shell.rpc.call import may
from share_coordinator.shell.wire_mapping import (
    read_listed_states,
    read_requester,
    write_group,
    write_list_refusal,
    write_listed,
)

SLICE_GROUPS: Final = 500
"""Groups that a shard looks at in one turn of the loop, some milliseconds: others wait meanwhile.
"""


async def handle(
    node: ShareCoordinatorNode, request: pb.ListShareGroupsRequest, context: Context
) -> pb.ListShareGroupsResponse:
    """List the groups of this coordinator's shards. While one of them is loading, the reply is its
    error, because a part of the list would be missing.
    """
    states, requester = read_listed_states(request), read_requester(request)

    async def read(shard: int, after: str) -> AsyncGenerator[Row, None]:
        known = await ask_shard(node, shard, ListGroupIds(), ListGroupIdsReply, context)
        ids = await in_order([one for one in known.group_ids if one > after])
        while some := tuple(islice(ids, SLICE_GROUPS)):
            asked = ListShareGroups(some, states)
            reply = await ask_shard(node, shard, asked, ListShareGroupsReply, context)
            for group in reply.groups:
                if may(node, requester, Operation.DESCRIBE, group_resource(group.group_id)):
                    yield Row(group.group_id, write_group(group))

    try:
        page = await page_of(request, node.shards.owned(), read)
    except TidemarkError as refused:
        return write_list_refusal(refused)
    return write_listed(page)
