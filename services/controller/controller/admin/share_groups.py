"""Share groups: members, windows of records in flight, and moves of start offsets."""

from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from typing import Literal

from pydantic import Field
from tidemark.client.admin.share_types import ShareGroupDescription
from tidemark.client.errors import ClientError
from tidemark.client.share.share_views import ShareLag, ShareRange, ShareViews
from tidemark.model.authorization import Operation, group_resource
from tidemark.model.topics import TopicPartition
from tidemark.plans.group_lag import Bounds
from tidemark.plans.offset_reset import Goal, Target, plan, timestamp_for

from controller.admin import topics
from controller.admin.broker_calls import CLIENT_ID
from controller.admin.context import AdminContext
from controller.admin.errors import bad_value, conflict, from_cluster, try_again
from controller.admin.groups import GoalName, GroupView, OffsetMove, ResetResult, list_groups
from controller.admin.models import ItemProblem, Model, PartitionName

SHARE = "share"
RANGES_MAX = 1_000

GOALS: Mapping[GoalName, Goal] = {
    "earliest": Goal.EARLIEST,
    "latest": Goal.LATEST,
    "offset": Goal.OFFSET,
    "shift": Goal.SHIFT,
    "timestamp": Goal.TIME,
}


class ShareMember(Model):
    """Member of a share group. Several members may have the same partition."""

    member_id: str = Field(examples=["5b3c1c6e"])
    client_id: str = Field(examples=["worker-1"])
    host: str = Field(examples=["/127.0.0.1"])
    rack: str | None = Field(examples=[None])
    member_epoch: int = Field(examples=[3])
    topics: list[str] = Field(examples=[["orders"]])
    partitions: list[PartitionName]


class SharePartition(PartitionName):
    """Progress of a share group in one partition."""

    start_offset: int | None = Field(
        description="records before it are complete; null: no member has read it", examples=[90]
    )
    leader_epoch: int = Field(examples=[2])
    lag: int | None = Field(
        description="records whose delivery is not complete; null: unknown", examples=[30]
    )
    members: int = Field(description="members that have the partition", examples=[2])


class ShareGroupDetail(Model):
    """Share group with its members and partitions."""

    group_id: str = Field(examples=["workers"])
    state: str = Field(examples=["Stable"])
    assignor: str = Field(examples=["simple"])
    group_epoch: int = Field(examples=[7])
    assignment_epoch: int = Field(examples=[7])
    members: list[ShareMember]
    partitions: list[SharePartition]
    total_lag: int | None = Field(description="sum of the known lags", examples=[30])
    can_reset: bool = Field(description="true if it has no members", examples=[True])


class WindowRange(Model):
    """Consecutive records of one state, first to last, inclusive."""

    first_offset: int = Field(examples=[90])
    last_offset: int = Field(examples=[94])
    state: Literal["available", "acquired", "acknowledged", "archiving", "archived"]
    delivery_count: int = Field(examples=[1])
    member_id: str | None = Field(description="holder of the lock", examples=[None])
    lock_left_ms: int | None = Field(examples=[None])
    next_state: str | None = Field(
        description="state once the acknowledgement that is being written is stored"
    )
    delay_left_ms: int | None = Field(description="time until it is delivered again")
    producer_id: int | None = Field(
        description="producer whose open transaction holds the acknowledgement"
    )


class ShareWindowView(PartitionName):
    """Records in flight of one share-partition (SPSO to SPEO), with their counts."""

    group_id: str = Field(examples=["workers"])
    start_offset: int | None = Field(examples=[90])
    end_offset: int = Field(examples=[120])
    available: int
    acquired: int
    acknowledged: int
    archiving: int
    archived: int
    behind: int = Field(description="readable records that were never delivered")
    lag: int = Field(description="records whose delivery is not complete")
    oldest_age_ms: int | None = Field(description="age of the oldest incomplete record")
    ranges: list[WindowRange]
    complete: bool = Field(description=f"false if only {RANGES_MAX} ranges are shown")


async def list_share_groups(ctx: AdminContext) -> tuple[list[GroupView], list[ItemProblem]]:
    """Return all share groups by id, and the brokers that did not answer."""
    found, problems = await list_groups(ctx)
    return [one for one in found if one.kind == SHARE], problems


async def get_share_group(ctx: AdminContext, group_id: str) -> ShareGroupDetail:
    """Return a share group with topics that the caller may describe. Raises AdminError."""
    ctx.require(Operation.DESCRIBE, group_resource(group_id))
    async with ctx.brokers.client() as admin:
        group = (await admin.describe_share_groups([group_id]))[group_id]
        offsets = await admin.list_share_group_offsets(group_id)
    named = {at.topic for at in offsets}
    for one in group.members:
        named.update(one.topics, (at.topic for at in one.assignment))
    seen = topics.seen(ctx, named)
    rows = [
        SharePartition(
            topic_name=at.topic,
            partition_id=at.partition,
            start_offset=one.start_offset,
            leader_epoch=one.leader_epoch,
            lag=one.lag,
            members=sum(at in member.assignment for member in group.members),
        )
        for at, one in sorted(offsets.items())
        if at.topic in seen
    ]
    lags = [row.lag for row in rows if row.lag is not None]
    return ShareGroupDetail(
        group_id=group_id,
        state=group.state,
        assignor=group.assignor,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        members=_members(group, seen),
        partitions=rows,
        total_lag=sum(lags) if lags else None,
        can_reset=group.is_quiet,
    )


async def check_delete(ctx: AdminContext, group_id: str) -> None:
    """Check that the caller may delete a share group, which exists. Raises AdminError."""
    ctx.require(Operation.DELETE, group_resource(group_id))
    await get_share_group(ctx, group_id)


def _members(group: ShareGroupDescription, seen: Collection[str]) -> list[ShareMember]:
    return [
        ShareMember(
            member_id=one.member_id,
            client_id=one.client_id,
            host=one.host,
            rack=one.rack,
            member_epoch=one.member_epoch,
            topics=[name for name in one.topics if name in seen],
            partitions=[
                PartitionName(topic_name=at.topic, partition_id=at.partition)
                for at in one.assignment
                if at.topic in seen
            ],
        )
        for one in group.members
    ]


async def browse(
    ctx: AdminContext,
    group_id: str,
    topic: str,
    partition: int,
    *,
    first_offset: int = 0,
    last_offset: int | None = None,
) -> ShareWindowView:
    """Return the records in flight of one share-partition; takes no locks. Raises AdminError."""
    ctx.require(Operation.DESCRIBE, group_resource(group_id))
    topics.require_partition(ctx, topic, partition)
    at = TopicPartition(topic, partition)
    async with ctx.brokers.client() as admin:
        await admin.describe_share_groups([group_id])
    async with share_views(ctx) as views:
        window = await views.browse(
            group_id, at, first_offset=first_offset, last_offset=last_offset
        )
        lag = await views.lag(group_id, at)
    return ShareWindowView(
        topic_name=topic,
        partition_id=partition,
        group_id=group_id,
        start_offset=window.start_offset,
        end_offset=window.end_offset,
        **_counts(lag),
        lag=lag.lag,
        oldest_age_ms=lag.oldest_age_ms,
        ranges=[_range(one) for one in window.ranges[:RANGES_MAX]],
        complete=len(window.ranges) <= RANGES_MAX,
    )


@asynccontextmanager
async def share_views(ctx: AdminContext) -> AsyncIterator[ShareViews]:
    """Yield a client for the records in flight. Raises AdminError for the client's errors."""
    try:
        async with ShareViews(
            ctx.brokers.grpc_bootstrap(),
            client_id=CLIENT_ID,
            request_timeout_ms=ctx.brokers.timeout_ms,
            default_api_timeout_ms=ctx.brokers.change_ms,
            unknown_topic_grace_ms=1,
            **ctx.brokers.grpc_security,
        ) as views:
            yield views
    except ClientError as problem:
        raise from_cluster(problem) from None


def _counts(lag: ShareLag) -> dict[str, int]:
    return {
        "available": lag.available,
        "acquired": lag.acquired,
        "acknowledged": lag.acknowledged,
        "archiving": lag.archiving,
        "archived": lag.archived,
        "behind": lag.behind,
    }


def _range(one: ShareRange) -> WindowRange:
    return WindowRange.model_validate(one._asdict())


async def reset(
    ctx: AdminContext,
    group_id: str,
    goal: GoalName,
    number: int = 0,
    *,
    topic: str | None = None,
    dry_run: bool,
) -> ResetResult:
    """Move the start offsets of a share group without members, of one topic or of all that it has
    read. Records from there on are delivered again. Raises AdminError.
    """
    ctx.require(Operation.READ, group_resource(group_id))
    if goal == "offset" and number < 0:
        raise bad_value(f"the offset must be at least 0, not {number}", field="offset")
    async with ctx.brokers.client() as admin:
        group = (await admin.describe_share_groups([group_id]))[group_id]
        if not group.is_quiet:
            raise conflict(
                f"share group {group_id!r} has {len(group.members)} members",
                remedy="stop its members, and try again",
            )
        offsets = await admin.list_share_group_offsets(group_id)
        scope = sorted(offsets)
        if topic is not None:
            count = len(ctx.topic(topic).partitions)
            scope = [TopicPartition(topic, partition) for partition in range(count)]
        seen = topics.seen(ctx, [at.topic for at in scope])
        scope = [at for at in scope if at.topic in seen]
        topics.require_readable(ctx, [at.topic for at in scope])
        bounds = await _bounds(ctx, scope)
        target = Target(GOALS[goal], number)
        time = timestamp_for(target, ctx.shared.clock.wall_ms())
        found = {} if time is None else await admin.list_offsets(dict.fromkeys(bounds, time))
        starts = {at: one.start_offset for at, one in offsets.items()}
        moves = plan(
            target,
            {at: start for at, start in starts.items() if start is not None},
            bounds,
            {at: one.offset for at, one in found.items()},
        )
        if moves and not dry_run:
            await admin.alter_share_group_offsets(
                group_id, {move.partition: move.after for move in moves}
            )
    return ResetResult(
        group_id=group_id,
        dry_run=dry_run,
        moves=[
            OffsetMove(
                topic_name=move.partition.topic,
                partition_id=move.partition.partition,
                before=move.before,
                after=move.after,
            )
            for move in moves
        ],
    )


async def _bounds(ctx: AdminContext, scope: list[TopicPartition]) -> dict[TopicPartition, Bounds]:
    """Return the bounds of the logs that exist. Raises AdminError if a leader is late."""
    known = await topics.offsets(ctx, [(at.topic, at.partition) for at in scope])
    bounds: dict[TopicPartition, Bounds] = {}
    for key, row in known.items():
        start, end, stable = row.earliest_offset, row.latest_offset, row.last_stable_offset
        if start is None or end is None or stable is None:
            raise try_again(f"the offsets of {key[0]}-{key[1]} are not known: {row.problem}")
        bounds[TopicPartition(*key)] = Bounds(start, end, stable)
    return bounds
