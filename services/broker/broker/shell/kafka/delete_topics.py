"""DeleteTopics (20): by name, or from version 6 by id; relayed to the controller."""

from __future__ import annotations

from collections import Counter
from typing import Final

from tidemark.kafka.long_tail import Struct
from tidemark.model.authorization import Operation, topic_resource
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import NO_TOPIC_ID, TopicId
from tidemark.runtime.metadata_cache import MetadataCache

from broker.shell.cluster.controller_relay import ControllerRelay, caller_of
from broker.shell.facts import BrokerFacts
from broker.shell.kafka.topic_changes import over_quota
from broker.shell.request_context import RequestContext
from broker.shell.wire_mapping import TopicRef, TopicResult, write_delete_topics

BY_REFERENCE_FROM: Final = 6
"""First version that names topics in a list of (name, id) rather than of names."""

DISABLED_FROM: Final = 3
"""First version whose clients read TOPIC_DELETION_DISABLED (KIP-322)."""

_UNKNOWN_ID: Final = "This server does not host this topic ID."

STRICT_FROM: Final = 5
"""First version whose clients know THROTTLING_QUOTA_EXCEEDED (KIP-599)."""


async def handle(
    facts: BrokerFacts,
    metadata: MetadataCache,
    relay: ControllerRelay,
    request: Struct,
    context: RequestContext,
) -> dict[str, object]:
    """Return one result for each topic named, in the order of the request."""
    named = _named(request, context.api_version)
    answers: dict[tuple[str | None, TopicId], TopicResult] = {}
    wanted: dict[tuple[str | None, TopicId], TopicRef] = {}
    permits: dict[tuple[str | None, TopicId], int] = {}
    times = Counter(named)
    mutations = facts.quotas.mutations(context, strict_from=STRICT_FROM)
    for name, topic_id in named:
        refused = _refusal(facts, metadata, name, topic_id, times[name, topic_id], context)
        if refused is None:
            count = permits[name, topic_id] = _partition_count(metadata, name, topic_id)
            refused = over_quota(mutations, name or "", count, topic_id)
        ref = TopicRef(name or "", topic_id)
        answers[name, topic_id] = refused or TopicResult(ref.name, topic_id, ErrorCode.NONE)
        if refused is None:
            wanted[name, topic_id] = ref
    if wanted:
        refs = list(wanted.values())
        message = write_delete_topics(caller_of(context), refs, timeout_ms=request.timeout)
        results = await relay.topics(
            "DeleteTopics", message, named=refs, timeout_ms=request.timeout
        )
        answers.update(zip(wanted, results, strict=True))
        for key in wanted:
            mutations.settle(permits[key], answers[key].error_code)
    return {
        "throttle_time": mutations.throttle_ms(),
        "responses": [
            {
                "name": result.name or name,
                "topic_id": result.topic_id,
                "error_code": int(_readable(result.error_code, context.api_version)),
                "error_message": result.error_message,
            }
            for (name, _), result in answers.items()
        ],
    }


def _partition_count(metadata: MetadataCache, name: str | None, topic_id: TopicId) -> int:
    image = metadata.image
    topic = image.topics_by_id.get(topic_id) if name is None else image.topics.get(name)
    return len(topic.partitions) if topic is not None else 0


def _readable(error_code: ErrorCode, version: int) -> ErrorCode:
    if error_code is ErrorCode.TOPIC_DELETION_DISABLED and version < DISABLED_FROM:
        return ErrorCode.INVALID_REQUEST
    return error_code


def _named(request: Struct, version: int) -> list[tuple[str | None, TopicId]]:
    if version < BY_REFERENCE_FROM:
        return [(name, NO_TOPIC_ID) for name in request.topic_names]
    return [(topic.name, TopicId(topic.topic_id or NO_TOPIC_ID)) for topic in request.topics]


def _refusal(
    facts: BrokerFacts,
    metadata: MetadataCache,
    name: str | None,
    topic_id: TopicId,
    times: int,
    context: RequestContext,
) -> TopicResult | None:
    """Return the error if this broker itself refuses the deletion; the controller checks everything
    else.
    """

    def refuse(error_code: ErrorCode, message: str) -> TopicResult:
        return TopicResult(name or "", topic_id, error_code, message)

    if name is None and topic_id == NO_TOPIC_ID:
        return refuse(ErrorCode.INVALID_REQUEST, "Neither topic name nor id were specified.")
    if name is not None and topic_id != NO_TOPIC_ID:
        return refuse(
            ErrorCode.INVALID_REQUEST, "You may not specify both topic name and topic id."
        )
    if times > 1:
        kind = "name" if name is not None else "id"
        return refuse(ErrorCode.INVALID_REQUEST, f"Duplicate topic {kind}.")
    if name is None:
        topic = metadata.image.topics_by_id.get(topic_id)
        if topic is None:
            # Without rules only the controller can tell that there is none. With rules the topic's
            # name decides, which this broker may not have yet: clients ask again.
            has_rules = facts.authorizer.has_rules
            return refuse(ErrorCode.UNKNOWN_TOPIC_ID, _UNKNOWN_ID) if has_rules else None
        guarded = topic.name
    else:
        guarded = name
    if facts.authorizer.authorize(context.requester, Operation.DELETE, topic_resource(guarded)):
        return None
    return refuse(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Authorization failed.")
