"""ShareGroupHeartbeat (76, KIP-932): join, stay in and leave a share group. The share-coordinator
that owns the group's shard answers.
"""

from __future__ import annotations

from tidemark.kafka.long_tail import Struct
from tidemark.model.authorization import Operation, topic_resource
from tidemark.model.errors import ErrorCode, TidemarkError
from tidemark.model.topics import CONSUMER_OFFSETS, SHARE_GROUP_STATE

from broker.shell.cluster.controller_relay import caller_of
from broker.shell.cluster.internal_topics import InternalTopics
from broker.shell.facts import BrokerFacts
from broker.shell.groups.share_groups import Outcome, ShareHeartbeat, ShareHeartbeatReply
from broker.shell.groups.share_relay import ShareRelay
from broker.shell.kafka.group_calls import client_host, may
from broker.shell.request_context import RequestContext


async def handle(
    facts: BrokerFacts,
    internal_topics: InternalTopics,
    relay: ShareRelay,
    request: Struct,
    context: RequestContext,
) -> dict[str, object]:
    """Handle one heartbeat of one member. The first one of a cluster creates the topics with the
    state of share groups and with their ids.
    """
    refused = _refusal(facts, request, context)
    if refused is not None:
        return _fields(ShareHeartbeatReply(refused))
    try:
        if relay.has_coordinators:
            for topic in (CONSUMER_OFFSETS, SHARE_GROUP_STATE):
                missing = await internal_topics.ensure(context, topic)
                if missing is not None:
                    raise missing
        reply = await relay.heartbeat(caller_of(context), _heartbeat(request, context))
    except TidemarkError as failure:
        reply = ShareHeartbeatReply(Outcome(failure.code, failure.message))
    return _fields(reply)


def _refusal(facts: BrokerFacts, request: Struct, context: RequestContext) -> Outcome | None:
    if not may(facts, context, Operation.READ, request.group_id):
        return Outcome(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    for name in request.subscribed_topic_names or ():
        topic = topic_resource(name)
        if not facts.authorizer.authorize(context.requester, Operation.DESCRIBE, topic):
            return Outcome(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    return None


def _heartbeat(request: Struct, context: RequestContext) -> ShareHeartbeat:
    names = request.subscribed_topic_names
    return ShareHeartbeat(
        group_id=request.group_id,
        member_id=request.member_id,
        member_epoch=request.member_epoch,
        rack_id=request.rack_id,
        subscribed_topic_names=None if names is None else tuple(names),
        client_host=client_host(context),
    )


def _fields(reply: ShareHeartbeatReply) -> dict[str, object]:
    fields: dict[str, object] = {
        "error_code": int(reply.outcome.error_code),
        "error_message": reply.outcome.error_message,
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
