"""Changes of topics and configurations: created, deleted, given partitions, configured, purged.

Every change is checked by the controller, and ``validate_only`` stops after the check.
"""

from collections.abc import Mapping, Sequence
from typing import Literal

from pydantic import Field
from tidemark.client.admin.types import AlterConfig, ConfigResource, NewTopic
from tidemark.model.authorization import (
    CLUSTER,
    Operation,
    topic_resource,
)
from tidemark.model.metadata import ClusterImage
from tidemark.model.topics import TopicPartition, topic_id_text, topic_name_problem

from controller.admin import configs, topics
from controller.admin.brokers import require_broker
from controller.admin.context import AdminContext
from controller.admin.errors import bad_value, changed, conflict
from controller.admin.models import Input, Model, PartitionName

PARTITIONS_MAX = 10_000
CHANGES_MAX = 1_000


class TopicConfigInput(Input):
    """Setting of a new topic."""

    name: str = Field(max_length=249, examples=["retention.ms"])
    value: str | None = Field(default=None, max_length=32_767, examples=["86400000"])


class NewTopicInput(Input):
    """Topic to create. Without counts those of the cluster hold."""

    topic_name: str = Field(max_length=249, examples=["orders"])
    partitions_count: int | None = Field(default=None, ge=1, le=PARTITIONS_MAX, examples=[6])
    replication_factor: int | None = Field(default=None, ge=1, le=32_767, examples=[3])
    replicas_assignments: dict[str, list[int]] | None = Field(
        default=None,
        description="replicas by partition, preferred leader first; in place of the counts",
        examples=[None],
    )
    configs: list[TopicConfigInput] = Field(default=[], max_length=CHANGES_MAX, examples=[[]])
    validate_only: bool = Field(default=False, description="check, and create nothing")


class ConfigChange(Input):
    """Change of one setting. APPEND and SUBTRACT apply to lists; DELETE restores the default."""

    name: str = Field(max_length=249, examples=["retention.ms"])
    value: str | None = Field(default=None, max_length=32_767, examples=["86400000"])
    operation: Literal["SET", "DELETE", "APPEND", "SUBTRACT"] = Field(
        default="SET", examples=["SET"]
    )


class DeletedRecords(PartitionName):
    """First offset of a partition after its older records were deleted."""

    earliest_offset: int = Field(examples=[100])


class CreatedTopic(Model):
    """Topic that was created, or could be."""

    topic_name: str
    topic_id: str | None
    partitions_count: int
    replication_factor: int


async def create(ctx: AdminContext, new: NewTopicInput, *, dry_run: bool = False) -> CreatedTopic:
    """Create a topic. Raises AdminError."""
    name = new.topic_name
    problem = topic_name_problem(name)
    if problem is not None:
        raise bad_value(problem, field="topic_name", remedy="use letters, digits, '.', '_' and '-'")
    on_cluster = ctx.may(Operation.CREATE, CLUSTER)
    ctx.require(Operation.CREATE, CLUSTER if on_cluster else topic_resource(name))
    if name in ctx.image.topics:
        raise bad_value(
            f"topic {name!r} already exists", field="topic_name", remedy="choose another name"
        )
    twice = len(new.configs) - len({each.name for each in new.configs})
    if twice:
        raise bad_value("a configuration is named twice", field="configs")
    topic = NewTopic(
        name,
        new.partitions_count or -1,
        new.replication_factor or -1,
        {each.name: each.value for each in new.configs if each.value is not None},
        _assignments(new),
    )
    validate_only = new.validate_only or dry_run
    async with ctx.brokers.client() as admin:
        created = (await admin.create_topics([topic], validate_only=validate_only))[name]
    if not validate_only:
        await ctx.until_visible(lambda image: name in image.topics)
    return CreatedTopic(
        topic_name=name,
        topic_id=None if validate_only else topic_id_text(created.topic_id),
        partitions_count=created.partitions,
        replication_factor=created.replication_factor,
    )


def _assignments(new: NewTopicInput) -> Sequence[Sequence[int]]:
    given = new.replicas_assignments
    if not given:
        return ()
    if new.partitions_count is not None or new.replication_factor is not None:
        raise bad_value(
            "replicas_assignments stand in place of the counts",
            field="replicas_assignments",
            remedy="leave partitions_count and replication_factor out",
        )
    numbers = [str(number) for number in range(len(given))]
    if sorted(given) != sorted(numbers):
        raise bad_value(
            "replicas_assignments must name the partitions 0 to n-1",
            field="replicas_assignments",
        )
    if any(not 0 <= one < 2**31 for replicas in given.values() for one in replicas):
        raise bad_value("a broker id is out of bounds", field="replicas_assignments")
    return [given[number] for number in numbers]


async def delete(ctx: AdminContext, name: str) -> None:
    """Delete a topic with its records. Raises AdminError."""
    await check_delete(ctx, name)
    async with ctx.brokers.client() as admin:
        await admin.delete_topics([name])
    await ctx.until_visible(lambda image: name not in image.topics)


async def check_delete(ctx: AdminContext, name: str) -> None:
    """Check that the caller may delete a topic. Raises AdminError."""
    ctx.require(Operation.DELETE, topic_resource(name))
    _require_own(ctx, name, "deleted")


def _require_own(ctx: AdminContext, name: str, done: str) -> None:
    ctx.topic(name)
    if topics.is_internal(name):
        raise conflict(
            f"topic {name!r} holds the state of brokers or coordinators and cannot be {done} here",
            field="topic_name",
        )


async def set_partitions(
    ctx: AdminContext, name: str, count: int, *, validate_only: bool = False
) -> topics.TopicView:
    """Give a topic more partitions, ``count`` in all. Raises AdminError."""
    ctx.require(Operation.ALTER, topic_resource(name))
    _require_own(ctx, name, "given partitions")
    async with ctx.brokers.client() as admin:
        await admin.create_partitions({name: count}, validate_only=validate_only)

    def has_them(image: ClusterImage) -> bool:
        topic = image.topics.get(name)
        return topic is None or len(topic.partitions) >= count

    if not validate_only:
        await ctx.until_visible(has_them)
    return topics.topic_view(ctx.topic(name))


async def delete_records(
    ctx: AdminContext, name: str, before: Mapping[int, int], *, dry_run: bool = False
) -> list[DeletedRecords]:
    """Delete the records of partitions below an offset; -1 deletes all that are committed. Returns
    the first offsets afterwards. Raises AdminError.
    """
    ctx.require(Operation.DELETE, topic_resource(name))
    _require_own(ctx, name, "purged")
    for number in before:
        topics.require_partition(ctx, name, number)
    if dry_run:
        bounds = await topics.offsets(ctx, [(name, number) for number in before])
        return [_would_delete(bounds[name, number], wanted) for number, wanted in before.items()]
    wanted = {TopicPartition(name, number): offset for number, offset in before.items()}
    async with ctx.brokers.client() as admin:
        starts = await admin.delete_records(wanted)
    return [
        DeletedRecords(topic_name=name, partition_id=at.partition, earliest_offset=start)
        for at, start in sorted(starts.items())
    ]


def _would_delete(bounds: topics.PartitionOffsets, wanted: int) -> DeletedRecords:
    start, end = bounds.earliest_offset, bounds.latest_offset
    if start is None or end is None:
        raise conflict(
            f"the offsets of {bounds.topic_name}-{bounds.partition_id} are not known:"
            f" {bounds.problem}"
        )
    if wanted > end:
        raise bad_value(f"offset {wanted} is beyond the end, {end}", field="offset")
    return DeletedRecords(
        topic_name=bounds.topic_name,
        partition_id=bounds.partition_id,
        earliest_offset=end if wanted < 0 else max(start, wanted),
    )


# -- configuration


async def alter_topic(
    ctx: AdminContext,
    name: str,
    changes: Sequence[ConfigChange],
    *,
    validate_only: bool = False,
    if_match: str | None = None,
) -> None:
    """Change settings of a topic, all or none. Raises AdminError."""
    ctx.require(Operation.ALTER_CONFIGS, topic_resource(name))
    ctx.topic(name)
    if if_match is not None:
        _check(if_match, await configs.topic_configs(ctx, name), changes)
    await _alter(ctx, ConfigResource("topic", name), changes, validate_only=validate_only)


async def alter_broker(
    ctx: AdminContext,
    broker_id: int,
    changes: Sequence[ConfigChange],
    *,
    validate_only: bool = False,
    if_match: str | None = None,
) -> None:
    """Change settings of one broker, all or none. Raises AdminError."""
    ctx.require(Operation.ALTER_CONFIGS, CLUSTER)
    require_broker(ctx, broker_id)
    if if_match is not None:
        _check(if_match, await configs.broker_configs(ctx, broker_id), changes)
    resource = ConfigResource("broker", str(broker_id))
    await _alter(ctx, resource, changes, validate_only=validate_only)


async def alter_cluster(
    ctx: AdminContext,
    changes: Sequence[ConfigChange],
    *,
    validate_only: bool = False,
    if_match: str | None = None,
) -> None:
    """Change settings of all brokers, all or none. Raises AdminError."""
    ctx.require(Operation.ALTER_CONFIGS, CLUSTER)
    if if_match is not None:
        _check(if_match, await configs.cluster_configs(ctx), changes)
    resource = ConfigResource("broker", configs.CLUSTER_WIDE)
    await _alter(ctx, resource, changes, validate_only=validate_only)


def _check(
    if_match: str, present: Sequence[configs.ConfigView], changes: Sequence[ConfigChange]
) -> None:
    """Raise AdminError unless If-Match has the ETag of the list or, for a change of one setting,
    that of the setting.
    """
    etag = configs.etag(present)
    fitting = {"*", etag}
    if len(changes) == 1:
        fitting |= {configs.etag([one]) for one in present if one.name == changes[0].name}
    if fitting.isdisjoint(one.strip().removeprefix("W/") for one in if_match.split(",")):
        raise changed(f"the configuration has changed: its ETag is {etag}")


async def _alter(
    ctx: AdminContext,
    resource: ConfigResource,
    changes: Sequence[ConfigChange],
    *,
    validate_only: bool,
) -> None:
    for index, each in enumerate(changes):
        if each.operation != "DELETE" and each.value is None:
            raise bad_value(
                f"{each.name}: {each.operation} needs a value",
                field=f"data.{index}.value",
                remedy="give a value, or use the operation DELETE",
            )
    alterations = [_alteration(each) for each in changes]
    async with ctx.brokers.client() as admin:
        await admin.alter_configs({resource: alterations}, validate_only=validate_only)


def _alteration(change: ConfigChange) -> AlterConfig:
    match change.operation:
        case "SET":
            return AlterConfig(change.name, change.value, "set")
        case "APPEND":
            return AlterConfig(change.name, change.value, "append")
        case "SUBTRACT":
            return AlterConfig(change.name, change.value, "subtract")
        case _:
            return AlterConfig(change.name, None, "delete")
