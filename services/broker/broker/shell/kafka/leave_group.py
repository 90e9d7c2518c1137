"""LeaveGroup (13): members leave before their sessions expire."""

from __future__ import annotations

from typing import Final

from tidemark.kafka.long_tail import Struct
from tidemark.model.authorization import Operation
from tidemark.model.errors import ErrorCode

from broker.core.groups.requests import LeaveGroup, LeaveGroupReply, LeavingMember
from broker.shell.facts import BrokerFacts
from broker.shell.kafka.group_calls import Groups, ask, refuse_unless
from broker.shell.request_context import RequestContext

SEVERAL_FROM: Final = 3
"""From this version on several members leave at once, static ones by instance id (KIP-345)."""


async def handle(
    facts: BrokerFacts, groups: Groups, request: Struct, context: RequestContext
) -> dict[str, object]:
    """Remove members. A single member's error is that of the whole answer, as its client
    expects.
    """
    refuse_unless(facts, context, Operation.READ, request.group_id)
    several = context.api_version >= SEVERAL_FROM
    members = (
        tuple(
            LeavingMember(one.member_id, one.group_instance_id, one.reason or "")
            for one in request.members
        )
        if several
        else (LeavingMember(request.member_id),)
    )
    asked = LeaveGroup(group_id=request.group_id, members=members)
    reply = await ask(groups, asked.group_id, asked, LeaveGroupReply)
    if several:
        return {"error_code": int(reply.error_code), "members": _members(reply)}
    errors = (reply.error_code, *(one.error_code for one in reply.members))
    return {"error_code": int(next((one for one in errors if one), ErrorCode.NONE))}


def _members(reply: LeaveGroupReply) -> list[dict[str, object]]:
    return [
        {
            "member_id": one.member_id,
            "group_instance_id": one.group_instance_id,
            "error_code": int(one.error_code),
        }
        for one in reply.members
    ]
