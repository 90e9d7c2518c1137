"""ListGroups (16): the groups that this broker coordinates; a client collects those of all
brokers.

Share groups are in the answer of the broker that FindCoordinator names for them, although the
share-coordinators keep them: each group is in one answer.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from tidemark.kafka.long_tail import Struct
from tidemark.model.authorization import CLUSTER, Operation, group_resource
from tidemark.model.errors import ErrorCode, TidemarkError
from tidemark.runtime.metadata_cache import MetadataCache

from broker.core.groups.requests import ListedGroup, ListGroups, ListGroupsReply
from broker.shell.cluster.controller_relay import caller_of
from broker.shell.facts import BrokerFacts
from broker.shell.groups.share_relay import ShareRelay
from broker.shell.kafka.find_coordinator import coordinator_of_group
from broker.shell.kafka.group_calls import Groups
from broker.shell.request_context import RequestContext

SHARE_TYPE: Final = "share"
"""Type and protocol type of share groups."""


async def handle(
    facts: BrokerFacts,
    metadata: MetadataCache,
    groups: Groups,
    relay: ShareRelay,
    request: Struct,
    context: RequestContext,
) -> dict[str, object]:
    """List the groups of all shards here that the caller may see, by name."""
    asked = ListGroups(tuple(request.states_filter), tuple(request.types_filter))
    found: list[ListedGroup] = []
    for reply in await groups.ask_all(asked):
        assert isinstance(reply, ListGroupsReply), reply
        found.extend(reply.groups)
    found.extend(
        one
        for one in await _share_groups(relay, asked, context)
        if _is_ours(facts, metadata, one.group_id)
    )
    sees = partial(facts.authorizer.sees, context.requester, Operation.DESCRIBE)
    sees_all = sees(CLUSTER)
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
            if sees_all or sees(group_resource(one.group_id))
        ],
    }


async def _share_groups(
    relay: ShareRelay, asked: ListGroups, context: RequestContext
) -> list[ListedGroup]:
    """Return share groups, if they are asked for. Without a live share-coordinator a list of all
    types does not have them, and a list of share groups is refused. Raises TidemarkError.
    """
    is_named = SHARE_TYPE in {one.lower() for one in asked.types}
    if asked.types and not is_named:
        return []
    if not relay.has_coordinators:
        if is_named and relay.has_state:
            raise TidemarkError(
                ErrorCode.COORDINATOR_NOT_AVAILABLE, "no share-coordinator is running"
            )
        return []
    listed = await relay.list_groups(caller_of(context), asked.states)
    return [ListedGroup(one.group_id, SHARE_TYPE, one.state, SHARE_TYPE) for one in listed]


def _is_ours(facts: BrokerFacts, metadata: MetadataCache, group_id: str) -> bool:
    broker = coordinator_of_group(metadata, group_id)
    return broker is not None and broker.broker_id == facts.broker_id
