"""Reassignments: those in progress, plans as before and after, elections of preferred leaders."""

from collections.abc import Mapping
from typing import Final

from starlette.responses import Response

from controller.admin import operations, reassignments
from controller.admin.errors import AdminError, bad_value
from controller.admin.reassignments import (
    MoveView,
    PlanRequest,
    PlanView,
    ReassignmentView,
    WantedReplicas,
)
from controller.console.forms import Form
from controller.console.names import command, path
from controller.console.tables import Column, Table
from controller.console.visit import Visit

MOVING: Final[Table[ReassignmentView]] = Table(
    columns=(
        Column("partition", "Partition", lambda row: (row.topic_name, row.partition_id)),
        Column("replicas", "Replicas"),
        Column("adding", "Copied to"),
        Column("removing", "Leaves"),
        Column("progress", "Caught up", lambda row: row.caught_up, is_number=True),
        Column("cancel", ""),
    ),
    text_of=lambda row: f"{row.topic_name}-{row.partition_id}",
    sort="partition",
    noun="partition",
    label="Partitions that are being moved",
)
PLANNED: Final[Table[MoveView]] = Table(
    columns=(
        Column("partition", "Partition"),
        Column("before", "Before"),
        Column("after", "After"),
    ),
    text_of=lambda row: f"{row.topic_name}-{row.partition_id}",
    sort="",
    noun="partition",
    prefix="p.",
    label="Plan",
)
_WITH_NEXT_PAGE: Final = 500


async def show(visit: Visit) -> Response:
    """Show the moves in progress, and the form of a plan."""
    return await _page(visit, {})


async def progress(visit: Visit) -> Response:
    """Show the moves in progress, as a part."""
    moving = await reassignments.list_reassignments(visit.admin)
    return visit.page("parts/moving.html", moving=visit.table(MOVING, moving))


async def change(visit: Visit, form: Form) -> Response:
    """Plan, apply a plan, cancel a move or all, or elect preferred leaders."""
    action = form.text("action", "plan")
    try:
        if action == "plan":
            plan = await reassignments.plan(visit.admin, _goal(form))
            return await _page(visit, form.as_mapping(), plan=plan)
        if action == "apply":
            started = await operations.reassign(visit.admin, _wanted(form))
            return visit.go_on(path("operations", started.operation_id), done="moves-started")
        if action == "elect":
            await reassignments.elect_leaders(visit.admin, None)
            return visit.go_on("/reassignments", done="leaders-elected")
        if action != "cancel":
            raise bad_value(f"there is no action {action!r}", field="action")
        topic, partition = form.text("topic"), form.integer("partition")
        chosen = None if partition is None else [(topic, partition)]
        await reassignments.cancel(visit.admin, chosen, dry_run=False)
    except AdminError as problem:
        return await _page(visit, form.as_mapping(), problem=problem)
    return visit.go_on("/reassignments", done="moves-cancelled")


def _goal(form: Form) -> PlanRequest:
    leaving = form.integer("leaving")
    return PlanRequest(
        topics=[name for name in form.text("topics").split() if name],
        leaving=[] if leaving is None else [leaving],
    )


def _wanted(form: Form) -> list[WantedReplicas]:
    """Return the moves of a plan that the page has shown: ``topic:partition:1,2,3`` each."""
    found = []
    for line in form.values("move"):
        try:
            topic, partition, replicas = line.rsplit(":", 2)
            found.append(
                WantedReplicas(
                    topic_name=topic,
                    partition_id=int(partition),
                    replicas=[int(one) for one in replicas.split(",")],
                )
            )
        except ValueError:
            raise bad_value(f"{line!r} is not a move", field="move") from None
    if not found:
        raise bad_value("the plan has no moves", field="move")
    return found


async def _page(
    visit: Visit,
    values: Mapping[str, str],
    *,
    plan: PlanView | None = None,
    problem: AdminError | None = None,
) -> Response:
    image = visit.image
    not_preferred = sum(
        one.leader != one.replicas[0] and one.leader >= 0
        for topic in image.topics.values()
        for one in topic.partitions
    )
    rows = PLANNED.show(plan.moves if plan else [], {"p.per": str(_WITH_NEXT_PAGE)})
    return visit.page(
        "reassignments.html",
        status=problem.status if problem else 200,
        values=values,
        plan=plan,
        planned=rows,
        problem=problem,
        not_preferred=not_preferred,
        brokers=sorted(image.brokers),
        parts=visit.request.url.query,
        lines=[
            command("cluster", "reassign", "plan"),
            command("cluster", "reassign", "watch"),
            command("cluster", "reassign", "cancel"),
            command("cluster", "elect-leaders"),
        ],
    )
