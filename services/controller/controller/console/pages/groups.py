"""Consumer groups, and one group: members, lag, and a reset with its difference before."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final, cast

from starlette.responses import Response

from controller.admin import groups
from controller.admin.errors import AdminError, bad_value
from controller.admin.groups import (
    GoalName,
    GroupDetail,
    GroupView,
    MemberView,
    OffsetMove,
    PartitionLag,
    ResetResult,
)
from controller.console.forms import Form
from controller.console.names import command, path
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
        Column("epoch", "Epoch", lambda row: row.member_epoch, is_number=True),
        Column("partitions", "Owns", lambda row: len(row.partitions), is_number=True),
    ),
    text_of=lambda row: f"{row.client_id} {row.member_id} {row.host} {row.instance_id or ''}",
    sort="client",
    prefix="m.",
    noun="member",
)
MOVES: Final[Table[OffsetMove]] = Table(
    columns=(
        Column("partition", "Partition"),
        Column("before", "Before", is_number=True),
        Column("after", "After", is_number=True),
        Column("change", "Change", is_number=True),
    ),
    text_of=lambda row: f"{row.topic_name}-{row.partition_id}",
    sort="",
    noun="partition",
    label="Offsets before and after",
)
GOALS: Final[Mapping[str, str]] = {
    "earliest": "the oldest records",
    "latest": "the end: skip all that is there",
    "offset": "an offset",
    "shift": "by a number of records",
    "timestamp": "a time (UTC)",
}


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


async def show_reset(visit: Visit, group_id: str) -> Response:
    """Show the form that moves offsets."""
    return await _reset_page(visit, group_id, {})


async def reset(visit: Visit, form: Form, group_id: str) -> Response:
    """Show what a reset would change, or do it: the form's button decides."""
    values = form.as_mapping()
    topic = form.text("topic") or None
    try:
        goal, number = goal_of(form)
        result = await groups.reset(
            visit.admin, group_id, goal, number, topic=topic, dry_run=not form.checked("execute")
        )
    except AdminError as problem:
        return await _reset_page(visit, group_id, values, problem=problem)
    if not result.dry_run:
        return visit.go_on(path("groups", group_id), done="group-reset")
    return await _reset_page(visit, group_id, values, result=result)


async def show_delete(visit: Visit, group_id: str) -> Response:
    """Ask for the name before a group is deleted."""
    return _delete_page(visit, group_id)


async def delete(visit: Visit, form: Form, group_id: str) -> Response:
    """Delete a group whose name has been typed."""
    if form.text("confirm") != group_id:
        return _delete_page(visit, group_id, "The name that was typed is not the group's.")
    try:
        await groups.delete(visit.admin, group_id)
    except AdminError as problem:
        return _delete_page(visit, group_id, problem.message)
    return visit.go_on("/groups", done="group-deleted")


def _delete_page(visit: Visit, group_id: str, problem: str = "") -> Response:
    return visit.page(
        "confirm.html",
        status=400 if problem else 200,
        title="Delete the group",
        subject=group_id,
        crumbs=[("/groups", "Consumer groups"), (path("groups", group_id), group_id)],
        loses="its committed offsets. A consumer of this group begins where its auto.offset.reset"
        " says",
        problem=problem,
        back=path("groups", group_id),
        line=command("group", "delete", group_id, "--yes"),
    )


async def _reset_page(
    visit: Visit,
    group_id: str,
    values: Mapping[str, str],
    *,
    result: ResetResult | None = None,
    problem: AdminError | None = None,
) -> Response:
    group = await groups.get_group(visit.admin, group_id)
    return visit.page(
        "group_reset.html",
        status=problem.status if problem else 200,
        group=group,
        room=("/groups", "Consumer groups"),
        topics=_topics(group),
        goals=GOALS,
        values=values,
        result=result,
        moves=visit.table(MOVES, result.moves) if result else None,
        problem=problem,
        line=reset_line("group", group_id, values),
    )


def _topics(group: GroupDetail) -> list[str]:
    return sorted({row.topic_name for row in group.partitions})


def goal_of(form: Form) -> tuple[GoalName, int]:
    """Return the target of a reset. Raises AdminError."""
    goal = form.text("goal")
    if goal not in GOALS:
        raise bad_value("choose where the group shall go on", field="goal")
    number = 0
    if goal in ("offset", "shift"):
        number = form.integer(goal) or 0
    if goal == "timestamp":
        text = form.text("time")
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            raise bad_value(f"{text!r} is not a time", field="time") from None
        number = int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1_000)
    return cast("GoalName", goal), number


def reset_line(room: str, group_id: str, values: Mapping[str, str]) -> str:
    """Return the command that does the same; ``room`` is ``group`` or ``share``."""
    goal = values.get("goal", "earliest")
    target = {
        "earliest": ["--to-earliest"],
        "latest": ["--to-latest"],
        "offset": ["--to-offset", values.get("offset", "0")],
        "shift": ["--shift-by", values.get("shift", "0")],
        "timestamp": ["--to-datetime", values.get("time", "")],
    }.get(goal, ["--to-earliest"])
    scope = ["--topic", values["topic"]] if values.get("topic") else []
    return command(room, "reset", group_id, *target, *scope, "--execute")
