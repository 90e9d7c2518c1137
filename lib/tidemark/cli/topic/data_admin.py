"""Calls of ``tidemark topic purge|clone|offsets``."""

from collections.abc import Mapping, Sequence

from tidemark.cli.admin_client import open_admin
from tidemark.cli.failure import CommandError
from tidemark.cli.output import Row
from tidemark.cli.topic.formats import StartAt
from tidemark.client.admin.admin import Admin
from tidemark.client.admin.types import ConfigResource, NewTopic
from tidemark.client.consumer.positions import OffsetSpec
from tidemark.model.topics import TopicPartition, topic_id_text
from tidemark.runtime.exit_codes import ExitCode

_HIGH_WATERMARK = -1
_SET_HERE = "topic"


async def purge(
    bootstrap: str, topic: str, numbers: Sequence[int], before: StartAt, *, execute: bool
) -> list[Row]:
    """Delete the records below a position; without ``execute`` return what would be deleted.

    Raises UnknownTopicOrPartitionError, CommandError for a partition that does not exist.
    """
    async with open_admin(bootstrap) as admin:
        partitions = await partitions_of(admin, topic, numbers)
        starts = await admin.list_offsets(dict.fromkeys(partitions, OffsetSpec.EARLIEST))
        ends = await admin.list_offsets(dict.fromkeys(partitions, OffsetSpec.LATEST))
        targets = await _targets(admin, partitions, before)
        limits = {
            partition: ends[partition].offset if target < 0 else min(target, ends[partition].offset)
            for partition, target in targets.items()
        }
        after = await admin.delete_records(limits) if execute else limits
    return [
        {
            "topic": topic,
            "partition": partition.partition,
            "start": starts[partition].offset,
            "new_start": max(after[partition], starts[partition].offset),
            "records": max(0, after[partition] - starts[partition].offset),
            "outcome": "deleted" if execute else "would delete",
        }
        for partition in partitions
    ]


async def _targets(
    admin: Admin, partitions: Sequence[TopicPartition], before: StartAt
) -> dict[TopicPartition, int]:
    """Return the first offset to keep of each partition; -1 is the end."""
    if before.kind == "latest":
        return dict.fromkeys(partitions, _HIGH_WATERMARK)
    if before.kind != "timestamp":
        return dict.fromkeys(partitions, before.number)
    found = await admin.list_offsets(dict.fromkeys(partitions, before.number))
    return {partition: found[partition].offset for partition in partitions}


async def clone(
    bootstrap: str,
    source: str,
    target: str,
    *,
    partitions: int | None,
    replication_factor: int | None,
    configs: Mapping[str, str],
    validate_only: bool,
) -> list[Row]:
    """Create a topic like another one: partitions, replicas, and the settings of the topic itself.

    Raises UnknownTopicOrPartitionError, TopicAlreadyExistsError.
    """
    resource = ConfigResource("topic", source)
    async with open_admin(bootstrap) as admin:
        model = (await admin.describe_topics([source]))[source]
        entries = (await admin.describe_configs([resource]))[resource]
        own = {
            name: entry.value
            for name, entry in entries.items()
            if entry.source == _SET_HERE and entry.value is not None
        }
        replicas = max((len(each.replicas) for each in model.partitions), default=-1)
        wanted = NewTopic(
            target,
            len(model.partitions) if partitions is None else partitions,
            replicas if replication_factor is None else replication_factor,
            {**own, **configs},
        )
        made = (await admin.create_topics([wanted], validate_only=validate_only))[target]
    return [
        {
            "topic": target,
            "outcome": "valid" if validate_only else "created",
            "partitions": made.partitions,
            "replication_factor": made.replication_factor,
            "configs": dict(wanted.configs),
            "topic_id": topic_id_text(made.topic_id),
        }
    ]


async def offsets(
    bootstrap: str, topic: str, numbers: Sequence[int], at: StartAt | None
) -> list[Row]:
    """Return start, end and last stable offset of each partition, and the offset of a time."""
    async with open_admin(bootstrap) as admin:
        partitions = await partitions_of(admin, topic, numbers)
        starts = await admin.list_offsets(dict.fromkeys(partitions, OffsetSpec.EARLIEST))
        ends = await admin.list_offsets(dict.fromkeys(partitions, OffsetSpec.LATEST))
        stable = await admin.list_offsets(
            dict.fromkeys(partitions, OffsetSpec.LATEST), read_committed=True
        )
        then = {} if at is None else await admin.list_offsets(dict.fromkeys(partitions, at.number))
    rows: list[Row] = []
    for each in partitions:
        row: dict[str, object] = {
            "topic": topic,
            "partition": each.partition,
            "start": starts[each].offset,
            "end": ends[each].offset,
            "last_stable": stable[each].offset,
            "offsets": ends[each].offset - starts[each].offset,
        }
        if at is not None:
            row["at"] = then[each].offset if then[each].offset >= 0 else None
        rows.append(row)
    return rows


async def partitions_of(admin: Admin, topic: str, numbers: Sequence[int]) -> list[TopicPartition]:
    """Return the named partitions of a topic, without names all. Raises CommandError."""
    count = len((await admin.describe_topics([topic]))[topic].partitions)
    beyond = [number for number in numbers if number >= count]
    if beyond:
        raise CommandError(
            f"{topic} has no partition {beyond[0]}",
            hint=f"it has {count}, from 0 to {count - 1}",
            code=ExitCode.USAGE,
        )
    return [TopicPartition(topic, number) for number in sorted(set(numbers)) or range(count)]
