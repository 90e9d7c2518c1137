"""Resets of offsets, of consumer groups and share groups: a form, its difference, the change."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Protocol, cast

from starlette.responses import Response

from controller.admin.context import AdminContext
from controller.admin.errors import AdminError, bad_value
from controller.admin.groups import GoalName, GroupDetail, OffsetMove, ResetResult
from controller.admin.share_groups import ShareGroupDetail
from controller.console.forms import Form
from controller.console.names import command, path
from controller.console.tables import Column, Table
from controller.console.visit import Visit

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


class ResetFunction(Protocol):
    """Function of the administration that moves offsets."""

    async def __call__(
        self,
        ctx: AdminContext,
        group_id: str,
        goal: GoalName,
        number: int = 0,
        *,
        topic: str | None = None,
        dry_run: bool,
    ) -> ResetResult:
        """Move the offsets, or return the moves. Raises AdminError."""


@dataclass(frozen=True, slots=True)
class Resets:
    """Resets of one kind of group."""

    room: str
    """First segment of the path of its pages."""
    title: str
    noun: str
    """Word of the command line, ``group`` or ``share``."""
    goals: Mapping[str, str]
    get: Callable[[AdminContext, str], Awaitable[GroupDetail | ShareGroupDetail]]
    reset: ResetFunction

    async def show(self, visit: Visit, group_id: str) -> Response:
        """Show the form that moves offsets."""
        return await self._page(visit, group_id, {})

    async def change(self, visit: Visit, form: Form, group_id: str) -> Response:
        """Show what a reset would change, or do it: the form's button decides."""
        values = form.as_mapping()
        try:
            goal, number = goal_of(form)
            result = await self.reset(
                visit.admin,
                group_id,
                goal,
                number,
                topic=form.text("topic") or None,
                dry_run=not form.checked("execute"),
            )
        except AdminError as problem:
            return await self._page(visit, group_id, values, problem=problem)
        if not result.dry_run:
            return visit.go_on(path(self.room, group_id), done="group-reset")
        return await self._page(visit, group_id, values, result=result)

    async def _page(
        self,
        visit: Visit,
        group_id: str,
        values: Mapping[str, str],
        *,
        result: ResetResult | None = None,
        problem: AdminError | None = None,
    ) -> Response:
        group = await self.get(visit.admin, group_id)
        return visit.page(
            "group_reset.html",
            status=problem.status if problem else 200,
            group=group,
            room=(path(self.room), self.title),
            topics=sorted({row.topic_name for row in group.partitions}),
            goals=self.goals,
            values=values,
            result=result,
            moves=visit.table(MOVES, result.moves) if result else None,
            problem=problem,
            line=_line(self.noun, group_id, values),
        )


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


def _line(noun: str, group_id: str, values: Mapping[str, str]) -> str:
    """Return the command that does the same; ``noun`` is ``group`` or ``share``."""
    goal = values.get("goal", "earliest")
    target = {
        "earliest": ["--to-earliest"],
        "latest": ["--to-latest"],
        "offset": ["--to-offset", values.get("offset", "0")],
        "shift": ["--shift-by", values.get("shift", "0")],
        "timestamp": ["--to-datetime", values.get("time", "")],
    }.get(goal, ["--to-earliest"])
    scope = ["--topic", values["topic"]] if values.get("topic") else []
    return command(noun, "reset", group_id, *target, *scope, "--execute")
