"""CreatePartitions (37): more partitions for a topic that exists; relayed to the controller."""

from __future__ import annotations

from collections import Counter

from tidemark.kafka.long_tail import Struct
from tidemark.model.authorization import Operation, topic_resource
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import NO_TOPIC_ID
from tidemark.runtime.metadata_cache import MetadataCache

from broker.shell.cluster.controller_relay import ControllerRelay, caller_of
from broker.shell.facts import BrokerFacts
from broker.shell.request_context import RequestContext
from broker.shell.wire_mapping import (
    PlannedPartition,
    TopicRef,
    TopicResult,
    WiderTopic,
    write_create_partitions,
)


async def handle(
    facts: BrokerFacts,
    metadata: MetadataCache,
    relay: ControllerRelay,
    request: Struct,
    context: RequestContext,
) -> dict[str, object]:
    """Return one result for each name, in the order of the request; a name given twice is refused
    once.
    """
    times = Counter(topic.name for topic in request.topics)
    answers: dict[str, TopicResult] = {}
    wanted: list[WiderTopic] = []
    for topic in request.topics:
        refused = _refusal(facts, topic.name, times[topic.name], context)
        answers[topic.name] = refused or TopicResult(topic.name, NO_TOPIC_ID, ErrorCode.NONE)
        if refused is None:
            wanted.append(_wider(metadata, topic))
    if wanted:
        message = write_create_partitions(
            caller_of(context),
            wanted,
            validate_only=request.validate_only,
            timeout_ms=request.timeout,
        )
        for result in await relay.topics(
            "CreatePartitions",
            message,
            named=[TopicRef(topic.name) for topic in wanted],
            timeout_ms=request.timeout,
            validate_only=request.validate_only,
        ):
            answers[result.name] = result
    return {
        "results": [
            {
                "name": result.name,
                "error_code": int(result.error_code),
                "error_message": result.error_message,
            }
            for result in answers.values()
        ]
    }


def _refusal(
    facts: BrokerFacts, name: str, times: int, context: RequestContext
) -> TopicResult | None:
    if times > 1:
        return TopicResult(name, NO_TOPIC_ID, ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
    if not facts.authorizer.authorize(context.principal, Operation.ALTER, topic_resource(name)):
        return TopicResult(
            name, NO_TOPIC_ID, ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Authorization failed."
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
