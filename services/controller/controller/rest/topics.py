"""/v3/clusters/{cluster_id}/topics: topics, partitions, replicas and offsets (read side)."""

from typing import Annotated, Literal

from fastapi import Query, Request
from pydantic import Field

from controller.admin import topics as admin
from controller.admin.errors import not_found
from controller.rest.problems import RESPONSES
from controller.rest.shapes import (
    PAGE_SIZE_DEFAULT,
    BrokerIdPath,
    Collection,
    Ctx,
    Cursor,
    Here,
    Links,
    PageSize,
    PartitionId,
    Relationship,
    Resource,
    TopicName,
    cluster_router,
)

router = cluster_router("Topics", RESPONSES)


class TopicData(admin.TopicView, Resource):
    """Topic as Confluent's REST shows it, with what the image has."""

    kind: Literal["KafkaTopic"] = "KafkaTopic"
    cluster_id: str
    partitions: Relationship
    configs: Relationship
    partition_reassignments: Relationship
    figures: admin.TopicFigures | None = Field(
        default=None, description="records and bytes, if `figures=true`"
    )


class TopicDataList(Collection[TopicData]):
    """Page of topics, by name."""

    kind: Literal["KafkaTopicList"] = "KafkaTopicList"
    total: int = Field(description="topics of all pages", examples=[12])


class PartitionData(admin.PartitionView, Resource):
    """Partition as Confluent's REST shows it, with what the image has."""

    kind: Literal["KafkaPartition"] = "KafkaPartition"
    cluster_id: str
    leader: Relationship | None
    replicas: Relationship
    reassignment: Relationship


class PartitionDataList(Collection[PartitionData]):
    """Partitions of a topic, in order."""

    kind: Literal["KafkaPartitionList"] = "KafkaPartitionList"


class ReplicaData(Resource):
    """Replica as Confluent's REST shows it."""

    kind: Literal["KafkaReplica"] = "KafkaReplica"
    cluster_id: str
    topic_name: str
    partition_id: int
    broker_id: int
    is_leader: bool
    is_in_sync: bool
    broker: Relationship


class ReplicaDataList(Collection[ReplicaData]):
    """Replicas of a partition, preferred leader first."""

    kind: Literal["KafkaReplicaList"] = "KafkaReplicaList"


class OffsetData(admin.PartitionOffsets, Resource):
    """Bounds of a partition's log."""

    kind: Literal["KafkaPartitionWithOffsets"] = "KafkaPartitionWithOffsets"
    cluster_id: str


class OffsetDataList(Collection[OffsetData]):
    """Bounds of the logs of a topic's partitions."""

    kind: Literal["KafkaPartitionWithOffsetsList"] = "KafkaPartitionWithOffsetsList"


def topic_data(
    here: Links, view: admin.TopicView, figures: admin.TopicFigures | None = None
) -> TopicData:
    """Return the answer for one topic."""
    at = ("topics", view.topic_name)
    return TopicData(
        **view.model_dump(),
        metadata=here.about(*at, topic=view.topic_name),
        cluster_id=here.cluster_id,
        partitions=here.to(*at, "partitions"),
        configs=here.to(*at, "configs"),
        partition_reassignments=here.to(*at, "partitions", "-", "reassignment"),
        figures=figures,
    )


def partition_data(here: Links, view: admin.PartitionView) -> PartitionData:
    """Return the answer for one partition."""
    topic, number = view.topic_name, view.partition_id
    at = ("topics", topic, "partitions", number)
    leader = None if view.leader_id is None else here.to(*at, "replicas", view.leader_id)
    return PartitionData(
        **view.model_dump(),
        metadata=here.about(*at, topic=topic, partition=number),
        cluster_id=here.cluster_id,
        leader=leader,
        replicas=here.to(*at, "replicas"),
        reassignment=here.to(*at, "reassignment"),
    )


def _replica(here: Links, view: admin.PartitionView, broker_id: int) -> ReplicaData:
    topic, number = view.topic_name, view.partition_id
    return ReplicaData(
        metadata=here.about(
            "topics",
            topic,
            "partitions",
            number,
            "replicas",
            broker_id,
            topic=topic,
            partition=number,
            replica=broker_id,
        ),
        cluster_id=here.cluster_id,
        topic_name=topic,
        partition_id=number,
        broker_id=broker_id,
        is_leader=view.leader_id == broker_id,
        is_in_sync=broker_id in view.isr,
        broker=here.to("brokers", broker_id),
    )


@router.get("/topics", operation_id="listKafkaTopics")
async def list_topics(
    request: Request,
    ctx: Ctx,
    here: Here,
    cursor: Cursor = None,
    page_size: PageSize = PAGE_SIZE_DEFAULT,
    search: Annotated[
        str, Query(description="part of the name, without case", max_length=249)
    ] = "",
    internal: Annotated[bool, Query(description="with the internal topics")] = True,  # noqa: FBT002
    figures: Annotated[bool, Query(description="with records and bytes")] = False,  # noqa: FBT002
) -> TopicDataList:
    """Return topics by name, page by page."""
    found, views = await admin.list_topics(
        ctx, cursor=cursor, limit=page_size, search=search, internal=internal
    )
    known = await admin.figures(ctx, found.keys) if figures else {}
    return TopicDataList(
        metadata=here.listing(found.cursor, request),
        data=[topic_data(here, one, known.get(one.topic_name)) for one in views],
        total=found.total,
    )


@router.get("/topics/{topic_name}", operation_id="getKafkaTopic")
async def get_topic(ctx: Ctx, here: Here, topic_name: TopicName) -> TopicData:
    """Return one topic, with its records and bytes."""
    view = await admin.get_topic(ctx, topic_name)
    figures = await admin.figures(ctx, [topic_name])
    return topic_data(here, view, figures.get(topic_name))


@router.get("/topics/{topic_name}/partitions", operation_id="listKafkaPartitions")
async def list_partitions(ctx: Ctx, here: Here, topic_name: TopicName) -> PartitionDataList:
    """Return the partitions of a topic."""
    views = await admin.list_partitions(ctx, topic_name)
    return PartitionDataList(
        metadata=here.listing(), data=[partition_data(here, one) for one in views]
    )


@router.get("/topics/{topic_name}/partitions/-/offsets", operation_id="listKafkaPartitionOffsets")
async def list_offsets(ctx: Ctx, here: Here, topic_name: TopicName) -> OffsetDataList:
    """Return the bounds of the logs of all partitions; `problem` of those whose leader is late."""
    views = await admin.list_partitions(ctx, topic_name)
    found = await admin.offsets(ctx, [(topic_name, one.partition_id) for one in views])
    data = [_offset(here, found[key]) for key in sorted(found)]
    return OffsetDataList(metadata=here.listing(), data=data)


@router.get("/topics/{topic_name}/partitions/{partition_id}", operation_id="getKafkaPartition")
async def get_partition(
    ctx: Ctx, here: Here, topic_name: TopicName, partition_id: PartitionId
) -> PartitionData:
    """Return one partition."""
    return partition_data(here, await admin.get_partition(ctx, topic_name, partition_id))


@router.get(
    "/topics/{topic_name}/partitions/{partition_id}/offset",
    operation_id="getKafkaPartitionOffsets",
)
async def get_offset(
    ctx: Ctx, here: Here, topic_name: TopicName, partition_id: PartitionId
) -> OffsetData:
    """Return the bounds of a partition's log."""
    await admin.get_partition(ctx, topic_name, partition_id)
    found = await admin.offsets(ctx, [(topic_name, partition_id)])
    return _offset(here, found[topic_name, partition_id])


def _offset(here: Links, view: admin.PartitionOffsets) -> OffsetData:
    topic, number = view.topic_name, view.partition_id
    at = ("topics", topic, "partitions", number, "offset")
    return OffsetData(
        **view.model_dump(),
        metadata=here.about(*at, topic=topic, partition=number),
        cluster_id=here.cluster_id,
    )


@router.get(
    "/topics/{topic_name}/partitions/{partition_id}/replicas", operation_id="listKafkaReplicas"
)
async def list_replicas(
    ctx: Ctx, here: Here, topic_name: TopicName, partition_id: PartitionId
) -> ReplicaDataList:
    """Return the replicas of a partition, preferred leader first."""
    view = await admin.get_partition(ctx, topic_name, partition_id)
    data = [_replica(here, view, one) for one in view.replica_ids]
    return ReplicaDataList(metadata=here.listing(), data=data)


@router.get(
    "/topics/{topic_name}/partitions/{partition_id}/replicas/{broker_id}",
    operation_id="getKafkaReplica",
)
async def get_replica(
    ctx: Ctx, here: Here, topic_name: TopicName, partition_id: PartitionId, broker_id: BrokerIdPath
) -> ReplicaData:
    """Return one replica of a partition."""
    view = await admin.get_partition(ctx, topic_name, partition_id)
    if broker_id not in view.replica_ids:
        raise not_found(
            f"broker {broker_id} has no replica of {topic_name}-{partition_id}", field="broker_id"
        )
    return _replica(here, view, broker_id)
