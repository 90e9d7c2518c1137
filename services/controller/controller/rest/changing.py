"""Frames of requests that change something: checks without a change, and operations that begin."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Depends, Request, Response

from controller.admin.operation_steps import Operation
from controller.admin.reassignments import PlanView
from controller.rest.operations import OperationData, accepted
from controller.rest.shapes import Here, Links, Resource

_OK: Final = 200
_CREATED: Final = 201
_ACCEPTED: Final = 202
_NO_CONTENT: Final = 204

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


class PlanData(PlanView, Resource):
    """Moves of a plan; nothing has been changed."""

    kind: Literal["TidemarkReassignmentPlan"] = "TidemarkReassignmentPlan"
    cluster_id: str


def plan_data(here: Links, plan: PlanView) -> PlanData:
    """Return the answer for a plan."""
    return PlanData(
        **plan.model_dump(), metadata=here.about("reassignments"), cluster_id=here.cluster_id
    )


# -- changes without content


def without_content(method: Callable[..., Decorator], path: str, operation_id: str) -> Decorator:
    """Return the decorator of a request whose answer is 204. ``method`` is that of a router."""
    return method(path, operation_id=operation_id, status_code=_NO_CONTENT, response_model=None)


def created(router: APIRouter, path: str, operation_id: str) -> Decorator:
    """Return the decorator of a POST whose answer is 201 without content; 204 in a dry run."""
    return router.post(
        path,
        operation_id=operation_id,
        status_code=_CREATED,
        responses={_NO_CONTENT: {"description": "valid; nothing was changed"}},
        response_model=None,
        response_class=Response,
    )


def done() -> Response:
    """Return the answer 204."""
    return Response(status_code=_NO_CONTENT)


async def changed_or_checked(
    change: Callable[[], Awaitable[object]],
    check: Callable[[], Awaitable[object]],
    *,
    dry_run: bool,
) -> Response:
    """Change something, or in a dry run check only that it exists. Raises AdminError."""
    await (check if dry_run else change)()
    return done()


# -- operations


def begins_operation(
    router: APIRouter, path: str, operation_id: str, *, tags: list[str | Enum] | None = None
) -> Decorator:
    """Return the decorator of a POST that begins an operation, or in a dry run returns its plan."""
    return router.post(
        path,
        operation_id=operation_id,
        status_code=_ACCEPTED,
        tags=tags,
        responses={_OK: {"model": PlanData, "description": "dry run: the moves"}},
        response_model=OperationData | PlanData,
    )


@dataclass(frozen=True, slots=True)
class Beginning:
    """Request that begins an operation, and its answer."""

    request: Request
    response: Response
    here: Links

    async def answer(
        self,
        begin: Callable[[], Awaitable[Operation]],
        plan: Callable[[], Awaitable[PlanView]],
        *,
        dry_run: bool,
    ) -> OperationData | PlanData:
        """Begin the operation, or in a dry run return its plan with 200. Raises AdminError."""
        if dry_run:
            self.response.status_code = _OK
            return plan_data(self.here, await plan())
        return accepted(self.request, self.response, await begin())


def beginning(request: Request, response: Response, here: Here) -> Beginning:
    """Return the frame of a request that begins an operation."""
    return Beginning(request, response, here)


Begin = Annotated[Beginning, Depends(beginning)]
