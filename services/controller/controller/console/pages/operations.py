"""Operations with their progress, events, and the actions on a broker that begin operations."""

from typing import Final

from starlette.responses import Response

from controller.admin import brokers, operations, restart
from controller.admin.errors import AdminError, bad_value
from controller.admin.events import Event
from controller.admin.operation_steps import Operation
from controller.admin.reassignments import PlanView
from controller.console.forms import Form
from controller.console.names import path
from controller.console.tables import Column, Table
from controller.console.visit import NotFoundError, Visit

OPERATIONS: Final[Table[Operation]] = Table(
    columns=(
        Column("action", "Operation", lambda row: (row.action, row.subject)),
        Column("state", "State", lambda row: row.state),
        Column("progress", "Progress", lambda row: row.progress),
        Column("moves", "Partitions", lambda row: row.moves_count, is_number=True),
        Column("created", "Begun (UTC)", lambda row: row.created_ms),
    ),
    text_of=lambda row: f"{row.action} {row.subject} {row.state} {row.operation_id}",
    sort="-created",
    noun="operation",
)
EVENTS: Final[Table[Event]] = Table(
    columns=(
        Column("time", "Time (UTC)", lambda row: row.event_id),
        Column("type", "Event", lambda row: row.type),
        Column("message", "What changed", lambda row: row.message),
    ),
    text_of=lambda row: f"{row.type} {row.subject} {row.message}",
    sort="-time",
    noun="event",
)


async def show_all(visit: Visit) -> Response:
    """Show all operations, and what changed lately."""
    listed = await operations.list_operations(visit.admin)
    return visit.page("operations.html", operations=visit.table(OPERATIONS, listed))


async def show_events(visit: Visit) -> Response:
    """Show what changed in the cluster lately."""
    events = visit.admin.events.after(0)
    return visit.page("events.html", events=visit.table(EVENTS, events))


async def show(visit: Visit, operation_id: str) -> Response:
    """Show one operation. Its progress comes as a part."""
    operation = await operations.get_operation(visit.admin, operation_id)
    return visit.page("operation.html", operation=operation)


async def progress(visit: Visit, operation_id: str) -> Response:
    """Show the progress of an operation, as a part."""
    operation = await operations.get_operation(visit.admin, operation_id)
    return visit.page("parts/operation.html", operation=operation)


async def cancel(visit: Visit, form: Form, operation_id: str) -> Response:
    """Cancel an operation."""
    del form
    await operations.cancel_operation(visit.admin, operation_id)
    return visit.go_on(path("operations", operation_id), done="operation-cancelled")


# -- one broker


async def show_broker(visit: Visit, broker_id: str) -> Response:
    """Show if a broker may restart, and what else can be done with it."""
    return await _broker_page(visit, _number(broker_id))


async def change_broker(visit: Visit, form: Form, broker_id: str) -> Response:
    """Show the plan of a drain, an undrain or a decommission, or begin it."""
    number, action = _number(broker_id), form.text("action")
    plans = {
        "drain": operations.plan_drain,
        "undrain": operations.plan_undrain,
        "decommission": operations.plan_decommission,
    }
    begins = {
        "drain": operations.drain,
        "undrain": operations.undrain,
        "decommission": operations.decommission,
    }
    try:
        if action not in plans:
            raise bad_value(f"there is no action {action!r}", field="action")
        if not form.checked("execute"):
            plan = await plans[action](visit.admin, number)
            return await _broker_page(visit, number, action=action, plan=plan)
        if action == "decommission" and form.text("confirm") != str(number):
            raise bad_value("the number that was typed is not the broker's", field="confirm")
        begun = await begins[action](visit.admin, number)
    except AdminError as problem:
        return await _broker_page(visit, number, problem=problem)
    return visit.go_on(path("operations", begun.operation_id), done="moves-started")


async def _broker_page(
    visit: Visit,
    number: int,
    *,
    action: str = "",
    plan: PlanView | None = None,
    problem: AdminError | None = None,
) -> Response:
    return visit.page(
        "broker_actions.html",
        status=problem.status if problem else 200,
        broker=await brokers.get_broker(visit.admin, number),
        check=await restart.can_restart(visit.admin, number),
        action=action,
        plan=plan,
        problem=problem,
    )


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 11):
        raise NotFoundError(f"{text!r} is not the number of a broker")
    return int(text)
