"""DescribeTopicPartitions (75, KIP-966): topics page by page, with the eligible leader replicas."""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from typing import Final, NamedTuple

from tidemark.kafka.long_tail import Struct
from tidemark.model.authorization import OPERATIONS_NOT_REQUESTED, Operation, topic_resource
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import NO_BROKER, NO_TOPIC_ID, BrokerId
from tidemark.model.metadata import ClusterImage, PartitionImage
from tidemark.model.topics import INTERNAL_TOPICS, topic_name_problem
from tidemark.runtime.metadata_cache import MetadataCache

from broker.shell.facts import BrokerFacts
from broker.shell.request_context import RequestContext

PARTITIONS_MAX: Final = 2_000
"""Most partitions in one answer, whatever a client requests (Kafka:
max.request.partition.size.limit).
"""


class Cursor(NamedTuple):
    """First partition of a page; topics are paged in the order of their names."""

    topic: str
    partition: int


class TopicPage(NamedTuple):
    """Part of one topic on the page: partitions [first, end)."""

    name: str
    first: int
    end: int


async def handle(
    facts: BrokerFacts, metadata: MetadataCache, request: Struct, context: RequestContext
) -> dict[str, object]:
    """Return one page; ``next_cursor`` is the beginning of the next one, and null on the last."""
    allowed, refused = _named(facts, metadata, request, context)
    cursor = None
    if request.cursor is not None:
        cursor = Cursor(request.cursor.topic_name, max(request.cursor.partition_index, 0))
    partitions_max = max(1, min(request.response_partition_limit, PARTITIONS_MAX))
    counts = {name: len(topic.partitions) for name, topic in metadata.image.topics.items()}
    pages, next_cursor = page(allowed, counts, cursor, partitions_max)
    topics = [_topic(facts, metadata, one, context) for one in pages]
    if cursor is None:  # reported once, on the first page
        topics += [_absent(name, ErrorCode.TOPIC_AUTHORIZATION_FAILED) for name in refused]
    return {
        "topics": topics,
        "next_cursor": None
        if next_cursor is None
        else {"topic_name": next_cursor.topic, "partition_index": next_cursor.partition},
    }


def page(
    names: Sequence[str],
    partition_counts: dict[str, int],
    cursor: Cursor | None,
    partitions_max: int,
) -> tuple[list[TopicPage], Cursor | None]:
    """Cut one page of at most ``partitions_max`` partitions out of ``names`` (sorted) from
    ``cursor`` on.

    A name without partitions (no such topic) is on the page with nothing of it. Also returns the
    beginning of the next page.
    """
    assert partitions_max > 0
    start = 0 if cursor is None else bisect.bisect_left(names, cursor.topic)
    pages: list[TopicPage] = []
    room = partitions_max
    for name in names[start:]:
        count = partition_counts.get(name, 0)
        first = cursor.partition if cursor is not None and cursor.topic == name else 0
        first = min(first, count)
        if room == 0:
            return pages, Cursor(name, first)
        end = min(count, first + room)
        pages.append(TopicPage(name, first, end))
        room -= end - first
        if end < count:
            return pages, Cursor(name, end)
    return pages, None


def _named(
    facts: BrokerFacts, metadata: MetadataCache, request: Struct, context: RequestContext
) -> tuple[list[str], list[str]]:
    """Return the sorted names that the caller may see, and those that it named and may not see; a
    request without names is for all topics.
    """
    asked = {topic.name for topic in request.topics} or set(metadata.image.topics)
    allowed = facts.authorizer.authorize if request.topics else facts.authorizer.sees
    may_see = {
        name
        for name in asked
        if allowed(context.requester, Operation.DESCRIBE, topic_resource(name))
    }
    return sorted(may_see), sorted(asked - may_see) if request.topics else []


def _topic(
    facts: BrokerFacts, metadata: MetadataCache, one: TopicPage, context: RequestContext
) -> dict[str, object]:
    topic = metadata.image.topics.get(one.name)
    if topic is None:
        valid = topic_name_problem(one.name) is None
        return _absent(
            one.name,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if valid else ErrorCode.INVALID_TOPIC_EXCEPTION,
        )
    return {
        "error_code": int(ErrorCode.NONE),
        "name": topic.name,
        "topic_id": topic.topic_id,
        "is_internal": topic.name in INTERNAL_TOPICS,
        "partitions": [
            _partition(metadata.image, partition, context.listener)
            for partition in topic.partitions[one.first : one.end]
        ],
        "topic_authorized_operations": facts.authorizer.authorized_operations(
            context.requester, topic_resource(topic.name)
        ),
    }


def _partition(image: ClusterImage, partition: PartitionImage, listener: str) -> dict[str, object]:
    leader = image.brokers.get(partition.leader)
    error_code = ErrorCode.NONE
    if leader is None or leader.fenced:
        error_code = ErrorCode.LEADER_NOT_AVAILABLE
    elif leader.endpoint(listener) is None:
        error_code = ErrorCode.LISTENER_NOT_FOUND
    last_known = partition.last_known_leader
    return {
        "error_code": int(error_code),
        "partition_index": partition.partition,
        "leader_id": int(partition.leader if error_code is ErrorCode.NONE else NO_BROKER),
        "leader_epoch": int(partition.leader_epoch),
        "replica_nodes": _ids(partition.replicas),
        "isr_nodes": _ids(partition.isr),
        "eligible_leader_replicas": _ids(partition.elr),
        "last_known_elr": [] if last_known == NO_BROKER else [int(last_known)],
        "offline_replicas": [
            int(replica)
            for replica in partition.replicas
            if replica not in image.brokers or image.brokers[replica].fenced
        ],
    }


def _ids(broker_ids: Sequence[BrokerId]) -> list[int]:
    return [int(broker_id) for broker_id in broker_ids]


def _absent(name: str, error_code: ErrorCode) -> dict[str, object]:
    return {
        "error_code": int(error_code),
        "name": name,
        "topic_id": NO_TOPIC_ID,
        "is_internal": False,
        "partitions": [],
        "topic_authorized_operations": OPERATIONS_NOT_REQUESTED,
    }
