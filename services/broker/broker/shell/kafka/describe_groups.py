"""DescribeGroups (15): groups of the classic protocol, with their members."""

from __future__ import annotations

from typing import Final

from tidemark.kafka.long_tail import Struct
from tidemark.model.authorization import OPERATIONS_NOT_REQUESTED, Operation, group_resource
from tidemark.model.errors import ErrorCode, TidemarkError

from broker.core.groups.requests import DescribeGroup, DescribeGroupReply
from broker.shell.facts import BrokerFacts
from broker.shell.kafka.group_calls import Groups, ask, may
from broker.shell.request_context import RequestContext

NOT_FOUND_FROM: Final = 6
"""Up to this version a group that does not exist is shown as Dead (KIP-1043)."""


async def handle(
    facts: BrokerFacts, groups: Groups, request: Struct, context: RequestContext
) -> dict[str, object]:
    """Return one result for each group, each with an error of its own. The empty id is one too: the
    commits of consumers that name no group have it.
    """
    rows = []
    for group_id in dict.fromkeys(request.groups):
        row = _row(await _describe(facts, groups, group_id, context), context)
        operations = OPERATIONS_NOT_REQUESTED
        if request.include_authorized_operations and not row["error_code"]:
            operations = facts.authorizer.authorized_operations(
                context.requester, group_resource(group_id)
            )
        rows.append({**row, "authorized_operations": operations})
    return {"groups": rows}


async def _describe(
    facts: BrokerFacts, groups: Groups, group_id: str, context: RequestContext
) -> DescribeGroupReply:
    if not may(facts, context, Operation.DESCRIBE, group_id):
        return DescribeGroupReply(
            error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED, group_id=group_id
        )
    try:
        return await ask(groups, group_id, DescribeGroup(group_id), DescribeGroupReply)
    except TidemarkError as failure:
        return DescribeGroupReply(
            error_code=failure.code, error_message=failure.message, group_id=group_id
        )


def _row(reply: DescribeGroupReply, context: RequestContext) -> dict[str, object]:
    error_code = reply.error_code
    if error_code is ErrorCode.GROUP_ID_NOT_FOUND and context.api_version < NOT_FOUND_FROM:
        error_code = ErrorCode.NONE
    return {
        "error_code": int(error_code),
        "error_message": reply.error_message,
        "group_id": reply.group_id,
        "group_state": reply.state,
        "protocol_type": reply.protocol_type,
        "protocol_data": reply.protocol_name,
        "members": [
            {
                "member_id": one.member_id,
                "group_instance_id": one.group_instance_id,
                "client_id": one.client_id,
                "client_host": one.client_host,
                "member_metadata": one.metadata,
                "member_assignment": one.assignment,
            }
            for one in reply.members
        ],
    }
