"""CreatePartitions (37): more partitions for a topic that exists; relayed to the controller."""

from __future__ import annotations

from functools import partial
from typing import Final

from tidemark.kafka.long_tail import Struct
from tidemark.model.authorization import Operation, topic_resource
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import NO_TOPIC_ID
from tidemark.runtime.metadata_cache import MetadataCache

from broker.shell.cluster.controller_relay import ControllerRelay, caller_of
from broker.shell.facts import BrokerFacts
from broker.shell.kafka.topic_changes import TopicChanges, relay_changes
from broker.shell.request_context import RequestContext
from broker.shell.wire_mapping import (
    PlannedPartition,
    TopicResult,
    WiderTopic,
    write_create_partitions,
)

STRICT_FROM: Final = 3
"""First version whose clients know THROTTLING_QUOTA_EXCEEDED (KIP-599)."""


async def handle(
    facts: BrokerFacts,
    metadata: MetadataCache,
    relay: ControllerRelay,
    request: Struct,
    context: RequestContext,
) -> dict[str, object]:
    """Add partitions to topics. Each succeeds or fails alone."""
    mutations = facts.quotas.mutations(context, strict_from=STRICT_FROM)
    changes = TopicChanges(
        "CreatePartitions",
        mutations,
        lambda topic: _added(metadata, topic),
        refuse=lambda topic: _refusal(facts, metadata, topic, context),
        read=lambda topic: _wider(metadata, topic),
        write=partial(
            write_create_partitions,
            caller_of(context),
            validate_only=request.validate_only,
            timeout_ms=request.timeout,
        ),
    )
    results = await relay_changes(relay, changes, request)
    return {
        "throttle_time": mutations.throttle_ms(),
        "results": [
            {
                "name": result.name,
                "error_code": int(result.error_code),
                "error_message": result.error_message,
            }
            for result in results
        ],
    }


def _added(metadata: MetadataCache, topic: Struct) -> int:
    """Return the number of partitions that a topic is to get."""
    existing = metadata.image.topics.get(topic.name)
    return max(0, topic.count - len(existing.partitions)) if existing is not None else 0


def _refusal(
    facts: BrokerFacts, metadata: MetadataCache, topic: Struct, context: RequestContext
) -> TopicResult | None:
    """Return the error if this broker itself refuses the change; the controller checks everything
    else.
    """
    name = topic.name
    if not facts.authorizer.authorize(context.requester, Operation.ALTER, topic_resource(name)):
        return TopicResult(
            name, NO_TOPIC_ID, ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Authorization failed."
        )
    added = _added(metadata, topic)
    if added and topic.assignments is not None and not topic.assignments:
        # To the controller no assignments are a null list.
        return TopicResult(
            name,
            NO_TOPIC_ID,
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Attempted to add {added} additional partition(s), but no assignments were specified.",
        )
    return None


def _wider(metadata: MetadataCache, topic: Struct) -> WiderTopic:
    """Return the change of one topic. Kafka's request lists only the replicas of the added
    partitions, whose numbers follow those that exist.
    """
    existing = metadata.image.topics.get(topic.name)
    first = len(existing.partitions) if existing is not None else 0
    return WiderTopic(
        topic.name,
        topic.count,
        tuple(
            PlannedPartition(first + index, tuple(planned.broker_ids))
            for index, planned in enumerate(topic.assignments or ())
        ),
    )
