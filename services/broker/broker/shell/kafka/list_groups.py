"""ListGroups (16): the groups that this broker coordinates; a client collects those of all
brokers.
"""

from __future__ import annotations

from tidemark.kafka.long_tail import Struct
from tidemark.model.authorization import CLUSTER, Operation
from tidemark.model.errors import ErrorCode

from broker.core.groups.requests import ListedGroup, ListGroups, ListGroupsReply
from broker.shell.facts import BrokerFacts
from broker.shell.kafka.group_calls import Groups, may
from broker.shell.request_context import RequestContext


async def handle(
    facts: BrokerFacts, groups: Groups, request: Struct, context: RequestContext
) -> dict[str, object]:
    """List the groups of all shards here that the caller may see, by name."""
    asked = ListGroups(tuple(request.states_filter), tuple(request.types_filter))
    found: list[ListedGroup] = []
    for reply in await groups.ask_all(asked):
        assert isinstance(reply, ListGroupsReply), reply
        found.extend(reply.groups)
    sees_all = facts.authorizer.authorize(context.principal, Operation.DESCRIBE, CLUSTER)
    return {
        "error_code": int(ErrorCode.NONE),
        "groups": [
            {
                "group_id": one.group_id,
                "protocol_type": one.protocol_type,
                "group_state": one.state,
                "group_type": one.group_type,
            }
            for one in sorted(found)
            if sees_all or may(facts, context, Operation.DESCRIBE, one.group_id)
        ],
    }
