"""ConsumerGroupDescribe (69, KIP-848): groups of the new protocol, with current assignments and
targets.
"""

from __future__ import annotations

from collections.abc import Iterable

from tidemark.kafka.long_tail import Struct
from tidemark.model.authorization import (
    OPERATIONS_NOT_REQUESTED,
    Operation,
    group_resource,
    topic_resource,
)
from tidemark.model.errors import ErrorCode, TidemarkError

from broker.core.groups.requests import (
    ConsumerGroupDescribe,
    ConsumerGroupDescribeReply,
    DescribedConsumer,
    TopicPartitions,
)
from broker.shell.facts import BrokerFacts
from broker.shell.kafka.group_calls import PROTOCOL_IS_DISABLED, Groups, ask, may
from broker.shell.request_context import RequestContext


async def handle(
    facts: BrokerFacts, groups: Groups, request: Struct, context: RequestContext
) -> dict[str, object]:
    """Return one result for each group, each with an error of its own."""
    rows = []
    for group_id in dict.fromkeys(request.group_ids):
        fields = _fields(await _describe(facts, groups, group_id, context))
        fields["authorized_operations"] = (
            facts.authorizer.authorized_operations(context.requester, group_resource(group_id))
            if request.include_authorized_operations and not fields["error_code"]
            else OPERATIONS_NOT_REQUESTED
        )
        rows.append(fields)
    return {"groups": rows}


async def _describe(
    facts: BrokerFacts, groups: Groups, group_id: str, context: RequestContext
) -> ConsumerGroupDescribeReply:
    if not facts.config.serves_consumer_protocol:
        return _failed(group_id, ErrorCode.UNSUPPORTED_VERSION, PROTOCOL_IS_DISABLED)
    if not may(facts, context, Operation.DESCRIBE, group_id):
        return _failed(group_id, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if not group_id:
        return _failed(group_id, ErrorCode.INVALID_GROUP_ID)
    try:
        reply = await ask(
            groups, group_id, ConsumerGroupDescribe(group_id), ConsumerGroupDescribeReply
        )
    except TidemarkError as failure:
        return _failed(group_id, failure.code, failure.message)
    if not all(
        facts.authorizer.authorize(context.requester, Operation.DESCRIBE, topic_resource(name))
        for name in _topic_names(reply.members)
    ):
        message = "the group reads topics that the caller may not describe"
        return _failed(group_id, ErrorCode.TOPIC_AUTHORIZATION_FAILED, message)
    return reply


def _failed(
    group_id: str, error_code: ErrorCode, message: str | None = None
) -> ConsumerGroupDescribeReply:
    return ConsumerGroupDescribeReply(
        error_code=error_code, error_message=message, group_id=group_id
    )


def _topic_names(members: Iterable[DescribedConsumer]) -> set[str]:
    names: set[str] = set()
    for member in members:
        names.update(member.subscribed_topic_names)
        names.update(one.topic for one in (*member.assignment, *member.target_assignment))
    return names


def _fields(reply: ConsumerGroupDescribeReply) -> dict[str, object]:
    return {
        "error_code": int(reply.error_code),
        "error_message": reply.error_message,
        "group_id": reply.group_id,
        "group_state": reply.state,
        "group_epoch": reply.group_epoch,
        "assignment_epoch": reply.assignment_epoch,
        "assignor_name": reply.assignor_name,
        "members": [_member(member) for member in reply.members],
    }


def _member(member: DescribedConsumer) -> dict[str, object]:
    return {
        "member_id": member.member_id,
        "instance_id": member.instance_id,
        "rack_id": member.rack_id,
        "member_epoch": member.member_epoch,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "subscribed_topic_names": list(member.subscribed_topic_names),
        "subscribed_topic_regex": member.subscribed_topic_regex,
        "assignment": _assignment(member.assignment),
        "target_assignment": _assignment(member.target_assignment),
        "member_type": member.member_type,
    }


def _assignment(topics: Iterable[TopicPartitions]) -> dict[str, object]:
    return {
        "topic_partitions": [
            {
                "topic_id": one.topic_id,
                "topic_name": one.topic,
                "partitions": list(one.partitions),
            }
            for one in topics
        ]
    }
