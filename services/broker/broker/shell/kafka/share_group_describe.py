"""ShareGroupDescribe (77, KIP-932): share groups with their members and assignments."""

from __future__ import annotations

from collections.abc import Iterable

from tidemark.kafka.long_tail import Struct
from tidemark.model.authorization import (
    OPERATIONS_NOT_REQUESTED,
    Operation,
    group_resource,
    topic_resource,
)
from tidemark.model.errors import ErrorCode

from broker.shell.cluster.controller_relay import caller_of
from broker.shell.facts import BrokerFacts
from broker.shell.groups.share_groups import DescribedShareGroup, Outcome, ShareMember
from broker.shell.groups.share_relay import ShareRelay
from broker.shell.kafka.group_calls import may
from broker.shell.request_context import RequestContext


async def handle(
    facts: BrokerFacts, relay: ShareRelay, request: Struct, context: RequestContext
) -> dict[str, object]:
    """Return one result for each group, each with an error of its own."""
    rows = []
    for group_id in dict.fromkeys(request.group_ids):
        described = await _describe(facts, relay, group_id, context)
        operations = OPERATIONS_NOT_REQUESTED
        if request.include_authorized_operations and not described.outcome.error_code:
            operations = facts.authorizer.authorized_operations(
                context.requester, group_resource(group_id)
            )
        rows.append(
            {"group_id": group_id, "authorized_operations": operations, **_fields(described)}
        )
    return {"groups": rows}


async def _describe(
    facts: BrokerFacts, relay: ShareRelay, group_id: str, context: RequestContext
) -> DescribedShareGroup:
    if not may(facts, context, Operation.DESCRIBE, group_id):
        return DescribedShareGroup(Outcome(ErrorCode.GROUP_AUTHORIZATION_FAILED))
    if not group_id:
        return DescribedShareGroup(Outcome(ErrorCode.INVALID_GROUP_ID))
    described = await relay.describe(caller_of(context), group_id)
    if not all(
        facts.authorizer.authorize(context.requester, Operation.DESCRIBE, topic_resource(name))
        for name in _topic_names(described.members)
    ):
        message = "the group reads topics that the caller may not describe"
        return DescribedShareGroup(Outcome(ErrorCode.TOPIC_AUTHORIZATION_FAILED, message))
    return described


def _topic_names(members: Iterable[ShareMember]) -> set[str]:
    names: set[str] = set()
    for member in members:
        names.update(member.subscribed_topic_names)
        names.update(one.topic for one in member.assignment)
    return names


def _fields(described: DescribedShareGroup) -> dict[str, object]:
    return {
        "error_code": int(described.outcome.error_code),
        "error_message": described.outcome.error_message,
        "group_state": described.state,
        "group_epoch": described.group_epoch,
        "assignment_epoch": described.assignment_epoch,
        "assignor_name": described.assignor_name,
        "members": [_member(member) for member in described.members],
    }


def _member(member: ShareMember) -> dict[str, object]:
    return {
        "member_id": member.member_id,
        "rack_id": member.rack_id,
        "member_epoch": member.member_epoch,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "subscribed_topic_names": list(member.subscribed_topic_names),
        "assignment": {
            "topic_partitions": [
                {
                    "topic_id": one.topic_id,
                    "topic_name": one.topic,
                    "partitions": list(one.partitions),
                }
                for one in member.assignment
            ]
        },
    }
