"""Calls of ``tidemark share``."""

from collections.abc import Iterable, Sequence
from typing import Any, Final

from tidemark.cli.admin_client import open_admin
from tidemark.cli.group.admin import configs as group_configs
from tidemark.cli.group.admin import in_scope, log_bounds, move_row
from tidemark.cli.group.reset_options import Scope
from tidemark.cli.reach import reach_over_grpc
from tidemark.cli.security import security_over_grpc
from tidemark.client.admin.share_types import ShareGroupDescription
from tidemark.client.errors import GroupNotEmptyError
from tidemark.client.share.share_views import ShareLag, ShareRange, ShareViews
from tidemark.model.errors import ErrorCode
from tidemark.model.share_group_configs import SHARE_GROUP_CONFIG_KEYS
from tidemark.model.topics import TopicPartition
from tidemark.plans.offset_reset import Target, plan, timestamp_for
from tidemark.runtime.clock import Clock

_VIEW_MS_MAX: Final = 15_000
"""Time to wait for a leader or a share-coordinator that is not there."""

Row = dict[str, Any]


async def list_all(bootstrap: str, *, states: Iterable[str]) -> list[Row]:
    """Return a row for each share group."""
    async with open_admin(bootstrap) as admin:
        groups = await admin.list_groups(states=states, kinds=["share"])
    return [
        {"group": each.group_id, "state": each.state, "coordinator": each.coordinator}
        for each in groups
    ]


async def describe(bootstrap: str, group_ids: Sequence[str]) -> list[Row]:
    """Return a row for each group, with its members and partitions. Raises GroupNotFoundError."""
    rows = []
    async with open_admin(bootstrap) as admin:
        for group_id in group_ids:
            group = (await admin.describe_share_groups([group_id]))[group_id]
            offsets = await admin.list_share_group_offsets(group_id)
            partitions = [
                {
                    "topic": at.topic,
                    "partition": at.partition,
                    "start_offset": each.start_offset,
                    "lag": each.lag,
                    "leader_epoch": each.leader_epoch,
                    "dead_letter_problem": each.dead_letter_problem,
                    "members": sum(at in member.assignment for member in group.members),
                }
                for at, each in sorted(offsets.items())
            ]
            rows.append(_group_row(group) | {"partitions": partitions})
    return rows


def _group_row(group: ShareGroupDescription) -> Row:
    return {
        "group": group.group_id,
        "state": group.state,
        "assignor": group.assignor,
        "epoch": group.epoch,
        "assignment_epoch": group.assignment_epoch,
        "members": [
            {
                "member": each.member_id,
                "client_id": each.client_id,
                "host": each.host,
                "rack": each.rack,
                "epoch": each.member_epoch,
                "topics": list(each.topics),
                "partitions": [str(partition) for partition in each.assignment],
            }
            for each in group.members
        ],
    }


async def browse(
    bootstrap: str, group_id: str, at: TopicPartition, *, first: int, last: int | None
) -> Row:
    """Return the records in flight of one share-partition, and their counts. ``bootstrap``: gRPC
    addresses.
    """
    given = {"default_api_timeout_ms": _VIEW_MS_MAX, **security_over_grpc(bootstrap)}
    await reach_over_grpc(bootstrap)
    async with ShareViews(bootstrap, **given) as views:
        window = await views.browse(group_id, at, first_offset=first, last_offset=last)
        lag = await views.lag(group_id, at)
    return {
        "group": group_id,
        "topic": at.topic,
        "partition": at.partition,
        "start_offset": window.start_offset,
        "end_offset": window.end_offset,
        "lag": lag.lag,
        **_counts(lag),
        "ranges": [_range_row(one) for one in window.ranges],
    }


def _counts(lag: ShareLag) -> Row:
    names = ("available", "acquired", "acknowledged", "archiving", "archived", "behind")
    return {name: getattr(lag, name) for name in names} | {
        "oldest_age_ms": lag.oldest_age_ms,
        "dead_letter_problem": lag.dead_letter_problem,
    }


def _range_row(one: ShareRange) -> Row:
    row = one._asdict()
    return {"records": one.last_offset - one.first_offset + 1, **row}


async def reset(
    bootstrap: str, group_id: str, target: Target, scopes: Sequence[Scope], *, execute: bool
) -> list[Row]:
    """Move start offsets if ``execute``; return a row for each partition. Raises
    GroupNotEmptyError, CommandError.
    """
    async with open_admin(bootstrap) as admin:
        group = (await admin.describe_share_groups([group_id]))[group_id]
        if not group.is_quiet:
            raise GroupNotEmptyError(
                ErrorCode.NON_EMPTY_GROUP,
                f"share group {group_id!r} has {len(group.members)} members",
            )
        offsets = await admin.list_share_group_offsets(group_id)
        bounds = await log_bounds(admin, await in_scope(admin, scopes, offsets))
        time = timestamp_for(target, Clock().wall_ms())
        found = {} if time is None else await admin.list_offsets(dict.fromkeys(bounds, time))
        starts = {at: each.start_offset for at, each in offsets.items()}
        moves = plan(
            target,
            {at: start for at, start in starts.items() if start is not None},
            bounds,
            {at: each.offset for at, each in found.items()},
        )
        if execute and moves:
            await admin.alter_share_group_offsets(
                group_id, {move.partition: move.after for move in moves}
            )
    return [move_row(move, execute=execute) for move in moves]


async def delete(
    bootstrap: str, group_ids: Sequence[str], topics: Sequence[str], rows: list[Row]
) -> None:
    """Delete whole groups, or only what they have of some topics, one by one, with a row for each
    that is done. Raises GroupNotEmptyError.
    """
    async with open_admin(bootstrap) as admin:
        for group_id in group_ids:
            if topics:
                await admin.delete_share_group_offsets(group_id, topics)
            else:
                await admin.describe_share_groups([group_id])
                await admin.delete_groups([group_id])
            outcome = f"forgot {', '.join(topics)}" if topics else "deleted"
            rows.append({"group": group_id, "outcome": outcome})


async def configs(bootstrap: str, group_id: str) -> list[Row]:
    """Return a row for each configuration of a share group, which need not exist."""
    rows = await group_configs(bootstrap, group_id)
    return [row for row in rows if row["name"] in SHARE_GROUP_CONFIG_KEYS]
