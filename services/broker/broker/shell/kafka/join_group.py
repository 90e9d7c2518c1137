"""JoinGroup (11): a member of the classic protocol joins the next generation; answered when that
begins.
"""

from __future__ import annotations

from typing import Final
from uuid import uuid4

from tidemark.kafka.long_tail import Struct
from tidemark.model.authorization import Operation
from tidemark.model.errors import ErrorCode

from broker.core.groups.requests import JoinGroup, JoinGroupReply, JoinProtocol
from broker.shell.facts import BrokerFacts
from broker.shell.kafka.group_calls import Groups, ask, client_host, may
from broker.shell.request_context import RequestContext

REBALANCE_TIMEOUT_FROM: Final = 1
MEMBER_ID_REQUIRED_FROM: Final = 4
"""From this version on a new dynamic member gets its id and joins again (KIP-394)."""
NULL_PROTOCOL_FROM: Final = 7
SKIPS_ASSIGNMENT_FROM: Final = 9
"""KIP-814."""


async def handle(
    facts: BrokerFacts, groups: Groups, request: Struct, context: RequestContext
) -> dict[str, object]:
    """Wait as long as the group waits for its members."""
    if not may(facts, context, Operation.READ, request.group_id):
        return _fields(JoinGroupReply(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED), context)
    asked = _join(request, context)
    return _fields(await ask(groups, asked.group_id, asked, JoinGroupReply), context)


def _join(request: Struct, context: RequestContext) -> JoinGroup:
    version, client_id = context.api_version, context.client_id or ""
    has_two_timeouts = version >= REBALANCE_TIMEOUT_FROM and request.rebalance_timeout >= 0
    return JoinGroup(
        group_id=request.group_id,
        member_id=request.member_id,
        new_member_id=f"{request.group_instance_id or client_id}-{uuid4()}",
        group_instance_id=request.group_instance_id,
        client_id=client_id,
        client_host=client_host(context),
        protocol_type=request.protocol_type,
        protocols=tuple(JoinProtocol(one.name, one.metadata) for one in request.protocols),
        session_timeout_ms=request.session_timeout,
        rebalance_timeout_ms=(
            request.rebalance_timeout if has_two_timeouts else request.session_timeout
        ),
        reason=request.reason or "",
        member_id_required=version >= MEMBER_ID_REQUIRED_FROM,
        can_skip_assignment=version >= SKIPS_ASSIGNMENT_FROM,
    )


def _fields(reply: JoinGroupReply, context: RequestContext) -> dict[str, object]:
    protocol_name = reply.protocol_name
    if protocol_name is None and context.api_version < NULL_PROTOCOL_FROM:
        protocol_name = ""
    return {
        "error_code": int(reply.error_code),
        "generation_id": reply.generation_id,
        "protocol_type": reply.protocol_type,
        "protocol_name": protocol_name,
        "leader": reply.leader,
        "skip_assignment": reply.skip_assignment,
        "member_id": reply.member_id,
        "members": [one._asdict() for one in reply.members],
    }
