"""DeleteGroups (42): groups without members are deleted with all their offsets. Share groups are
deleted by their coordinators.
"""

from __future__ import annotations

from tidemark.kafka.long_tail import Struct
from tidemark.model.authorization import Operation
from tidemark.model.errors import ErrorCode, TidemarkError

from broker.core.groups.id_requests import HasShareGroup
from broker.core.groups.requests import DeleteGroup
from broker.shell.cluster.controller_relay import caller_of
from broker.shell.facts import BrokerFacts
from broker.shell.groups.share_relay import ShareRelay
from broker.shell.kafka.group_calls import Groups, may
from broker.shell.request_context import RequestContext


async def handle(
    facts: BrokerFacts,
    groups: Groups,
    relay: ShareRelay,
    request: Struct,
    context: RequestContext,
) -> dict[str, object]:
    """Return one result for each group, in the order of the request; a name given twice has one.
    The empty id is that of commits of consumers that name no group.
    """
    return {
        "results": [
            {
                "group_id": group_id,
                "error_code": int(await _delete(facts, groups, relay, group_id, context)),
            }
            for group_id in dict.fromkeys(request.groups_names)
        ]
    }


async def _delete(
    facts: BrokerFacts,
    groups: Groups,
    relay: ShareRelay,
    group_id: str,
    context: RequestContext,
) -> ErrorCode:
    if not may(facts, context, Operation.DELETE, group_id):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED
    try:
        reply = await groups.ask(group_id, DeleteGroup(group_id))
    except TidemarkError as failure:
        return failure.code
    if isinstance(reply, HasShareGroup):
        return (await relay.delete(caller_of(context), group_id)).error_code
    return reply.error_code
