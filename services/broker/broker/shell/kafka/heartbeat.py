"""Heartbeat (12): a member of the classic protocol is alive; the answer shows whether to join
again.
"""

from __future__ import annotations

from tidemark.kafka.long_tail import Struct
from tidemark.model.authorization import Operation
from tidemark.model.errors import ErrorCode, TidemarkError

from broker.core.groups.requests import Heartbeat, HeartbeatReply
from broker.shell.facts import BrokerFacts
from broker.shell.kafka.group_calls import Groups, ask, refuse_unless
from broker.shell.request_context import RequestContext


async def handle(
    facts: BrokerFacts, groups: Groups, request: Struct, context: RequestContext
) -> dict[str, object]:
    """Handle one heartbeat. While the group is loaded it succeeds, as in Kafka: clients do not
    expect that error here, and some leave the group. Every session begins again after the load.
    """
    refuse_unless(facts, context, Operation.READ, request.group_id)
    asked = Heartbeat(
        group_id=request.group_id,
        generation_id=request.generation_id,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
    )
    try:
        reply = await ask(groups, asked.group_id, asked, HeartbeatReply)
    except TidemarkError as failure:
        if failure.code is not ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            raise
        reply = HeartbeatReply(ErrorCode.NONE)
    return {"error_code": int(reply.error_code)}
