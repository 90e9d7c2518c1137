"""Long actions: begun on any controller, driven by the active one, with progress and cancel."""

import hashlib
import secrets
from collections.abc import Sequence
from typing import Final

from tidemark.model.authorization import Operation as Permission
from tidemark.plans.reassignment import Move

from controller.admin import reassignments
from controller.admin.brokers import require_broker
from controller.admin.context import AdminContext
from controller.admin.errors import bad_value, conflict
from controller.admin.operation_steps import (
    Kind,
    Operation,
    OperationMessage,
    drain_moves,
    restored,
)
from controller.admin.operation_store import OPEN_MAX
from controller.admin.reassignments import PlanRequest, PlanView, WantedReplicas

_ID_CHARS: Final = 24


async def list_operations(ctx: AdminContext) -> list[Operation]:
    """Return the operations, the latest first. Raises AdminError."""
    ctx.require(Permission.DESCRIBE)
    return await ctx.shared.operations.all()


async def get_operation(ctx: AdminContext, operation_id: str) -> Operation:
    """Return one operation. Raises AdminError."""
    ctx.require(Permission.DESCRIBE)
    return (await ctx.shared.operations.get(operation_id))[0]


async def cancel_operation(ctx: AdminContext, operation_id: str) -> Operation:
    """Ask the active controller to cancel an operation. Moves that have ended are not undone.
    Raises AdminError.
    """
    ctx.require(Permission.ALTER)
    operation, version = await ctx.shared.operations.get(operation_id)
    if operation.is_finished:
        raise conflict(f"operation {operation_id} has {operation.state} already")
    if operation.state != "cancelling":
        changed = operation.model_copy(update={"state": "cancelling"})
        changed = noted(ctx.shared.clock.wall_ms(), changed, "cancel was requested")
        await ctx.shared.operations.update(changed, version)
        operation = changed
    return operation


async def reassign(
    ctx: AdminContext, wanted: Sequence[WantedReplicas], *, key: str | None = None
) -> Operation:
    """Begin to move partitions to wanted replicas. Raises AdminError."""
    ctx.require(Permission.ALTER)
    moves = reassignments.moves_to(ctx.image, wanted)
    subject = f"{len(moves)} partitions"
    return await _begin(ctx, "reassign", subject, moves, key=key)


async def plan_reassign(ctx: AdminContext, wanted: Sequence[WantedReplicas]) -> PlanView:
    """Return the moves to wanted replicas. Raises AdminError."""
    ctx.require(Permission.ALTER)
    return await reassignments.plan_view(ctx, reassignments.moves_to(ctx.image, wanted), [])


async def decommission(ctx: AdminContext, broker_id: int, *, key: str | None = None) -> Operation:
    """Begin to move all replicas away from a broker. Raises AdminError."""
    ctx.require(Permission.ALTER)
    moves = _leaving(ctx, broker_id)[0]
    text = f"stop broker {broker_id} once this has succeeded: it has no replica then"
    return await _begin(
        ctx, "decommission", f"broker {broker_id}", moves, broker_id=broker_id, key=key, text=text
    )


async def plan_decommission(ctx: AdminContext, broker_id: int) -> PlanView:
    """Return the moves of a decommission. Raises AdminError."""
    ctx.require(Permission.ALTER)
    moves, notes = _leaving(ctx, broker_id)
    return await reassignments.plan_view(ctx, moves, notes)


def _leaving(ctx: AdminContext, broker_id: int) -> tuple[list[Move], list[str]]:
    require_broker(ctx, broker_id)
    return reassignments.planned(ctx.image, PlanRequest(leaving=[broker_id]))


async def drain(ctx: AdminContext, broker_id: int, *, key: str | None = None) -> Operation:
    """Begin to give the leaderships of a broker to others, where it stays a replica. Raises
    AdminError.
    """
    ctx.require(Permission.ALTER)
    require_broker(ctx, broker_id)
    moves, alone = drain_moves(ctx.image, broker_id)
    text = f"{alone} partitions have no other replica and stay" if alone else None
    return await _begin(
        ctx, "drain", f"broker {broker_id}", moves, broker_id=broker_id, key=key, text=text
    )


async def plan_drain(ctx: AdminContext, broker_id: int) -> PlanView:
    """Return the moves of a drain. Raises AdminError."""
    ctx.require(Permission.ALTER)
    require_broker(ctx, broker_id)
    moves, alone = drain_moves(ctx.image, broker_id)
    notes = [f"{alone} partitions have no other replica and stay"] if alone else []
    return await reassignments.plan_view(ctx, moves, notes)


async def undrain(ctx: AdminContext, broker_id: int, *, key: str | None = None) -> Operation:
    """Begin to give the leaderships of a drained broker back. Raises AdminError."""
    ctx.require(Permission.ALTER)
    moves = await _undrained(ctx, broker_id)
    return await _begin(ctx, "undrain", f"broker {broker_id}", moves, broker_id=broker_id, key=key)


async def plan_undrain(ctx: AdminContext, broker_id: int) -> PlanView:
    """Return the moves of the end of a drain. Raises AdminError."""
    ctx.require(Permission.ALTER)
    return await reassignments.plan_view(ctx, await _undrained(ctx, broker_id), [])


async def _undrained(ctx: AdminContext, broker_id: int) -> list[Move]:
    """Return the moves that undo all drains of a broker since the last undrain."""
    require_broker(ctx, broker_id)
    earlier: dict[object, Move] = {}
    found = False
    for one in await ctx.shared.operations.all():
        if one.broker_id != broker_id or one.action not in ("drain", "undrain"):
            continue
        if one.action == "undrain" and one.state == "succeeded":
            break
        if one.action == "drain":
            found = True
            for move in await ctx.shared.operations.moves(one.operation_id):
                earlier[move.partition] = move
    if not found:
        raise conflict(f"broker {broker_id} is not drained", field="broker_id")
    return restored(ctx.image, list(earlier.values()))


async def _begin(
    ctx: AdminContext,
    kind: Kind,
    subject: str,
    moves: Sequence[Move],
    *,
    broker_id: int | None = None,
    key: str | None = None,
    text: str | None = None,
) -> Operation:
    """Store an operation, which the active controller drives then. With the same ``key`` there is
    one operation, however often it is begun.
    """
    if len(moves) > reassignments.MOVES_MAX:
        raise bad_value(
            f"an operation may move {reassignments.MOVES_MAX} partitions, not {len(moves)}",
            remedy="move fewer topics at a time",
        )
    running = [one for one in await ctx.shared.operations.all() if not one.is_finished]
    operation_id = secrets.token_hex(_ID_CHARS // 2)
    if key is not None:
        digest = hashlib.sha256(f"{ctx.principal}\0{kind}\0{broker_id}\0{key}".encode())
        operation_id = digest.hexdigest()[:_ID_CHARS]
    if not any(one.operation_id == operation_id for one in running):
        _require_free(running, broker_id)
    now_ms = ctx.shared.clock.wall_ms()
    operation = Operation(
        operation_id=operation_id,
        action=kind,
        subject=subject,
        state="pending",
        progress=0,
        messages=[],
        moves_count=len(moves),
        broker_id=broker_id,
        principal=ctx.principal,
        created_ms=now_ms,
        updated_ms=now_ms,
    )
    if text is not None:
        operation = noted(now_ms, operation, text)
    if not await ctx.shared.operations.create(operation, moves):
        return await get_operation(ctx, operation_id)
    return operation


def _require_free(running: Sequence[Operation], broker_id: int | None) -> None:
    if len(running) >= OPEN_MAX:
        raise conflict(
            f"{len(running)} operations are under way", remedy="wait, or cancel one of them"
        )
    for one in running:
        if broker_id is not None and one.broker_id == broker_id:
            raise conflict(
                f"operation {one.operation_id} ({one.action}) of broker {broker_id} is under way",
                remedy=f"cancel it: DELETE /v3/operations/{one.operation_id}",
            )


def noted(now_ms: int, operation: Operation, text: str) -> Operation:
    """Return an operation with one message more."""
    message = OperationMessage(at_ms=now_ms, text=text)
    messages = [*operation.messages, message][-50:]
    return operation.model_copy(update={"messages": messages, "updated_ms": now_ms})
