"""Consumer groups: Confluent's paths, and resets of offsets."""

from typing import Annotated, Literal

from fastapi import Query, Request, Response
from pydantic import Field

from controller.admin import group_offsets
from controller.admin import groups as admin
from controller.admin.errors import not_found
from controller.admin.group_offsets import ResetRequest
from controller.admin.models import ItemProblem
from controller.admin.paging import page
from controller.rest.changing import changed_or_checked, without_content
from controller.rest.idempotent import IdempotencyKey, IdempotentRoute
from controller.rest.problems import CHANGES, RESPONSES
from controller.rest.shapes import (
    PAGE_SIZE_DEFAULT,
    Collection,
    Ctx,
    Cursor,
    GroupId,
    Here,
    Links,
    Name,
    PageSize,
    PartitionId,
    Relationship,
    Resource,
    TopicName,
    cluster_router,
)

router = cluster_router("Consumer groups", {**RESPONSES, **CHANGES}, route_class=IdempotentRoute)

_STATES = {
    "Stable": "STABLE",
    "PreparingRebalance": "PREPARING_REBALANCE",
    "CompletingRebalance": "COMPLETING_REBALANCE",
    "Empty": "EMPTY",
    "Dead": "DEAD",
    "Assigning": "ASSIGNING",
    "Reconciling": "RECONCILING",
}


class GroupData(Resource):
    """Consumer group as Confluent's REST shows it."""

    kind: Literal["KafkaConsumerGroup"] = "KafkaConsumerGroup"
    cluster_id: str
    consumer_group_id: str = Field(examples=["billing"])
    is_simple: bool = Field(description="true if it has committed offsets and no members ever")
    partition_assignor: str = Field(examples=["uniform"])
    state: str = Field(examples=["STABLE"])
    type: str = Field(examples=["CONSUMER"])
    is_mixed_consumer_group: bool = False
    coordinator: Relationship | None
    consumers: Relationship
    lag_summary: Relationship
    lags: Relationship


class GroupDataList(Collection[GroupData]):
    """Page of consumer groups, by id."""

    kind: Literal["KafkaConsumerGroupList"] = "KafkaConsumerGroupList"
    total: int = Field(examples=[3])
    problems: list[ItemProblem] = Field(description="brokers that did not answer in time")


class ConsumerData(Resource):
    """Member of a group."""

    kind: Literal["KafkaConsumer"] = "KafkaConsumer"
    cluster_id: str
    consumer_group_id: str
    consumer_id: str
    instance_id: str | None
    client_id: str
    host: str
    protocol: str
    member_epoch: int | None
    assignments: Relationship


class ConsumerDataList(Collection[ConsumerData]):
    """Members of a group."""

    kind: Literal["KafkaConsumerList"] = "KafkaConsumerList"


class AssignmentData(Resource):
    """Partition of a member."""

    kind: Literal["KafkaConsumerAssignment"] = "KafkaConsumerAssignment"
    cluster_id: str
    consumer_group_id: str
    consumer_id: str
    topic_name: str
    partition_id: int
    partition: Relationship
    lag: Relationship


class AssignmentDataList(Collection[AssignmentData]):
    """Partitions of a member."""

    kind: Literal["KafkaConsumerAssignmentList"] = "KafkaConsumerAssignmentList"


class LagData(Resource):
    """Progress of a group in one partition; null, with the reason, where a figure is missing."""

    kind: Literal["KafkaConsumerLag"] = "KafkaConsumerLag"
    cluster_id: str
    consumer_group_id: str
    topic_name: str = Field(examples=["orders"])
    partition_id: int = Field(examples=[0])
    current_offset: int | None = Field(examples=[90])
    log_end_offset: int | None = Field(examples=[120])
    last_stable_offset: int | None = Field(examples=[110])
    lag: int | None = Field(examples=[30])
    stable_lag: int | None = Field(description="for read_committed", examples=[20])
    time_lag_ms: int | None = Field(description="age of the first unread record", examples=[900])
    consumer_id: str | None
    instance_id: str | None
    client_id: str | None
    reason: str | None = Field(description="reason why a figure is missing")


class LagDataList(Collection[LagData]):
    """Progress of a group in all its partitions."""

    kind: Literal["KafkaConsumerLagList"] = "KafkaConsumerLagList"


class LagSummaryData(Resource):
    """Largest lag of a group and the sum of all. Null where no lag is known."""

    kind: Literal["KafkaConsumerGroupLagSummary"] = "KafkaConsumerGroupLagSummary"
    cluster_id: str
    consumer_group_id: str
    max_lag_consumer_id: str | None
    max_lag_instance_id: str | None
    max_lag_client_id: str | None
    max_lag_topic_name: str | None
    max_lag_partition_id: int | None
    max_lag: int | None
    total_lag: int | None
    max_lag_consumer: Relationship | None
    max_lag_partition: Relationship | None


class ResetData(admin.ResetResult, Resource):
    """Moves of a reset; with `dry_run` nothing was changed."""

    kind: Literal["TidemarkOffsetReset"] = "TidemarkOffsetReset"
    cluster_id: str


def _group(
    here: Links, group_id: str, *, state: str, kind: str, assignor: str, coordinator: int
) -> GroupData:
    at = ("consumer-groups", group_id)
    return GroupData(
        metadata=here.about(*at, consumer_group=group_id),
        cluster_id=here.cluster_id,
        consumer_group_id=group_id,
        is_simple=state == admin.OFFSETS_ONLY,
        partition_assignor=assignor,
        state=_STATES.get(state, "UNKNOWN" if state != admin.OFFSETS_ONLY else "EMPTY"),
        type=kind.upper() or "CLASSIC",
        coordinator=None if coordinator < 0 else here.to("brokers", coordinator),
        consumers=here.to(*at, "consumers"),
        lag_summary=here.to(*at, "lag-summary"),
        lags=here.to(*at, "lags"),
    )


@router.get("/consumer-groups", operation_id="listKafkaConsumerGroups")
async def list_groups(
    request: Request,
    ctx: Ctx,
    here: Here,
    cursor: Cursor = None,
    page_size: PageSize = PAGE_SIZE_DEFAULT,
    search: Annotated[str, Query(max_length=255, description="part of the id")] = "",
) -> GroupDataList:
    """Return consumer groups by id, page by page. A broker that is late is in `problems`."""
    listed, problems = await admin.list_groups(ctx)
    known = {
        one.group_id: one
        for one in listed
        if one.kind != admin.SHARE and search.lower() in one.group_id.lower()
    }
    found = page(sorted(known), cursor, page_size)
    data = [
        _group(
            here,
            name,
            state=known[name].state,
            kind=known[name].kind,
            assignor="",
            coordinator=known[name].coordinator_id,
        )
        for name in found.keys
    ]
    return GroupDataList(
        metadata=here.listing(found.cursor, request),
        data=data,
        total=found.total,
        problems=problems,
    )


@router.get("/consumer-groups/{consumer_group_id}", operation_id="getKafkaConsumerGroup")
async def get_group(ctx: Ctx, here: Here, consumer_group_id: GroupId) -> GroupData:
    """Return one consumer group."""
    found = await admin.get_group(ctx, consumer_group_id)
    return _group(
        here,
        consumer_group_id,
        state=found.state,
        kind=found.kind,
        assignor=found.assignor or "",
        coordinator=found.coordinator_id,
    )


@without_content(router.delete, "/consumer-groups/{consumer_group_id}", "deleteKafkaConsumerGroup")
async def delete_group(
    ctx: Ctx,
    consumer_group_id: GroupId,
    dry_run: Annotated[bool, Query(description="check, and change nothing")] = False,  # noqa: FBT002
) -> Response:
    """Delete a group without members, with its offsets."""
    return await changed_or_checked(
        lambda: admin.delete(ctx, consumer_group_id),
        lambda: admin.check_delete(ctx, consumer_group_id),
        dry_run=dry_run,
    )


@router.get("/consumer-groups/{consumer_group_id}/consumers", operation_id="listKafkaConsumers")
async def list_consumers(ctx: Ctx, here: Here, consumer_group_id: GroupId) -> ConsumerDataList:
    """Return the members of a group."""
    found = await admin.get_group(ctx, consumer_group_id)
    data = [_consumer(here, consumer_group_id, one) for one in found.members]
    return ConsumerDataList(metadata=here.listing(), data=data)


ConsumerId = Name


@router.get(
    "/consumer-groups/{consumer_group_id}/consumers/{consumer_id}",
    operation_id="getKafkaConsumer",
)
async def get_consumer(
    ctx: Ctx, here: Here, consumer_group_id: GroupId, consumer_id: ConsumerId
) -> ConsumerData:
    """Return one member of a group."""
    member = await _member(ctx, consumer_group_id, consumer_id)
    return _consumer(here, consumer_group_id, member)


async def _member(ctx: Ctx, group_id: str, consumer_id: str) -> admin.MemberView:
    for one in (await admin.get_group(ctx, group_id)).members:
        if one.member_id == consumer_id:
            return one
    raise not_found(f"group {group_id!r} has no member {consumer_id!r}", field="consumer_id")


def _consumer(here: Links, group_id: str, one: admin.MemberView) -> ConsumerData:
    at = ("consumer-groups", group_id, "consumers", one.member_id)
    return ConsumerData(
        metadata=here.about(*at, consumer_group=group_id, consumer=one.member_id),
        cluster_id=here.cluster_id,
        consumer_group_id=group_id,
        consumer_id=one.member_id,
        instance_id=one.instance_id,
        client_id=one.client_id,
        host=one.host,
        protocol=one.protocol,
        member_epoch=one.member_epoch,
        assignments=here.to(*at, "assignments"),
    )


@router.get(
    "/consumer-groups/{consumer_group_id}/consumers/{consumer_id}/assignments",
    operation_id="listKafkaConsumerAssignment",
)
async def list_assignments(
    ctx: Ctx, here: Here, consumer_group_id: GroupId, consumer_id: ConsumerId
) -> AssignmentDataList:
    """Return the partitions of a member."""
    member = await _member(ctx, consumer_group_id, consumer_id)
    data = [
        AssignmentData(
            metadata=here.about(
                "consumer-groups",
                consumer_group_id,
                "consumers",
                consumer_id,
                "assignments",
                one.topic_name,
                "partitions",
                one.partition_id,
                consumer_group=consumer_group_id,
                consumer=consumer_id,
                topic=one.topic_name,
                partition=one.partition_id,
            ),
            cluster_id=here.cluster_id,
            consumer_group_id=consumer_group_id,
            consumer_id=consumer_id,
            topic_name=one.topic_name,
            partition_id=one.partition_id,
            partition=here.to("topics", one.topic_name, "partitions", one.partition_id),
            lag=here.to(
                "consumer-groups",
                consumer_group_id,
                "lags",
                one.topic_name,
                "partitions",
                one.partition_id,
            ),
        )
        for one in member.partitions
    ]
    return AssignmentDataList(metadata=here.listing(), data=data)


@router.get("/consumer-groups/{consumer_group_id}/lags", operation_id="listKafkaConsumerLags")
async def list_lags(ctx: Ctx, here: Here, consumer_group_id: GroupId) -> LagDataList:
    """Return the progress of a group in all its partitions."""
    found = await admin.get_group(ctx, consumer_group_id)
    data = [_lag(here, found, one) for one in found.partitions]
    return LagDataList(metadata=here.listing(), data=data)


@router.get(
    "/consumer-groups/{consumer_group_id}/lags/{topic_name}/partitions/{partition_id}",
    operation_id="getKafkaConsumerLag",
)
async def get_lag(
    ctx: Ctx,
    here: Here,
    consumer_group_id: GroupId,
    topic_name: TopicName,
    partition_id: PartitionId,
) -> LagData:
    """Return the progress of a group in one partition."""
    found = await admin.get_group(ctx, consumer_group_id)
    for one in found.partitions:
        if (one.topic_name, one.partition_id) == (topic_name, partition_id):
            return _lag(here, found, one)
    raise not_found(
        f"group {consumer_group_id!r} does not read {topic_name}-{partition_id}",
        field="partition_id",
    )


def _lag(here: Links, group: admin.GroupDetail, one: admin.PartitionLag) -> LagData:
    at = ("consumer-groups", group.group_id, "lags", one.topic_name)
    instances = {member.member_id: member.instance_id for member in group.members}
    return LagData(
        metadata=here.about(
            *at,
            "partitions",
            one.partition_id,
            consumer_group=group.group_id,
            lag=f"{one.topic_name}-{one.partition_id}",
        ),
        cluster_id=here.cluster_id,
        consumer_group_id=group.group_id,
        topic_name=one.topic_name,
        partition_id=one.partition_id,
        current_offset=one.committed_offset,
        log_end_offset=one.log_end_offset,
        last_stable_offset=one.last_stable_offset,
        lag=one.lag,
        stable_lag=one.stable_lag,
        time_lag_ms=one.time_lag_ms,
        consumer_id=one.member_id,
        instance_id=instances.get(one.member_id or ""),
        client_id=one.client_id,
        reason=one.reason,
    )


@router.get(
    "/consumer-groups/{consumer_group_id}/lag-summary",
    operation_id="getKafkaConsumerGroupLagSummary",
)
async def lag_summary(ctx: Ctx, here: Here, consumer_group_id: GroupId) -> LagSummaryData:
    """Return the largest lag of a group, and the sum of all."""
    found = await admin.get_group(ctx, consumer_group_id)
    largest = max(
        (one for one in found.partitions if one.lag is not None),
        key=lambda one: one.lag or 0,
        default=None,
    )
    row = None if largest is None else _lag(here, found, largest)
    at = ("consumer-groups", consumer_group_id)
    consumer = None if row is None else row.consumer_id
    return LagSummaryData(
        metadata=here.about(*at, "lag-summary", consumer_group=consumer_group_id),
        cluster_id=here.cluster_id,
        consumer_group_id=consumer_group_id,
        max_lag_consumer_id=consumer,
        max_lag_instance_id=None if row is None else row.instance_id,
        max_lag_client_id=None if row is None else row.client_id,
        max_lag_topic_name=None if row is None else row.topic_name,
        max_lag_partition_id=None if row is None else row.partition_id,
        max_lag=None if row is None else row.lag,
        total_lag=found.total_lag,
        max_lag_consumer=None if consumer is None else here.to(*at, "consumers", consumer),
        max_lag_partition=None
        if row is None
        else here.to("topics", row.topic_name, "partitions", row.partition_id),
    )


@router.post("/groups/{group_id}:reset-offsets", operation_id="resetGroupOffsets")
async def reset_offsets(  # a path, a body and its options
    ctx: Ctx,
    here: Here,
    group_id: GroupId,
    request: ResetRequest,
    dry_run: Annotated[bool, Query(description="show the moves, and change nothing")] = False,  # noqa: FBT002
    _: IdempotencyKey = None,
) -> ResetData:
    """Move the offsets of a group without members: to the start, the end, an offset, a time, by a
    number of records, or to the offsets of a CSV text (topic,partition,offset).
    """
    found = await group_offsets.reset(ctx, group_id, request, dry_run=dry_run)
    return ResetData(
        **found.model_dump(),
        metadata=here.about("consumer-groups", group_id, consumer_group=group_id),
        cluster_id=here.cluster_id,
    )
