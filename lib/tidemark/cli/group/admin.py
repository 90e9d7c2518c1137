"""Calls of ``tidemark group``."""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from tidemark.cli.admin_client import open_admin
from tidemark.cli.client_calls import as_command_error
from tidemark.cli.config.admin import look_before_unset
from tidemark.cli.failure import CommandError
from tidemark.cli.group.reset_options import Scope
from tidemark.cli.group.rows import Row, partition_row
from tidemark.cli.security import security
from tidemark.client.admin.admin import Admin
from tidemark.client.admin.first_records import first_timestamps
from tidemark.client.admin.group_types import GroupDescription
from tidemark.client.admin.types import AlterConfig, ConfigResource
from tidemark.client.config import ConsumerConfig
from tidemark.client.consumer.group_types import OffsetAndMetadata
from tidemark.client.consumer.offset_storage import ZooKeeperOffsets
from tidemark.client.consumer.positions import OffsetSpec
from tidemark.client.deadline import Deadline
from tidemark.client.errors import ClientError, GroupNotEmptyError, GroupNotFoundError
from tidemark.model.errors import ErrorCode
from tidemark.model.topics import TopicPartition
from tidemark.plans.group_lag import Bounds, first_unread, owners, time_lag_ms
from tidemark.plans.offset_reset import Move, Target, plan, timestamp_for
from tidemark.runtime.clock import Clock
from tidemark.runtime.exit_codes import ExitCode

_ZOOKEEPER_MS_MAX: Final = 10_000

Committed = dict[TopicPartition, OffsetAndMetadata]


async def list_all(bootstrap: str, *, states: Iterable[str], kinds: Iterable[str]) -> list[Row]:
    """Return a row for each group."""
    async with open_admin(bootstrap) as admin:
        groups = await admin.list_groups(states=states, kinds=kinds)
    return [
        {
            "group": each.group_id,
            "kind": each.kind,
            "state": each.state,
            "protocol": each.protocol_type,
            "coordinator": each.coordinator,
        }
        for each in groups
    ]


async def describe(
    bootstrap: str, group_ids: Sequence[str], *, stable: bool, zookeeper: str | None
) -> list[Row]:
    """Return a row for each group, with its members and partitions. With ``stable`` the time lag is
    that of a read_committed consumer. Raises GroupNotFoundError.
    """
    async with open_admin(bootstrap) as admin:
        return [
            await _describe_one(admin, bootstrap, name, stable=stable, zookeeper=zookeeper)
            for name in group_ids
        ]


async def configs(bootstrap: str, group_id: str) -> list[Row]:
    """Return a row for each configuration of the group, which need not exist; ``source`` is the
    origin of the value.
    """
    resource = ConfigResource("group", group_id)
    async with open_admin(bootstrap) as admin:
        entries = (await admin.describe_configs([resource]))[resource]
    return [
        {"name": name, "value": entry.value, "source": entry.source}
        for name, entry in sorted(entries.items())
    ]


async def configure(
    bootstrap: str, group_id: str, changes: Sequence[AlterConfig], *, validate_only: bool
) -> None:
    """Change the group's own configuration, all or nothing. Raises ClientConfigError, and
    CommandError for the removal of a setting that there is not.
    """
    resource = ConfigResource("group", group_id)
    async with open_admin(bootstrap) as admin:
        await look_before_unset(admin, resource, changes)
        await admin.alter_configs({resource: changes}, validate_only=validate_only)


async def _describe_one(
    admin: Admin, bootstrap: str, group_id: str, *, stable: bool, zookeeper: str | None
) -> Row:
    group = await _group_or_none(admin, group_id)
    committed = await admin.list_group_offsets(group_id)
    if group is None and not committed and zookeeper is None:
        raise GroupNotFoundError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {group_id!r}")
    readers = owners(group)
    partitions = sorted({*committed, *readers})
    bounds = await log_bounds(admin, partitions)
    unread = first_unread(committed, bounds, stable=stable)
    isolation = ConsumerConfig(
        isolation_level="read_committed" if stable else "read_uncommitted"
    ).isolation_level
    timestamps = await first_timestamps(
        bootstrap, unread, isolation=isolation, settings=security(bootstrap)
    )
    elsewhere = await _in_zookeeper(zookeeper, group_id, partitions)
    now_ms = Clock().wall_ms()
    rows = []
    for partition in partitions:
        known = committed.get(partition)
        row = partition_row(partition, known, bounds.get(partition), readers.get(partition))
        row["time_lag_ms"] = (
            None if known is None else time_lag_ms(partition, unread, timestamps, now_ms)
        )
        if elsewhere is not None:
            row["zookeeper"] = None if (at := elsewhere.get(partition)) is None else at.offset
        rows.append(row)
    return _group_row(group_id, group) | {"partitions": rows}


def _group_row(group_id: str, group: GroupDescription | None) -> Row:
    members = () if group is None else group.members
    return {
        "group": group_id,
        "kind": None if group is None else group.kind,
        "state": "Offsets only" if group is None else group.state,
        "assignor": None if group is None else group.assignor,
        "epoch": None if group is None else group.epoch,
        "members": [
            {
                "member": each.member_id,
                "instance": each.group_instance_id,
                "client_id": each.client_id,
                "host": each.host,
                "protocol": each.protocol,
                "epoch": each.member_epoch,
                "partitions": [str(partition) for partition in each.assignment],
            }
            for each in members
        ],
    }


async def log_bounds(
    admin: Admin, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, Bounds]:
    """Return the bounds of those partitions that still exist."""
    wanted = await _existing(admin, partitions)
    starts = await admin.list_offsets(dict.fromkeys(wanted, OffsetSpec.EARLIEST))
    ends = await admin.list_offsets(dict.fromkeys(wanted, OffsetSpec.LATEST))
    stable = await admin.list_offsets(dict.fromkeys(wanted, OffsetSpec.LATEST), read_committed=True)
    return {
        each: Bounds(starts[each].offset, ends[each].offset, stable[each].offset) for each in wanted
    }


async def _existing(admin: Admin, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
    wanted = list(partitions)
    there = set(await admin.list_topics(internal=True))
    topics = await admin.describe_topics(sorted({each.topic for each in wanted} & there))
    return [
        each
        for each in wanted
        if each.topic in topics and each.partition < len(topics[each.topic].partitions)
    ]


@dataclass(frozen=True, slots=True)
class ResetJob:
    """Partitions to move, and their target."""

    bootstrap: str
    group_id: str
    target: Target
    scopes: Sequence[Scope]  # none: every partition that the group has committed
    execute: bool


async def reset(job: ResetJob) -> list[Row]:
    """Move offsets if ``execute``; return a row for each partition. Raises GroupNotEmptyError,
    CommandError.
    """
    async with open_admin(job.bootstrap) as admin:
        group = await _group_or_none(admin, job.group_id)
        if group is not None and not group.is_quiet:
            raise GroupNotEmptyError(
                ErrorCode.NON_EMPTY_GROUP,
                f"group {job.group_id!r} has {len(group.members)} members and is {group.state}",
            )
        committed = await admin.list_group_offsets(job.group_id)
        if group is None and not committed:
            await _refuse_share_group(admin, job.group_id)
        partitions = await in_scope(admin, job.scopes, committed)
        bounds = await log_bounds(admin, partitions)
        time = timestamp_for(job.target, Clock().wall_ms())
        found = {} if time is None else await admin.list_offsets(dict.fromkeys(bounds, time))
        moves = plan(
            job.target,
            {partition: each.offset for partition, each in committed.items()},
            bounds,
            {partition: each.offset for partition, each in found.items()},
        )
        if job.execute and moves:
            await admin.alter_group_offsets(
                job.group_id, {move.partition: move.after for move in moves}
            )
    return [move_row(move, execute=job.execute) for move in moves]


def move_row(move: Move, *, execute: bool) -> Row:
    """Return a row for one moved offset."""
    return {
        "topic": move.partition.topic,
        "partition": move.partition.partition,
        "before": move.before,
        "after": move.after,
        "outcome": "moved" if execute else "would move",
    }


async def delete(
    bootstrap: str, group_ids: Sequence[str], topics: Sequence[str], rows: list[Row]
) -> None:
    """Delete whole groups, or only their offsets in some topics, one by one, with a row for each
    that is done. Raises GroupNotEmptyError.
    """
    async with open_admin(bootstrap) as admin:
        for name in group_ids:
            if topics:
                committed = await admin.list_group_offsets(name)
                doomed = [each for each in committed if each.topic in topics]
                await admin.delete_group_offsets(name, doomed)
                outcome = f"{len(doomed)} offsets deleted"
            else:
                await admin.delete_groups([name])
                outcome = "deleted"
            rows.append({"group": name, "outcome": outcome})


async def in_scope(
    admin: Admin, scopes: Sequence[Scope], known: Iterable[TopicPartition]
) -> list[TopicPartition]:
    """Return the partitions of ``scopes``; without any, those that are ``known``."""
    if not scopes:
        return sorted(known)
    topics = await admin.describe_topics([scope.topic for scope in scopes])
    partitions: list[TopicPartition] = []
    for scope in scopes:
        count = len(topics[scope.topic].partitions)
        beyond = [number for number in scope.partitions if number >= count]
        if beyond:
            raise CommandError(
                f"topic {scope.topic!r} has partitions 0 to {count - 1}, not {beyond[0]}",
                code=ExitCode.USAGE,
            )
        numbers = scope.partitions or range(count)
        partitions += [TopicPartition(scope.topic, number) for number in numbers]
    return partitions


async def _refuse_share_group(admin: Admin, group_id: str) -> None:
    """Raise CommandError if a share group has the id: its offsets are not those of consumers. A
    list of all kinds is answered without a share-coordinator, too.
    """
    kinds = {each.group_id: each.kind for each in await admin.list_groups()}
    if kinds.get(group_id) == "share":
        raise CommandError(
            f"{group_id!r} is a share group ({ErrorCode.GROUP_ID_NOT_FOUND.name})",
            hint=f"tidemark share reset {group_id}",
        )


async def _group_or_none(admin: Admin, group_id: str) -> GroupDescription | None:
    """Return a group; None if it has only offsets, or does not exist."""
    try:
        return (await admin.describe_groups([group_id]))[group_id]
    except GroupNotFoundError:
        return None


async def _in_zookeeper(
    connect: str | None, group_id: str, partitions: Sequence[TopicPartition]
) -> Committed | None:
    """Return the offsets of the partitions in ZooKeeper; None without ``connect``."""
    if connect is None:
        return None
    # kazoo would log every failed attempt to connect; the outcome is reported once.
    logging.getLogger("kazoo").setLevel(logging.CRITICAL)
    config = ConsumerConfig(zookeeper_connect=connect)
    storage = ZooKeeperOffsets(connect, group_id, config, Clock())
    try:
        deadline = Deadline.after(_ZOOKEEPER_MS_MAX, Clock().now_ms())
        return await storage.fetch(partitions, deadline)
    except ClientError as problem:
        raise as_command_error(problem) from None
    finally:
        await storage.close()
