"""Consumer groups, and one group: members, lag, and a reset with its difference before."""

from typing import Final

from starlette.responses import Response

from controller.admin import groups
from controller.admin.groups import GroupView, MemberView, PartitionLag
from controller.console.pages.deletions import Deletions
from controller.console.pages.offset_resets import GOALS, Resets
from controller.console.tables import Column, Table
from controller.console.visit import Visit

GROUPS: Final[Table[GroupView]] = Table(
    columns=(
        Column("name", "Group", lambda row: row.group_id),
        Column("state", "State", lambda row: row.state),
        Column("kind", "Protocol", lambda row: row.kind),
        Column("coordinator", "Coordinator", lambda row: row.coordinator_id, is_number=True),
    ),
    text_of=lambda row: f"{row.group_id} {row.state} {row.kind}",
    sort="name",
    noun="group",
)
PARTITIONS: Final[Table[PartitionLag]] = Table(
    columns=(
        Column("partition", "Partition", lambda row: (row.topic_name, row.partition_id)),
        Column("committed", "Committed", lambda row: row.committed_offset, is_number=True),
        Column("stable", "Last stable", lambda row: row.last_stable_offset, is_number=True),
        Column("end", "End", lambda row: row.log_end_offset, is_number=True),
        Column("lag", "Lag, records", lambda row: row.lag, is_number=True),
        Column("time", "Lag, time", lambda row: row.time_lag_ms, is_number=True),
        Column("member", "Read by", lambda row: row.client_id or ""),
    ),
    text_of=lambda row: f"{row.topic_name}-{row.partition_id} {row.client_id} {row.member_id}",
    sort="-lag",
    noun="partition",
    label="Lag by partition",
)
MEMBERS: Final[Table[MemberView]] = Table(
    columns=(
        Column("client", "Client", lambda row: row.client_id),
        Column("member", "Member", lambda row: row.member_id),
        Column("host", "Host", lambda row: row.host),
        Column("protocol", "Protocol", lambda row: row.protocol),
        Column("epoch", "Epoch", lambda row: row.member_epoch, is_number=True),
        Column("partitions", "Owns", lambda row: len(row.partitions), is_number=True),
    ),
    text_of=lambda row: f"{row.client_id} {row.member_id} {row.host} {row.instance_id or ''}",
    sort="client",
    prefix="m.",
    noun="member",
)
RESETS: Final = Resets("groups", "Consumer groups", "group", GOALS, groups.get_group, groups.reset)
DELETIONS: Final = Deletions(
    "groups",
    "Consumer groups",
    "Delete the group",
    "group",
    "its committed offsets. A consumer of this group begins where its auto.offset.reset says",
    groups.delete,
)


async def show_all(visit: Visit) -> Response:
    """Show all consumer groups."""
    listed, problems = await groups.list_groups(visit.admin)
    rows = [one for one in listed if one.kind != groups.SHARE]
    return visit.page("groups.html", groups=visit.table(GROUPS, rows), problems=problems)


async def show(visit: Visit, group_id: str) -> Response:
    """Show one group. Its figures come as a part, which is loaded again every few seconds."""
    return visit.page("group.html", group_id=group_id, parts=visit.request.url.query)


async def figures(visit: Visit, group_id: str) -> Response:
    """Show members and lag of a group, as a part of its page."""
    group = await groups.get_group(visit.admin, group_id)
    return visit.page(
        "parts/group.html",
        group=group,
        partitions=visit.table(PARTITIONS, group.partitions),
        members=visit.table(MEMBERS, group.members),
    )
