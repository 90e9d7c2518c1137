"""OffsetCommit (8): offsets up to which a group has processed. By topic ids from version 10 on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from tidemark.kafka.long_tail import Struct
from tidemark.model.authorization import Operation
from tidemark.model.errors import ErrorCode, TidemarkError
from tidemark.runtime.metadata_cache import MetadataCache

from broker.core.groups.requests import (
    OffsetCommit,
    OffsetCommitReply,
    OffsetToCommit,
    PartitionError,
    TopicErrors,
    TopicOffsets,
    TxnOffsetCommit,
)
from broker.shell.facts import BrokerFacts
from broker.shell.kafka.group_calls import (
    Groups,
    TopicChoice,
    ask,
    refuse_unless,
)
from broker.shell.request_context import RequestContext

EPOCHS_FROM: Final = 9
"""Clients of earlier versions know neither the epochs nor the errors of KIP-848."""
TOPIC_IDS_FROM: Final = 10

_KNOWN_WITHOUT_EPOCHS: Final = {ErrorCode.GROUP_ID_NOT_FOUND: ErrorCode.ILLEGAL_GENERATION}

Chosen = TopicOffsets | ErrorCode


async def handle(
    facts: BrokerFacts,
    metadata: MetadataCache,
    groups: Groups,
    request: Struct,
    context: RequestContext,
) -> dict[str, object]:
    """Commit offsets; topics that are refused here do not hold up the others."""
    refuse_unless(facts, context, Operation.READ, request.group_id)
    chosen = choose_topics(
        facts, metadata, request.topics, context, by_id=context.api_version >= TOPIC_IDS_FROM
    )
    asked = OffsetCommit(
        group_id=request.group_id,
        topics=tuple(one for one in chosen if isinstance(one, TopicOffsets)),
        member_id=request.member_id,
        generation_or_epoch=request.generation_id_or_member_epoch,
        group_instance_id=request.group_instance_id,
        retention_ms=request.retention_time,
        knows_epochs=context.api_version >= EPOCHS_FROM,
    )
    answers: tuple[TopicErrors, ...] = ()
    if asked.topics:
        known_as = _KNOWN_WITHOUT_EPOCHS if context.api_version < EPOCHS_FROM else {}
        answers = await committed(groups, asked, known_as)
        if context.api_version < TOPIC_IDS_FROM:
            answers = tuple(map(by_name, answers))
    return {"topics": topic_rows(request.topics, chosen, answers)}


async def committed(
    groups: Groups, asked: OffsetCommit | TxnOffsetCommit, known_as: Mapping[ErrorCode, ErrorCode]
) -> tuple[TopicErrors, ...]:
    """Return the results of a commit. An error of the whole, replaced as in ``known_as``, is
    that of each partition: topics that were refused before keep their own.
    """
    try:
        reply = await ask(groups, asked.group_id, asked, OffsetCommitReply)
    except TidemarkError as failure:
        reply = OffsetCommitReply(error_code=failure.code)
    if reply.error_code is ErrorCode.NONE:
        return reply.topics
    code = known_as.get(reply.error_code, reply.error_code)
    return tuple(
        TopicErrors(
            topic.topic,
            topic.topic_id,
            tuple(PartitionError(one.partition, code) for one in topic.offsets),
        )
        for topic in asked.topics
    )


def by_name(topic: TopicErrors) -> TopicErrors:
    """Return the errors of a topic as versions have them that know names and no ids."""
    by_id = {ErrorCode.UNKNOWN_TOPIC_ID: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    told = (
        one._replace(error_code=by_id.get(one.error_code, one.error_code))
        for one in topic.partitions
    )
    return topic._replace(partitions=tuple(told))


def choose_topics(
    facts: BrokerFacts,
    metadata: MetadataCache,
    topics: Iterable[Struct],
    context: RequestContext,
    *,
    by_id: bool,
) -> list[Chosen]:
    """Return for each topic the offsets to commit, or an error."""
    choice = TopicChoice(facts, metadata, context, Operation.READ)
    return [_choose(choice, topic, by_id=by_id) for topic in topics]


def _choose(choice: TopicChoice, topic: Struct, *, by_id: bool) -> Chosen:
    found = choice.by_id(topic.topic_id) if by_id else choice.by_name(topic.name)
    if isinstance(found, ErrorCode):
        return found
    offsets = tuple(
        OffsetToCommit(
            one.partition_index,
            one.committed_offset,
            one.committed_leader_epoch,
            one.committed_metadata or "",
        )
        for one in topic.partitions
    )
    return TopicOffsets(*found, offsets)


def topic_rows(
    topics: Iterable[Struct], chosen: Iterable[object], answers: Iterable[TopicErrors]
) -> list[dict[str, object]]:
    """Return one row for each topic of the request, in its order; ``answers`` are those of the
    topics that were committed.
    """
    rest = iter(answers)
    rows = []
    for topic, choice in zip(topics, chosen, strict=True):
        if isinstance(choice, ErrorCode):
            errors = [(one.partition_index, choice) for one in topic.partitions]
        else:
            errors = [*next(rest).partitions]
        partitions = [
            {"partition_index": partition, "error_code": int(error_code)}
            for partition, error_code in errors
        ]
        rows.append({**topic_key(topic), "partitions": partitions})
    return rows


def topic_key(topic: Struct) -> dict[str, object]:
    """Return the request's name or id of a topic: the answer uses the same."""
    return {key: getattr(topic, key) for key in ("name", "topic_id") if hasattr(topic, key)}
