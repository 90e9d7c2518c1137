"""Heartbeat (12): a member of the classic protocol is alive; the answer shows whether to join
again.
"""

from __future__ import annotations

from tidemark.kafka.long_tail import Struct
from tidemark.model.authorization import Operation

from broker.core.groups.requests import Heartbeat, HeartbeatReply
from broker.shell.facts import BrokerFacts
from broker.shell.kafka.group_calls import Groups, ask, refuse_unless
from broker.shell.request_context import RequestContext


async def handle(
    facts: BrokerFacts, groups: Groups, request: Struct, context: RequestContext
) -> dict[str, object]:
    """Handle one heartbeat."""
    refuse_unless(facts, context, Operation.READ, request.group_id)
    asked = Heartbeat(
        group_id=request.group_id,
        generation_id=request.generation_id,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
    )
    reply = await ask(groups, asked.group_id, asked, HeartbeatReply)
    return {"error_code": int(reply.error_code)}
