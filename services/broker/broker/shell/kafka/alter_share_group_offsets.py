"""AlterShareGroupOffsets (91, KIP-932): start share-partitions of a group without members again at
other offsets.
"""

from __future__ import annotations

from tidemark.kafka.long_tail import Struct
from tidemark.model.authorization import Operation
from tidemark.model.errors import ErrorCode
from tidemark.runtime.metadata_cache import MetadataCache

from broker.shell.cluster.controller_relay import caller_of
from broker.shell.facts import BrokerFacts
from broker.shell.groups.share_groups import (
    AlteredOffsets,
    Outcome,
    StartOffset,
    TopicStartOffsets,
)
from broker.shell.groups.share_relay import ShareRelay
from broker.shell.kafka.group_calls import NamedTopic
from broker.shell.kafka.share_calls import (
    MISSING,
    group_refusal,
    response,
    topic_id_of,
    topics_by_name,
)
from broker.shell.request_context import RequestContext


async def handle(
    facts: BrokerFacts,
    metadata: MetadataCache,
    relay: ShareRelay,
    request: Struct,
    context: RequestContext,
) -> dict[str, object]:
    """Return an outcome for each share-partition, in the order of the request."""
    refused = group_refusal(facts, context, Operation.READ, request.group_id)
    if refused is not None:
        return response(refused)
    chosen = topics_by_name(facts, metadata, context, request.topics)
    wanted = [
        TopicStartOffsets(found.topic_id, found.topic, _offsets(topic))
        for topic in request.topics
        if isinstance(found := chosen[topic.topic_name], NamedTopic)
    ]
    altered = AlteredOffsets(Outcome(ErrorCode.NONE), {})
    if wanted:
        altered = await relay.alter_offsets(caller_of(context), request.group_id, wanted)
    if altered.outcome.error_code is not ErrorCode.NONE:
        return response(altered.outcome)
    rows = [_row(topic, chosen[topic.topic_name], altered) for topic in request.topics]
    return response(altered.outcome, rows)


def _offsets(topic: Struct) -> tuple[StartOffset, ...]:
    return tuple(StartOffset(one.partition_index, one.start_offset) for one in topic.partitions)


def _row(topic: Struct, found: NamedTopic | Outcome, altered: AlteredOffsets) -> dict[str, object]:
    outcomes = {
        one.partition_index: found
        if isinstance(found, Outcome)
        else altered.partitions.get((topic.topic_name, one.partition_index), MISSING)
        for one in topic.partitions
    }
    return {
        "topic_name": topic.topic_name,
        "topic_id": topic_id_of(found),
        "partitions": [
            {
                "partition_index": partition,
                "error_code": int(outcome.error_code),
                "error_message": outcome.error_message,
            }
            for partition, outcome in outcomes.items()
        ],
    }
