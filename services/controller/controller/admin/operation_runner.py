"""OperationRunner: drives the operations while this controller is the active one."""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from tidemark.model.authorization import MEMBER
from tidemark.model.topics import TopicPartition
from tidemark.runtime.telemetry import fields

from controller.admin.context import AdminContext, Shared
from controller.admin.errors import AdminError
from controller.admin.operation_steps import Operation, Step, next_step
from controller.admin.operations import noted

log = logging.getLogger(__name__)

_STEP_S: Final = 0.5
"""Time between two looks at an unfinished operation."""
_IDLE_S: Final = 30.0
"""Time between two looks without an unfinished one; a new one is seen at once."""
_BATCH_MAX: Final = 50
_REFUSALS_MAX: Final = 5


class OperationRunner:
    """Driver of operations. Its state is in ZooKeeper, so that another controller goes on."""

    def __init__(self, shared: Shared) -> None:
        self._ctx = AdminContext(shared, MEMBER)
        self._store = shared.operations
        self._node = shared.node
        self._changed = asyncio.Event()
        self._changed.set()
        self._refusals: dict[str, dict[TopicPartition, int]] = {}

    async def run(self) -> None:
        """Drive the operations whenever this controller is active, until cancelled."""
        while True:
            await self._node.active.wait()
            watch = self._watch()
            pause_s = _STEP_S
            try:
                found = await self._store.all(watch)
                open_ones = [one for one in found if not one.is_finished]
                for one in reversed(open_ones):
                    await self._try_step(one.operation_id)
                if not open_ones:
                    self._refusals.clear()
                    await self._store.prune(found)
                    pause_s = _IDLE_S
            except AdminError as problem:
                self._changed.set()  # no watch was left
                log.info("operations not read", extra=fields(reason=problem.message))
            await self._pause(pause_s)

    async def _pause(self, pause_s: float) -> None:
        """Wait for a new operation, or for the time of the next look; not less than one step."""
        await asyncio.sleep(_STEP_S)
        try:
            async with asyncio.timeout(max(0.0, pause_s - _STEP_S)):
                await self._changed.wait()
        except TimeoutError:
            return

    def _watch(self) -> Callable[[], None] | None:
        """Return the callback of a new watch if the last one was called; a watch is called once."""
        if not self._changed.is_set():
            return None
        self._changed.clear()
        return self._changed.set

    async def _try_step(self, operation_id: str) -> None:
        """Do the next step of one operation, if it can be read: it holds up no other."""
        try:
            await self._step(operation_id)
        except AdminError as problem:
            words = fields(operation=operation_id, reason=problem.message)
            log.info("operation not continued", extra=words)

    async def _step(self, operation_id: str) -> None:
        """Do the next step of one operation, and write its progress."""
        operation, version = await self._store.get(operation_id)
        if operation.is_finished or not self._node.is_active:
            return
        moves = await self._store.moves(operation_id)
        refusals = self._refusals.setdefault(operation_id, {})
        refused = frozenset(at for at, count in refusals.items() if count >= _REFUSALS_MAX)
        now_ms = self._ctx.shared.clock.wall_ms()
        step = next_step(self._ctx.image, operation, moves, refused, now_ms=now_ms)
        problem = None
        try:
            problem = await self._perform(step, refusals)
        except AdminError as failed:
            problem = failed.message
        after = _after(operation, step, problem, refused, now_ms)
        if after != operation:
            await self._store.update(after, version)
        if after.is_finished:
            log.info(
                "operation ended",
                extra=fields(
                    operation=operation_id, operation_action=after.action, outcome=after.state
                ),
            )

    async def _perform(self, step: Step, refusals: dict[TopicPartition, int]) -> str | None:
        """Do the actions of a step. Return the first problem."""
        problem = None
        if step.submit or step.cancel:
            wanted = {move.partition: move.after for move in step.submit[:_BATCH_MAX]}
            orders = wanted if step.submit else dict.fromkeys(step.cancel)
            async with self._ctx.brokers.client() as admin:
                results = await admin.alter_partition_reassignments(orders)
            for at, error in results.items():
                if error is not None:
                    refusals[at] = refusals.get(at, 0) + 1
                    problem = problem or error.message
        if step.elect:
            async with self._ctx.brokers.client() as admin:
                await admin.elect_leaders(step.elect[:_BATCH_MAX])
        return problem


def _after(
    operation: Operation,
    step: Step,
    problem: str | None,
    refused: frozenset[TopicPartition],
    now_ms: int,
) -> Operation:
    """Return the operation after a step."""
    state = operation.state
    if step.done:
        state = "failed" if refused or step.waiting else "succeeded"
        state = "cancelled" if operation.state == "cancelling" else state
    elif state == "pending":
        state = "running"
    texts = [] if problem is None else [problem]
    begins_to_wait = step.waiting > 0 and problem is None
    if step.progress != operation.progress or step.done or begins_to_wait:
        texts.append(step.text)
    after = operation.model_copy(
        update={
            "state": state,
            "progress": 1.0 if state == "succeeded" else step.progress,
        }
    )
    for text in texts:
        if not after.messages or after.messages[-1].text != text:
            after = noted(now_ms, after, text)
    return after
