"""Share groups: members, start offsets, and the window of records in flight as a strip."""

from functools import partial
from typing import Final, NamedTuple

from starlette.responses import Response

from controller.admin import dead_letters, groups, share_groups
from controller.admin.groups import GroupView
from controller.admin.share_groups import (
    ShareMember,
    SharePartition,
    ShareWindowView,
    WindowRange,
)
from controller.console.pages.deletions import Deletions
from controller.console.pages.offset_resets import GOALS, Resets
from controller.console.tables import Column, Table
from controller.console.visit import NotFoundError, Visit

SHARE_GROUPS: Final[Table[GroupView]] = Table(
    columns=(
        Column("name", "Share group", lambda row: row.group_id),
        Column("state", "State", lambda row: row.state),
    ),
    text_of=lambda row: f"{row.group_id} {row.state}",
    sort="name",
    noun="share group",
)
PARTITIONS: Final[Table[SharePartition]] = Table(
    columns=(
        Column("partition", "Partition", lambda row: (row.topic_name, row.partition_id)),
        Column("start", "Start offset", lambda row: row.start_offset, is_number=True),
        Column("lag", "Not complete, records", lambda row: row.lag, is_number=True),
        Column("members", "Members", lambda row: row.members, is_number=True),
        Column("window", ""),
    ),
    text_of=lambda row: f"{row.topic_name}-{row.partition_id}",
    sort="-lag",
    noun="partition",
)
MEMBERS: Final[Table[ShareMember]] = Table(
    columns=(
        Column("client", "Client", lambda row: row.client_id),
        Column("member", "Member", lambda row: row.member_id),
        Column("host", "Host", lambda row: row.host),
        Column("epoch", "Epoch", lambda row: row.member_epoch, is_number=True),
        Column("partitions", "Reads", lambda row: len(row.partitions), is_number=True),
    ),
    text_of=lambda row: f"{row.client_id} {row.member_id} {row.host}",
    sort="client",
    prefix="m.",
    noun="member",
)
RANGES: Final[Table[WindowRange]] = Table(
    columns=(
        Column("first", "First offset", lambda row: row.first_offset, is_number=True),
        Column("last", "Last offset", lambda row: row.last_offset, is_number=True),
        Column("state", "State", lambda row: row.state),
        Column("count", "Deliveries", lambda row: row.delivery_count, is_number=True),
        Column("holder", "Lock held by", lambda row: row.member_id or ""),
        Column("left", "Time left", lambda row: row.lock_left_ms, is_number=True),
    ),
    text_of=lambda row: f"{row.first_offset} {row.state} {row.member_id or ''}",
    sort="first",
    noun="range",
)


RESETS: Final = Resets(
    "share-groups",
    "Share groups",
    "share",
    {key: words for key, words in GOALS.items() if key != "shift"},
    share_groups.get_share_group,
    share_groups.reset,
)
DELETIONS: Final = Deletions(
    "share-groups",
    "Share groups",
    "Delete the share group",
    "share",
    "the state of all its records: which were delivered, and how often",
    partial(groups.delete, is_share=True),
)


class Piece(NamedTuple):
    """Part of the strip: place and width in thousandths of the window."""

    x: float
    width: float
    state: str
    title: str


async def show_all(visit: Visit) -> Response:
    """Show all share groups."""
    listed, problems = await share_groups.list_share_groups(visit.admin)
    return visit.page(
        "share_groups.html", groups=visit.table(SHARE_GROUPS, listed), problems=problems
    )


async def show(visit: Visit, group_id: str) -> Response:
    """Show one share group. Its figures come as a part."""
    return visit.page(
        "share_group.html",
        group_id=group_id,
        queue=dead_letters.find_queue(visit.admin, group_id),
        parts=visit.request.url.query,
    )


async def figures(visit: Visit, group_id: str) -> Response:
    """Show members and partitions of a share group, as a part."""
    group = await share_groups.get_share_group(visit.admin, group_id)
    return visit.page(
        "parts/share_group.html",
        group=group,
        partitions=visit.table(PARTITIONS, group.partitions),
        members=visit.table(MEMBERS, group.members),
    )


async def show_window(visit: Visit, group_id: str, topic: str, partition: str) -> Response:
    """Show the page of one share-partition. Its records in flight come as a part."""
    return visit.page(
        "share_window.html",
        group_id=group_id,
        topic=topic,
        partition=_number(partition),
        parts=visit.request.url.query,
    )


async def window(visit: Visit, group_id: str, topic: str, partition: str) -> Response:
    """Show the records in flight of one share-partition, as a part."""
    found = await share_groups.browse(visit.admin, group_id, topic, _number(partition))
    return visit.page(
        "parts/share_window.html",
        window=found,
        pieces=strip(found),
        ranges=visit.table(RANGES, found.ranges),
    )


def strip(window: ShareWindowView) -> list[Piece]:
    """Return the pieces of the strip, from the start of the window to its end."""
    start, end = window.start_offset, window.end_offset
    if start is None or end <= start:
        return []
    scale = 1_000 / (end - start)
    return [
        Piece(
            (one.first_offset - start) * scale,
            (one.last_offset + 1 - one.first_offset) * scale,
            one.state,
            f"{one.first_offset} to {one.last_offset}: {one.state},"
            f" {one.delivery_count} deliveries",
        )
        for one in window.ranges
    ]


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise NotFoundError(f"{text!r} is not the number of a partition")
    return int(text)
