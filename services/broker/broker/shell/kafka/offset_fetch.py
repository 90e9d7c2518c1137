"""OffsetFetch (9): committed offsets of groups. Several groups from version 8 on, topic ids from 10
on.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from tidemark.kafka.long_tail import Struct
from tidemark.model.authorization import Operation
from tidemark.model.errors import ErrorCode, TidemarkError
from tidemark.runtime.metadata_cache import MetadataCache

from broker.core.groups.requests import (
    FetchedOffset,
    FetchedTopic,
    OffsetFetch,
    OffsetFetchReply,
    TopicPartitions,
)
from broker.shell.facts import BrokerFacts
from broker.shell.kafka.group_calls import (
    Groups,
    NamedTopic,
    TopicChoice,
    ask,
    refuse_error,
    refuse_unless,
)
from broker.shell.kafka.offset_commit import topic_key
from broker.shell.request_context import RequestContext

SEVERAL_FROM: Final = 8
TOPIC_IDS_FROM: Final = 10

Chosen = TopicPartitions | ErrorCode


async def handle(
    facts: BrokerFacts,
    metadata: MetadataCache,
    groups: Groups,
    request: Struct,
    context: RequestContext,
) -> dict[str, object]:
    """Return the offsets of each group, each with an error of its own."""
    if context.api_version < SEVERAL_FROM:
        group = Struct(
            group_id=request.group_id, topics=request.topics, member_id=None, member_epoch=-1
        )
        topics = await _group(facts, metadata, groups, group, request, context)
        return {"topics": topics, "error_code": int(ErrorCode.NONE)}
    return {
        "groups": [
            await _row(facts, metadata, groups, group, request, context) for group in request.groups
        ]
    }


async def _row(
    facts: BrokerFacts,
    metadata: MetadataCache,
    groups: Groups,
    group: Struct,
    request: Struct,
    context: RequestContext,
) -> dict[str, object]:
    try:
        topics = await _group(facts, metadata, groups, group, request, context)
    except TidemarkError as refused:
        return {"group_id": group.group_id, "topics": [], "error_code": int(refused.code)}
    return {"group_id": group.group_id, "topics": topics, "error_code": int(ErrorCode.NONE)}


async def _group(
    facts: BrokerFacts,
    metadata: MetadataCache,
    groups: Groups,
    group: Struct,
    request: Struct,
    context: RequestContext,
) -> list[dict[str, object]]:
    """Return the topics of one group's answer. Raises TidemarkError."""
    refuse_unless(facts, context, Operation.DESCRIBE, group.group_id)
    chosen = None if group.topics is None else _choose(facts, metadata, group.topics, context)
    asked = OffsetFetch(
        group_id=group.group_id,
        topics=(
            tuple(one for one in chosen if isinstance(one, TopicPartitions))
            if chosen is not None
            else None
        ),
        require_stable=request.require_stable,
        member_id=group.member_id,
        member_epoch=group.member_epoch,
    )
    reply = await ask(groups, group.group_id, asked, OffsetFetchReply)
    refuse_error(reply.error_code)
    if chosen is None:
        return _all_rows(facts, metadata, reply.topics, context)
    return _rows(group.topics, chosen, reply.topics)


def _choose(
    facts: BrokerFacts, metadata: MetadataCache, topics: Iterable[Struct], context: RequestContext
) -> list[Chosen]:
    choice = TopicChoice(facts, metadata, context, Operation.DESCRIBE)
    by_id = context.api_version >= TOPIC_IDS_FROM
    chosen: list[Chosen] = []
    for topic in topics:
        found = choice.by_id(topic.topic_id) if by_id else choice.permitted(topic.name)
        chosen.append(
            found
            if isinstance(found, ErrorCode)
            else TopicPartitions(*found, tuple(topic.partition_indexes))
        )
    return chosen


def _rows(
    topics: Iterable[Struct], chosen: Iterable[Chosen], fetched: Iterable[FetchedTopic]
) -> list[dict[str, object]]:
    """Return one row for each topic asked for, in the order of the request."""
    rest = iter(fetched)
    rows = []
    for topic, choice in zip(topics, chosen, strict=True):
        offsets = (
            [FetchedOffset(number, -1, -1, "", choice) for number in topic.partition_indexes]
            if isinstance(choice, ErrorCode)
            else next(rest).offsets
        )
        rows.append({**topic_key(topic), "partitions": _partitions(offsets)})
    return rows


def _all_rows(
    facts: BrokerFacts,
    metadata: MetadataCache,
    fetched: Iterable[FetchedTopic],
    context: RequestContext,
) -> list[dict[str, object]]:
    """Return one row for each topic in which the group has offsets, without those that the caller
    may not see and, by id, those that no longer exist.
    """
    choice = TopicChoice(facts, metadata, context, Operation.DESCRIBE)
    by_id = context.api_version >= TOPIC_IDS_FROM
    rows: list[dict[str, object]] = []
    for topic in fetched:
        found = choice.by_name(topic.topic) if by_id else choice.permitted(topic.topic)
        if isinstance(found, NamedTopic):
            key = {"topic_id": found.topic_id} if by_id else {"name": topic.topic}
            rows.append({**key, "partitions": _partitions(topic.offsets)})
    return rows


def _partitions(offsets: Iterable[FetchedOffset]) -> list[dict[str, object]]:
    return [
        {
            "partition_index": one.partition,
            "committed_offset": one.offset,
            "committed_leader_epoch": one.leader_epoch,
            "metadata": one.metadata,
            "error_code": int(one.error_code),
        }
        for one in offsets
    ]
