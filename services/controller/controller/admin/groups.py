"""Consumer groups: members, lag with the reason where it is missing, and resets of offsets."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final, Literal

from pydantic import Field
from tidemark.client.admin.admin import Admin
from tidemark.client.admin.first_records import first_timestamps
from tidemark.client.admin.group_types import GroupDescription, GroupListing, MemberDescription
from tidemark.client.consumer.group_types import OffsetAndMetadata
from tidemark.client.errors import ClientError, GroupNotFoundError
from tidemark.kafka.apis import ApiKey
from tidemark.model.authorization import Operation, group_resource, topic_resource
from tidemark.model.topics import TopicPartition
from tidemark.plans.group_lag import Bounds, first_unread, lag_of, owners, time_lag_ms
from tidemark.plans.offset_reset import Goal, Target, plan, timestamp_for

from controller.admin import topics
from controller.admin.context import AdminContext
from controller.admin.errors import AdminError, bad_value, conflict, not_found
from controller.admin.models import ItemProblem, Model, PartitionName

OFFSETS_ONLY: Final = "Offsets only"
"""State of a group that has committed offsets and nothing else."""
SHARE: Final = "share"
_RECORDS_WAIT_MS: Final = 1_000

GoalName = Literal["earliest", "latest", "offset", "shift", "timestamp"]
_GOALS: Final[Mapping[GoalName, Goal]] = {
    "earliest": Goal.EARLIEST,
    "latest": Goal.LATEST,
    "offset": Goal.OFFSET,
    "shift": Goal.SHIFT,
    "timestamp": Goal.TIME,
}


class GroupView(Model):
    """One group of a listing."""

    group_id: str = Field(examples=["billing"])
    kind: str = Field(description="consumer, classic or share", examples=["consumer"])
    state: str = Field(examples=["Stable"])
    coordinator_id: int = Field(description="broker that coordinates it", examples=[1])


class MemberView(Model):
    """One member, with the partitions that it reads."""

    member_id: str = Field(examples=["consumer-1-5f2c"])
    instance_id: str | None = Field(examples=[None])
    client_id: str = Field(examples=["billing-1"])
    host: str = Field(examples=["/127.0.0.1"])
    protocol: str = Field(
        description="classic or consumer; a consumer group may have members of both",
        examples=["consumer"],
    )
    member_epoch: int | None = Field(description="null in a classic group", examples=[4])
    partitions: list[PartitionName]


class PartitionLag(PartitionName):
    """Progress of a group in one partition; null, with the reason, where a figure is missing."""

    committed_offset: int | None = Field(examples=[90])
    log_end_offset: int | None = Field(examples=[120])
    last_stable_offset: int | None = Field(examples=[110])
    lag: int | None = Field(description="records up to the end of the log", examples=[30])
    stable_lag: int | None = Field(
        description="records left for a read_committed consumer", examples=[20]
    )
    time_lag_ms: int | None = Field(
        description="age of the first record that is not committed", examples=[1500]
    )
    member_id: str | None = Field(examples=["consumer-1-5f2c"])
    client_id: str | None = Field(examples=["billing-1"])
    host: str | None = Field(examples=["/127.0.0.1"])
    reason: str | None = Field(description="reason why a figure is missing", examples=[None])


class GroupDetail(GroupView):
    """A group with its members and its lag."""

    assignor: str | None = Field(examples=["uniform"])
    group_epoch: int | None = Field(examples=[7])
    members: list[MemberView]
    partitions: list[PartitionLag]
    total_lag: int | None = Field(
        description="sum of the known lags; null if none is known", examples=[30]
    )
    can_reset: bool = Field(description="true if it has no members", examples=[True])


class OffsetMove(PartitionName):
    """Move of a committed offset."""

    before: int | None = Field(description="null without a committed offset", examples=[90])
    after: int = Field(examples=[0])


class ResetResult(Model):
    """Moves of a reset. ``dry_run``: nothing has been changed."""

    group_id: str = Field(examples=["billing"])
    dry_run: bool = Field(examples=[True])
    moves: list[OffsetMove]


async def list_groups(ctx: AdminContext) -> tuple[list[GroupView], list[ItemProblem]]:
    """Return all groups by id, share groups too, and the brokers that did not answer."""

    async def of_broker(broker_id: int) -> list[GroupView]:
        fields: dict[str, Any] = {"states_filter": [], "types_filter": []}
        answer = await ctx.brokers.ask(broker_id, ApiKey.LIST_GROUPS, fields)
        return [
            GroupView(
                group_id=each.group_id,
                kind=(each.group_type or "classic").lower(),
                state=each.group_state or "",
                coordinator_id=broker_id,
            )
            for each in answer.groups
        ]

    ids = [broker.broker_id for broker in ctx.brokers.live()]
    answers = await ctx.each(ids, lambda one: ctx.cached("groups", one, lambda: of_broker(one)))
    found: dict[str, GroupView] = {}
    problems: list[ItemProblem] = []
    for broker_id, answer in answers.items():
        reason = answer.message if isinstance(answer, AdminError) else answer.problem
        if reason:
            problems.append(
                ItemProblem(item=f"broker {broker_id}", error_code=50003, message=reason)
            )
        if not isinstance(answer, AdminError):
            found |= {one.group_id: one for one in answer.value or ()}
    names = sorted(found)
    if not ctx.may(Operation.DESCRIBE):
        names = ctx.visible(names, group_resource)
    return [found[name] for name in names], problems


async def get_group(ctx: AdminContext, group_id: str) -> GroupDetail:
    """Return a group with its lag in topics that the caller may describe. Raises AdminError."""
    ctx.require(Operation.DESCRIBE, group_resource(group_id))
    async with ctx.brokers.client() as admin:
        group = await _group_or_none(admin, group_id)
        committed = await admin.list_group_offsets(group_id)
    if group is None and not committed:
        raise not_found(f"there is no group {group_id!r}", field="consumer_group_id")
    readers = owners(group)
    partitions = sorted({*committed, *readers})
    seen = topics.seen(ctx, [at.topic for at in partitions])
    partitions = [at for at in partitions if at.topic in seen]
    committed = {at: one for at, one in committed.items() if at.topic in seen}
    bounds, reasons = await _bounds(ctx, partitions)
    times = await _times(ctx, committed, bounds)
    rows = [
        _lag_row(at, committed.get(at), bounds.get(at), readers.get(at), reasons.get(at), times)
        for at in partitions
    ]
    lags = [row.lag for row in rows if row.lag is not None]
    return GroupDetail(
        group_id=group_id,
        kind="" if group is None else group.kind.lower(),
        state=OFFSETS_ONLY if group is None else group.state,
        coordinator_id=-1,
        assignor=None if group is None else group.assignor or None,
        group_epoch=None if group is None or group.epoch < 0 else group.epoch,
        members=[_member(one, seen) for one in (() if group is None else group.members)],
        partitions=rows,
        total_lag=sum(lags) if lags else None,
        can_reset=group is None or group.is_quiet,
    )


async def _group_or_none(admin: Admin, group_id: str) -> GroupDescription | None:
    """Return a group; None if it has only offsets, or does not exist."""
    try:
        return (await admin.describe_groups([group_id]))[group_id]
    except GroupNotFoundError:
        return None


def check_type(listed: Iterable[GroupListing], group_id: str) -> None:
    """Raise AdminError if a share group has the id: its offsets are not those of consumers."""
    if any(one.group_id == group_id and one.kind == "share" for one in listed):
        raise conflict(f"{group_id!r} is a share group", remedy="reset it as a share group")


async def _bounds(
    ctx: AdminContext, partitions: Sequence[TopicPartition]
) -> tuple[dict[TopicPartition, Bounds], dict[TopicPartition, str]]:
    """Return the bounds of logs, and the reason for each partition that has none."""
    existing = [at for at in partitions if _exists(ctx, at)]
    known = await topics.offsets(ctx, [(at.topic, at.partition) for at in existing])
    bounds: dict[TopicPartition, Bounds] = {}
    reasons = {at: "the partition no longer exists" for at in partitions if at not in existing}
    for at in existing:
        row = known[at.topic, at.partition]
        start, end, stable = row.earliest_offset, row.latest_offset, row.last_stable_offset
        if start is None or end is None or stable is None:
            reasons[at] = row.problem or "its leader did not report it"
        else:
            bounds[at] = Bounds(start, end, stable)
    return bounds, reasons


def _exists(ctx: AdminContext, at: TopicPartition) -> bool:
    topic = ctx.image.topics.get(at.topic)
    return topic is not None and at.partition < len(topic.partitions)


async def _times(
    ctx: AdminContext,
    committed: Mapping[TopicPartition, OffsetAndMetadata],
    bounds: Mapping[TopicPartition, Bounds],
) -> dict[TopicPartition, int | None]:
    """Return the age of the first uncommitted record by partition, None where it is not known."""
    unread = first_unread(committed, bounds, stable=False)
    try:
        found = await first_timestamps(
            ",".join(ctx.brokers.bootstrap()),
            unread,
            isolation="read_uncommitted",
            wait_ms=_RECORDS_WAIT_MS,
            settings=ctx.brokers.kafka_security,
        )
    except ClientError:
        found = {}
    now_ms = ctx.shared.clock.wall_ms()
    return {at: time_lag_ms(at, unread, found, now_ms) for at in bounds}


def _lag_row(
    at: TopicPartition,
    committed: OffsetAndMetadata | None,
    bounds: Bounds | None,
    member: MemberDescription | None,
    reason: str | None,
    times: Mapping[TopicPartition, int | None],
) -> PartitionLag:
    offset = None if committed is None else committed.offset
    time_lag = times.get(at) if offset is not None else None
    if offset is None and reason is None:
        reason = "the group has not committed an offset here yet"
    elif bounds is not None and offset is not None and offset < bounds.start:
        reason = f"its position {offset} is before the start of the log, {bounds.start}"
    elif time_lag is None and reason is None:
        reason = "the time of the first unread record could not be read in time"
    return PartitionLag(
        topic_name=at.topic,
        partition_id=at.partition,
        committed_offset=offset,
        log_end_offset=None if bounds is None else bounds.end,
        last_stable_offset=None if bounds is None else bounds.last_stable,
        lag=None if bounds is None else lag_of(offset, bounds.end),
        stable_lag=None if bounds is None else lag_of(offset, bounds.last_stable),
        time_lag_ms=time_lag,
        member_id=None if member is None else member.member_id,
        client_id=None if member is None else member.client_id,
        host=None if member is None else member.host,
        reason=reason,
    )


def _member(one: MemberDescription, seen: Collection[str]) -> MemberView:
    return MemberView(
        member_id=one.member_id,
        instance_id=one.group_instance_id,
        client_id=one.client_id,
        host=one.host,
        protocol=one.protocol,
        member_epoch=one.member_epoch if one.member_epoch >= 0 else None,
        partitions=[
            PartitionName(topic_name=at.topic, partition_id=at.partition)
            for at in one.assignment
            if at.topic in seen
        ],
    )


async def reset(
    ctx: AdminContext,
    group_id: str,
    goal: GoalName,
    number: int = 0,
    *,
    topic: str | None = None,
    dry_run: bool,
) -> ResetResult:
    """Move a group's offsets, of one topic or of all that it has committed. ``number`` is the
    offset, the shift in records, or ms since 1970. Refused while it has members. Raises AdminError.
    """
    ctx.require(Operation.READ, group_resource(group_id))
    if topic is not None:
        ctx.require(Operation.READ, topic_resource(topic))
    if goal == "offset" and number < 0:
        raise bad_value(f"the offset must be at least 0, not {number}", field="offset")
    async with ctx.brokers.client() as admin:
        group = await _group_or_none(admin, group_id)
        if group is not None and not group.is_quiet:
            raise conflict(
                f"group {group_id!r} has {len(group.members)} members and is {group.state}",
                remedy="stop its members, and try again",
            )
        committed = await admin.list_group_offsets(group_id)
        if group is None and not committed:
            check_type(await admin.list_groups(), group_id)
        scope = sorted(committed) if topic is None else _all_of(ctx, topic)
        seen = topics.seen(ctx, [at.topic for at in scope])
        scope = [at for at in scope if at.topic in seen]
        topics.require_readable(ctx, [at.topic for at in scope if _exists(ctx, at)])
        bounds, reasons = await _bounds(ctx, scope)
        late = [at for at in reasons if _exists(ctx, at)]
        if late:
            raise _late(late[0], reasons[late[0]])
        target = Target(_GOALS[goal], number)
        time = timestamp_for(target, ctx.shared.clock.wall_ms())
        found = {} if time is None else await admin.list_offsets(dict.fromkeys(bounds, time))
        moves = plan(
            target,
            {at: one.offset for at, one in committed.items()},
            bounds,
            {at: one.offset for at, one in found.items()},
        )
        if moves and not dry_run:
            await admin.alter_group_offsets(
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


def _late(at: TopicPartition, reason: str) -> AdminError:
    """Return the error for a partition whose offsets are needed and not known."""
    return AdminError(503, 50003, f"the offsets of {at} are not known: {reason}")


def _all_of(ctx: AdminContext, topic: str) -> list[TopicPartition]:
    return [TopicPartition(topic, one.partition) for one in ctx.topic(topic).partitions]


async def check_delete(ctx: AdminContext, group_id: str) -> None:
    """Check that the caller may delete a group, which exists. Raises AdminError."""
    ctx.require(Operation.DELETE, group_resource(group_id))
    await get_group(ctx, group_id)


async def delete(ctx: AdminContext, group_id: str, *, is_share: bool = False) -> None:
    """Delete a group without members, with its offsets, or a share group with its state. A group of
    another type is not deleted as a share group. Raises AdminError.
    """
    ctx.require(Operation.DELETE, group_resource(group_id))
    async with ctx.brokers.client() as admin:
        if is_share:
            await admin.describe_share_groups([group_id])
        await admin.delete_groups([group_id])
    for broker in ctx.brokers.live():
        ctx.shared.answers.forget(("groups", broker.broker_id))
