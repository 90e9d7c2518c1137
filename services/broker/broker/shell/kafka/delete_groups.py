"""DeleteGroups (42): groups without members, and all their positions."""

from __future__ import annotations

from typing import Final

from tidemark.kafka.apis import ApiKey
from tidemark.kafka.long_tail import Struct
from tidemark.model.errors import ErrorCode, TidemarkError

from broker.core.authorizer import Operation
from broker.core.groups.requests import DeleteGroup, DeleteGroupReply
from broker.shell.kafka.group_calls import GroupNode, ask, may
from broker.shell.request_context import RequestContext


async def handle(node: GroupNode, request: Struct, context: RequestContext) -> dict[str, object]:
    """One result for each group, in the order of the request; a name given twice has one."""
    return {
        "results": [
            {"group_id": group_id, "error_code": int(await _delete(node, group_id, context))}
            for group_id in dict.fromkeys(request.groups_names)
        ]
    }


async def _delete(node: GroupNode, group_id: str, context: RequestContext) -> ErrorCode:
    if not may(node, context, Operation.DELETE, group_id):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED
    if not group_id:
        return ErrorCode.INVALID_GROUP_ID
    try:
        reply = await ask(node, group_id, DeleteGroup(group_id), context, DeleteGroupReply)
    except TidemarkError as failure:
        return failure.code
    return reply.error_code


HANDLED: Final = ((ApiKey.DELETE_GROUPS, handle),)
