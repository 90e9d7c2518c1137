"""Topics and partitions: the metadata image, offsets and sizes from leaders where wanted."""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Final

from pydantic import Field
from tidemark.client.errors import error_for
from tidemark.kafka.list_offsets import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from tidemark.model.authorization import Operation, topic_resource
from tidemark.model.ids import NO_BROKER
from tidemark.model.metadata import ClusterImage, PartitionImage, TopicImage
from tidemark.model.topics import INTERNAL_TOPICS, topic_id_text

from controller.admin.broker_calls import by_leader
from controller.admin.context import AdminContext
from controller.admin.errors import TRY_AGAIN, AdminError, from_cluster, unknown_topic
from controller.admin.log_sizes import PartitionKey, leader_sizes
from controller.admin.models import ItemProblem, Model, PartitionName
from controller.admin.paging import Page, page
from controller.admin.per_image import PerTopic, sorted_names

READ_COMMITTED: Final = 1


class TopicView(Model):
    """One topic."""

    topic_name: str = Field(examples=["orders"])
    topic_id: str = Field(
        description="as Kafka's tools print it: base64 of 16 bytes",
        examples=["C1wLXAtcC1wLXAtcC1wLXA"],
    )
    is_internal: bool = Field(examples=[False])
    replication_factor: int = Field(examples=[3])
    partitions_count: int = Field(examples=[6])
    leaderless_partitions: int = Field(examples=[0])
    under_replicated_partitions: int = Field(examples=[0])
    reassigning_partitions: int = Field(examples=[0])


class TopicFigures(Model):
    """Records and bytes of a topic; null, with the reason, where a leader did not answer."""

    topic_name: str = Field(examples=["orders"])
    records: int | None = Field(
        description="offsets between start and end of all partitions; compaction and markers"
        " leave fewer records",
        examples=[12_000],
    )
    size_bytes: int | None = Field(
        description="log of the leaders, without other replicas", examples=[3_000_000]
    )
    problems: list[ItemProblem]


class PartitionView(PartitionName):
    """One partition. ``leader_id`` is null if there is no leader."""

    leader_id: int | None = Field(examples=[1])
    leader_epoch: int = Field(examples=[3])
    replica_ids: list[int] = Field(description="preferred leader first", examples=[[1, 2, 3]])
    isr: list[int] = Field(examples=[[1, 2, 3]])
    elr: list[int] = Field(description="eligible leader replicas (KIP-966)", examples=[[]])
    last_known_leader_id: int | None = Field(examples=[None])
    adding_replicas: list[int] = Field(examples=[[]])
    removing_replicas: list[int] = Field(examples=[[]])
    state: str = Field(
        description="ok, under-replicated, under-min-isr or leaderless", examples=["ok"]
    )


class PartitionOffsets(PartitionName):
    """Bounds of a partition's log at its leader; null, with the reason, if it did not answer."""

    earliest_offset: int | None = Field(examples=[0])
    latest_offset: int | None = Field(description="high watermark, exclusive", examples=[4_000])
    last_stable_offset: int | None = Field(
        description="end for read_committed, exclusive", examples=[4_000]
    )
    size_bytes: int | None = Field(examples=[500_000])
    problem: str | None = Field(examples=[None])


# -- metadata


def is_internal(name: str) -> bool:
    """True for the topics that brokers and coordinators keep their state in."""
    return name in INTERNAL_TOPICS


def topic_names(ctx: AdminContext, *, search: str = "", internal: bool = True) -> Sequence[str]:
    """Return the sorted names of all topics whose name contains ``search``, without case."""
    names: Sequence[str] = sorted_names(ctx.image)
    if ctx.shared.access.enforced:
        names = ctx.visible(names, topic_resource)
    if search:
        low = search.lower()
        names = [name for name in names if low in name.lower()]
    return names if internal else [name for name in names if not is_internal(name)]


def seen(ctx: AdminContext, names: Iterable[str]) -> frozenset[str]:
    """Return those of the topics that the caller may describe: nothing is shown of the others."""
    return frozenset(ctx.visible(set(names), topic_resource))


def require_readable(ctx: AdminContext, names: Iterable[str]) -> None:
    """Raise AdminError unless the caller may read all these topics."""
    for name in sorted(set(names)):
        ctx.require(Operation.READ, topic_resource(name))


async def list_topics(
    ctx: AdminContext,
    *,
    cursor: str | None = None,
    limit: int = 100,
    search: str = "",
    internal: bool = True,
) -> tuple[Page[str], list[TopicView]]:
    """Return one page of topics, by name. Raises AdminError for a wrong cursor."""
    found = page(topic_names(ctx, search=search, internal=internal), cursor, limit)
    views = topic_views(ctx.image)
    return found, [views[name] for name in found.keys if name in views]


async def get_topic(ctx: AdminContext, name: str) -> TopicView:
    """Return one topic. Raises AdminError."""
    return topic_view(ctx.topic(name))


def topic_view(topic: TopicImage) -> TopicView:
    """Return the view of one topic."""
    parts = topic.partitions
    return TopicView(
        topic_name=topic.name,
        topic_id=topic_id_text(topic.topic_id),
        is_internal=is_internal(topic.name),
        replication_factor=max((len(one.replicas) for one in parts), default=0),
        partitions_count=len(parts),
        leaderless_partitions=sum(one.leader == NO_BROKER for one in parts),
        under_replicated_partitions=sum(len(one.isr) < len(one.replicas) for one in parts),
        reassigning_partitions=sum(one.is_reassigning for one in parts),
    )


topic_views: Final = PerTopic(topic_view)
"""Views of all topics of an image, by name."""


async def list_partitions(ctx: AdminContext, name: str) -> list[PartitionView]:
    """Return the partitions of a topic, in order. Raises AdminError."""
    topic = ctx.topic(name)
    min_isr = min_insync_replicas(ctx.image, topic)
    return [partition_view(topic.name, one, min_isr) for one in topic.partitions]


async def get_partition(ctx: AdminContext, name: str, partition: int) -> PartitionView:
    """Return one partition. Raises AdminError."""
    topic, found = require_partition(ctx, name, partition)
    return partition_view(topic.name, found, min_insync_replicas(ctx.image, topic))


def require_partition(
    ctx: AdminContext, name: str, partition: int
) -> tuple[TopicImage, PartitionImage]:
    """Return a topic and its partition of the image. Raises AdminError."""
    topic = ctx.topic(name)
    if not 0 <= partition < len(topic.partitions):
        raise unknown_topic(name, partition)
    return topic, topic.partitions[partition]


def min_insync_replicas(image: ClusterImage, topic: TopicImage) -> int:
    """Return min.insync.replicas of a topic, as far as topic and cluster set it; else 1."""
    value = topic.configs.get("min.insync.replicas")
    if value is None:
        value = image.broker_configs.get("", {}).get("min.insync.replicas", "1")
    return int(value) if value.isdigit() else 1


def partition_view(name: str, one: PartitionImage, min_isr: int) -> PartitionView:
    """Return the view of one partition."""
    return PartitionView(
        topic_name=name,
        partition_id=one.partition,
        leader_id=None if one.leader == NO_BROKER else one.leader,
        leader_epoch=one.leader_epoch,
        replica_ids=list(one.replicas),
        isr=list(one.isr),
        elr=list(one.elr),
        last_known_leader_id=None if one.last_known_leader == NO_BROKER else one.last_known_leader,
        adding_replicas=list(one.adding),
        removing_replicas=list(one.removing),
        state=_state(one, min_isr),
    )


def _state(one: PartitionImage, min_isr: int) -> str:
    if one.leader == NO_BROKER:
        return "leaderless"
    if len(one.isr) < min(min_isr, len(one.replicas)):
        return "under-min-isr"
    return "under-replicated" if len(one.isr) < len(one.replicas) else "ok"


# -- offsets and sizes


async def offsets(
    ctx: AdminContext, partitions: Iterable[PartitionKey]
) -> dict[PartitionKey, PartitionOffsets]:
    """Return the bounds of logs from their leaders; a leader that is late makes its own partitions
    lack them, and no others.
    """
    image = ctx.image
    wanted = by_leader(image, partitions)
    leaderless = wanted.pop(NO_BROKER, [])
    answers, sizes = await asyncio.gather(
        ctx.each(wanted, lambda leader: _bounds_at(ctx, leader, wanted[leader])),
        leader_sizes(ctx, wanted),
    )
    found = {each: _missing(each, "the partition has no leader") for each in leaderless}
    for leader, group in wanted.items():
        answer = answers[leader]
        for each in group:
            if isinstance(answer, AdminError):
                found[each] = _missing(each, answer.message)
                continue
            start, end, stable, problem = answer[each]
            found[each] = PartitionOffsets(
                topic_name=each[0],
                partition_id=each[1],
                earliest_offset=start,
                latest_offset=end,
                last_stable_offset=stable,
                size_bytes=sizes.get(each),
                problem=problem,
            )
    return found


def _missing(each: PartitionKey, why: str) -> PartitionOffsets:
    return PartitionOffsets(
        topic_name=each[0],
        partition_id=each[1],
        earliest_offset=None,
        latest_offset=None,
        last_stable_offset=None,
        size_bytes=None,
        problem=why,
    )


_Bounds = tuple[int | None, int | None, int | None, str | None]


async def _bounds_at(
    ctx: AdminContext, leader: int, group: Sequence[PartitionKey]
) -> dict[PartitionKey, _Bounds]:
    starts = await lookup_at(ctx, leader, group, EARLIEST_TIMESTAMP)
    ends = await lookup_at(ctx, leader, group, LATEST_TIMESTAMP)
    stable = await lookup_at(ctx, leader, group, LATEST_TIMESTAMP, isolation=READ_COMMITTED)
    found: dict[PartitionKey, _Bounds] = {}
    for each in group:
        parts = [
            answer.get(each, "the broker did not report it") for answer in (starts, ends, stable)
        ]
        problem = next((one for one in parts if isinstance(one, str)), None)
        numbers = [None if isinstance(one, str) else one for one in parts]
        found[each] = (numbers[0], numbers[1], numbers[2], problem)
    return found


async def lookup_at(
    ctx: AdminContext,
    leader: int,
    group: Iterable[PartitionKey],
    timestamp_ms: int,
    *,
    isolation: int = 0,
) -> dict[PartitionKey, int | str]:
    """Return the offset of a timestamp (or of EARLIEST_TIMESTAMP and such) of each partition at its
    leader, or the reason why there is none. -1: no record is late enough. Raises AdminError.
    """
    topics: dict[str, list[tuple[int, int]]] = {}
    for name, number in group:
        topics.setdefault(name, []).append((number, timestamp_ms))
    answer = await ctx.brokers.list_offsets(leader, topics, isolation=isolation)
    return {
        each: offset
        if not code
        else from_cluster(error_for(code, "listing offsets failed")).message
        for each, (code, offset) in answer.items()
    }


async def at_time(
    ctx: AdminContext, partitions: Iterable[PartitionKey], timestamp_ms: int
) -> dict[PartitionKey, int | str]:
    """Return the offset of the first record at a time or later (-1: there is none) of each
    partition, or the reason why it is missing.
    """
    wanted = by_leader(ctx.image, partitions)
    found: dict[PartitionKey, int | str] = dict.fromkeys(
        wanted.pop(NO_BROKER, []), "the partition has no leader"
    )
    answers = await ctx.each(
        wanted, lambda leader: lookup_at(ctx, leader, wanted[leader], timestamp_ms)
    )
    for leader, answer in answers.items():
        if isinstance(answer, AdminError):
            found |= dict.fromkeys(wanted[leader], answer.message)
        else:
            found |= answer
    return found


async def figures(ctx: AdminContext, names: Iterable[str]) -> dict[str, TopicFigures]:
    """Return records and bytes of some topics, for one page of a list."""
    topics = ctx.image.topics
    wanted = [name for name in names if name in topics]
    parts = [(name, one.partition) for name in wanted for one in topics[name].partitions]
    known = await offsets(ctx, parts)
    found: dict[str, TopicFigures] = {}
    for name in wanted:
        rows = [known[name, one.partition] for one in topics[name].partitions]
        found[name] = _figures(name, rows)
    return found


def _figures(name: str, rows: Sequence[PartitionOffsets]) -> TopicFigures:
    spans = [
        None
        if row.latest_offset is None or row.earliest_offset is None
        else row.latest_offset - row.earliest_offset
        for row in rows
    ]
    sizes = [row.size_bytes for row in rows]
    return TopicFigures(
        topic_name=name,
        records=_sum(spans),
        size_bytes=_sum(sizes),
        problems=[
            ItemProblem(
                item=f"{name}-{row.partition_id}", error_code=TRY_AGAIN, message=row.problem
            )
            for row in rows
            if row.problem is not None
        ],
    )


def _sum(numbers: Sequence[int | None]) -> int | None:
    known = [one for one in numbers if one is not None]
    return sum(known) if len(known) == len(numbers) else None
