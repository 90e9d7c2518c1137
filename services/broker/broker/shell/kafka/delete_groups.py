"""DeleteGroups (42): groups without members are deleted with all their offsets."""

from __future__ import annotations

from tidemark.kafka.long_tail import Struct
from tidemark.model.authorization import Operation
from tidemark.model.errors import ErrorCode, TidemarkError

from broker.core.groups.requests import DeleteGroup, DeleteGroupReply
from broker.shell.facts import BrokerFacts
from broker.shell.kafka.group_calls import Groups, ask, may
from broker.shell.request_context import RequestContext


async def handle(
    facts: BrokerFacts, groups: Groups, request: Struct, context: RequestContext
) -> dict[str, object]:
    """Return one result for each group, in the order of the request; a name given twice has one."""
    return {
        "results": [
            {
                "group_id": group_id,
                "error_code": int(await _delete(facts, groups, group_id, context)),
            }
            for group_id in dict.fromkeys(request.groups_names)
        ]
    }


async def _delete(
    facts: BrokerFacts, groups: Groups, group_id: str, context: RequestContext
) -> ErrorCode:
    if not may(facts, context, Operation.DELETE, group_id):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED
    if not group_id:
        return ErrorCode.INVALID_GROUP_ID
    try:
        reply = await ask(groups, group_id, DeleteGroup(group_id), context, DeleteGroupReply)
    except TidemarkError as failure:
        return failure.code
    return reply.error_code
