"""Topics created, deleted, given partitions and purged."""

from typing import Annotated

from fastapi import Query, Response
from pydantic import Field
from tidemark.model.authorization import Operation, topic_resource

from controller.admin import topic_changes as admin
from controller.admin import topics as topics_admin
from controller.admin.models import Input
from controller.rest.changing import changed_or_checked, without_content
from controller.rest.idempotent import IdempotencyKey, IdempotentRoute
from controller.rest.problems import CHANGES, RESPONSES
from controller.rest.shapes import Ctx, Here, PartitionId, Shape, TopicName, cluster_router
from controller.rest.topics import TopicData, topic_data

router = cluster_router("Topics", {**RESPONSES, **CHANGES}, route_class=IdempotentRoute)

DryRun = Annotated[bool, Query(description="check and show, and change nothing")]


class PartitionCount(Input):
    """New number of partitions of a topic."""

    partitions_count: int = Field(ge=1, le=admin.PARTITIONS_MAX, examples=[12])


class RecordDeletion(Input):
    """Offset below which records are deleted; -1: all that are committed."""

    before_offset: int = Field(ge=-1, lt=2**63, examples=[100])


class RecordsDeleted(Shape):
    """First offset of a partition after a deletion."""

    topic_name: str = Field(examples=["orders"])
    partition_id: int = Field(examples=[0])
    earliest_offset: int = Field(examples=[100])


@router.post(
    "/topics",
    operation_id="createKafkaTopic",
    status_code=201,
    responses={200: {"model": TopicData, "description": "valid; nothing was created"}},
)
async def create_topic(
    ctx: Ctx,
    here: Here,
    response: Response,
    new: admin.NewTopicInput,
    dry_run: DryRun = False,  # noqa: FBT002
    _: IdempotencyKey = None,
) -> TopicData:
    """Create a topic. With `validate_only` or `dry_run`, check only."""
    created = await admin.create(ctx, new, dry_run=dry_run)
    if created.topic_id is None:
        response.status_code = 200
        return topic_data(here, _view(created))
    name = created.topic_name
    response.headers["location"] = here.url("topics", name)
    if not ctx.may(Operation.DESCRIBE, topic_resource(name)):
        return topic_data(here, _view(created))  # who may create it need not see it afterwards
    return topic_data(here, await topics_admin.get_topic(ctx, name))


def _view(created: admin.CreatedTopic) -> topics_admin.TopicView:
    return topics_admin.TopicView(
        topic_name=created.topic_name,
        topic_id=created.topic_id or "",
        is_internal=False,
        replication_factor=max(0, created.replication_factor),
        partitions_count=max(0, created.partitions_count),
        leaderless_partitions=0,
        under_replicated_partitions=0,
        reassigning_partitions=0,
    )


@without_content(router.delete, "/topics/{topic_name}", "deleteKafkaTopic")
async def delete_topic(
    ctx: Ctx,
    topic_name: TopicName,
    dry_run: DryRun = False,  # noqa: FBT002
) -> Response:
    """Delete a topic with its records."""
    return await changed_or_checked(
        lambda: admin.delete(ctx, topic_name),
        lambda: admin.check_delete(ctx, topic_name),
        dry_run=dry_run,
    )


@router.patch("/topics/{topic_name}", operation_id="updatePartitionCountKafkaTopic")
async def set_partition_count(
    ctx: Ctx,
    here: Here,
    topic_name: TopicName,
    count: PartitionCount,
    dry_run: DryRun = False,  # noqa: FBT002
) -> TopicData:
    """Give a topic more partitions; the number is the new total."""
    view = await admin.set_partitions(
        ctx, topic_name, count.partitions_count, validate_only=dry_run
    )
    return topic_data(here, view)


@router.post(
    "/topics/{topic_name}/partitions/{partition_id}:delete-records",
    operation_id="deleteKafkaRecords",
)
async def delete_records(
    ctx: Ctx,
    topic_name: TopicName,
    partition_id: PartitionId,
    deletion: RecordDeletion,
    dry_run: DryRun = False,  # noqa: FBT002
    _: IdempotencyKey = None,
) -> RecordsDeleted:
    """Delete the oldest records of a partition, of all its replicas."""
    before = {partition_id: deletion.before_offset}
    found = await admin.delete_records(ctx, topic_name, before, dry_run=dry_run)
    return RecordsDeleted(**found[0].model_dump())
