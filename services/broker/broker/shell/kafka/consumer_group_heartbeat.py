"""ConsumerGroupHeartbeat (68, KIP-848): join, stay in and leave a group. The group's coordinator,
in the broker that leads its offsets partition, answers.
"""

from __future__ import annotations

from typing import Final
from uuid import uuid4

from tidemark.kafka.long_tail import Struct
from tidemark.model.assignment import TopicIdPartitions
from tidemark.model.authorization import Operation, topic_resource
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import TopicId

from broker.core.groups.requests import ConsumerGroupHeartbeat, ConsumerGroupHeartbeatReply
from broker.shell.facts import BrokerFacts
from broker.shell.kafka.group_calls import PROTOCOL_IS_DISABLED, Groups, ask, client_host, may
from broker.shell.request_context import RequestContext

CLIENTS_NAME_MEMBERS_FROM: Final = 1
"""First version whose clients choose their member id themselves (KIP-1082)."""


async def handle(
    facts: BrokerFacts, groups: Groups, request: Struct, context: RequestContext
) -> dict[str, object]:
    """Handle one heartbeat of one member."""
    refused = _refusal(facts, request, context)
    if refused is not None:
        return _fields(refused)
    asked = _heartbeat(request, context)
    reply = await ask(groups, request.group_id, asked, ConsumerGroupHeartbeatReply)
    return _fields(reply)


def _refusal(
    facts: BrokerFacts, request: Struct, context: RequestContext
) -> ConsumerGroupHeartbeatReply | None:
    if not facts.config.serves_consumer_protocol:
        return ConsumerGroupHeartbeatReply(
            error_code=ErrorCode.UNSUPPORTED_VERSION, error_message=PROTOCOL_IS_DISABLED
        )
    if not may(facts, context, Operation.READ, request.group_id):
        return ConsumerGroupHeartbeatReply(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    for name in request.subscribed_topic_names or ():
        topic = topic_resource(name)
        if not facts.authorizer.authorize(context.requester, Operation.DESCRIBE, topic):
            return ConsumerGroupHeartbeatReply(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    if context.api_version >= CLIENTS_NAME_MEMBERS_FROM and not request.member_id:
        return ConsumerGroupHeartbeatReply(
            error_code=ErrorCode.INVALID_REQUEST, error_message="member_id must not be empty"
        )
    return None


def _heartbeat(request: Struct, context: RequestContext) -> ConsumerGroupHeartbeat:
    names = request.subscribed_topic_names
    owned = request.topic_partitions
    return ConsumerGroupHeartbeat(
        group_id=request.group_id,
        member_id=request.member_id,
        new_member_id=str(uuid4()),
        member_epoch=request.member_epoch,
        instance_id=request.instance_id,
        rack_id=request.rack_id,
        rebalance_timeout_ms=request.rebalance_timeout,
        subscribed_topic_names=None if names is None else tuple(names),
        subscribed_topic_regex=request.subscribed_topic_regex,
        server_assignor=request.server_assignor,
        topic_partitions=None
        if owned is None
        else tuple(
            TopicIdPartitions(TopicId(topic.topic_id), tuple(topic.partitions)) for topic in owned
        ),
        client_id=context.client_id or "",
        client_host=client_host(context),
        requester=context.requester,
    )


def _fields(reply: ConsumerGroupHeartbeatReply) -> dict[str, object]:
    fields: dict[str, object] = {
        "error_code": int(reply.error_code),
        "error_message": reply.error_message,
        "member_id": reply.member_id,
        "member_epoch": reply.member_epoch,
        "heartbeat_interval": reply.heartbeat_interval_ms,
    }
    if reply.assignment is not None:
        fields["assignment"] = {
            "topic_partitions": [
                {"topic_id": topic_id, "partitions": list(partitions)}
                for topic_id, partitions in reply.assignment
            ]
        }
    return fields
