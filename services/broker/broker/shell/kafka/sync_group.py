"""SyncGroup (14): returns a member's assignment; the leader's request has those of all members."""

from __future__ import annotations

from typing import Final

from tidemark.kafka.long_tail import Struct
from tidemark.model.authorization import Operation
from tidemark.model.errors import ErrorCode

from broker.core.groups.requests import MemberAssignment, SyncGroup, SyncGroupReply
from broker.shell.facts import BrokerFacts
from broker.shell.kafka.group_calls import Groups, ask, may
from broker.shell.request_context import RequestContext

PROTOCOL_NAMED_FROM: Final = 5
"""From this version on a member names the protocol that it expects (KIP-559)."""


async def handle(
    facts: BrokerFacts, groups: Groups, request: Struct, context: RequestContext
) -> dict[str, object]:
    """Wait until the assignment is in the log."""
    if not may(facts, context, Operation.READ, request.group_id):
        return _fields(SyncGroupReply(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED))
    names_protocol = request.protocol_type is not None and request.protocol_name is not None
    if context.api_version >= PROTOCOL_NAMED_FROM and not names_protocol:
        return _fields(SyncGroupReply(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
    asked = SyncGroup(
        group_id=request.group_id,
        generation_id=request.generation_id,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        protocol_type=request.protocol_type,
        protocol_name=request.protocol_name,
        assignments=tuple(
            MemberAssignment(one.member_id, one.assignment) for one in request.assignments
        ),
    )
    return _fields(await ask(groups, asked.group_id, asked, SyncGroupReply))


def _fields(reply: SyncGroupReply) -> dict[str, object]:
    return {
        "error_code": int(reply.error_code),
        "protocol_type": reply.protocol_type,
        "protocol_name": reply.protocol_name,
        "assignment": reply.assignment,
    }
