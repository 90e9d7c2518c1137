"""OffsetDelete (47, KIP-496): deletes a group's offsets in topics that it no longer reads."""

from __future__ import annotations

from tidemark.kafka.long_tail import Struct
from tidemark.model.authorization import Operation
from tidemark.model.errors import ErrorCode
from tidemark.runtime.metadata_cache import MetadataCache

from broker.core.groups.requests import OffsetDelete, OffsetDeleteReply, TopicPartitions
from broker.shell.facts import BrokerFacts
from broker.shell.kafka.group_calls import (
    Groups,
    TopicChoice,
    ask,
    refuse_error,
    refuse_unless,
)
from broker.shell.kafka.offset_commit import topic_rows
from broker.shell.request_context import RequestContext


async def handle(
    facts: BrokerFacts,
    metadata: MetadataCache,
    groups: Groups,
    request: Struct,
    context: RequestContext,
) -> dict[str, object]:
    """Delete offsets; topics that are refused here do not hold up the others."""
    refuse_unless(facts, context, Operation.DELETE, request.group_id)
    if not request.group_id:
        refuse_error(ErrorCode.INVALID_GROUP_ID)
    choice = TopicChoice(facts, metadata, context, Operation.READ)
    chosen = [_choose(choice, topic) for topic in request.topics]
    asked = OffsetDelete(
        group_id=request.group_id,
        topics=tuple(one for one in chosen if isinstance(one, TopicPartitions)),
    )
    reply = await ask(groups, asked.group_id, asked, OffsetDeleteReply)
    refuse_error(reply.error_code)
    return {
        "error_code": int(ErrorCode.NONE),
        "topics": topic_rows(request.topics, chosen, reply.topics),
    }


def _choose(choice: TopicChoice, topic: Struct) -> TopicPartitions | ErrorCode:
    found = choice.by_name(topic.name)
    if isinstance(found, ErrorCode):
        return found
    return TopicPartitions(*found, tuple(one.partition_index for one in topic.partitions))
