"""/v3/operations: long actions, with progress and cancel."""

from typing import Annotated, Literal

from fastapi import APIRouter, Path, Query, Request, Response

from controller.admin import operations as admin
from controller.admin.operation_steps import Operation
from controller.admin.paging import PAGE_MAX
from controller.rest.problems import CHANGES, RESPONSES
from controller.rest.shapes import (
    Collection,
    CollectionMetadata,
    Ctx,
    Metadata,
    Name,
    Resource,
    base_url,
)

router = APIRouter(prefix="/v3/operations", tags=["Operations"], responses={**RESPONSES, **CHANGES})

OperationId = Annotated[
    Name, Path(description="id of an operation", examples=["5f2c9a0d7be14c3f"], max_length=765)
]


class OperationData(Operation, Resource):
    """Long action."""

    kind: Literal["TidemarkOperation"] = "TidemarkOperation"


class OperationDataList(Collection[OperationData]):
    """Operations, the latest first."""

    kind: Literal["TidemarkOperationList"] = "TidemarkOperationList"


def _url(request: Request, operation_id: str) -> str:
    return f"{base_url(request)}/v3/operations/{operation_id}"


def operation_data(request: Request, one: Operation) -> OperationData:
    """Return the answer for one operation."""
    return OperationData(
        **one.model_dump(),
        metadata=Metadata(
            self=_url(request, one.operation_id),
            resource_name=f"crn:///operation={one.operation_id}",
        ),
    )


def accepted(request: Request, response: Response, one: Operation) -> OperationData:
    """Return the answer to a request that began an operation, with its location."""
    response.headers["location"] = f"/v3/operations/{one.operation_id}"
    return operation_data(request, one)


@router.get("", operation_id="listOperations")
async def list_operations(
    request: Request,
    ctx: Ctx,
    state: Annotated[
        Literal["open", "finished"] | None, Query(description="only those in this state")
    ] = None,
    page_size: Annotated[int, Query(ge=1, le=PAGE_MAX)] = 100,
) -> OperationDataList:
    """Return the operations, the latest first; old finished ones are deleted."""
    found = await admin.list_operations(ctx)
    if state is not None:
        found = [one for one in found if one.is_finished == (state == "finished")]
    return OperationDataList(
        metadata=CollectionMetadata(self=f"{base_url(request)}/v3/operations"),
        data=[operation_data(request, one) for one in found[:page_size]],
    )


@router.get("/{operation_id}", operation_id="getOperation")
async def get_operation(request: Request, ctx: Ctx, operation_id: OperationId) -> OperationData:
    """Return one operation."""
    return operation_data(request, await admin.get_operation(ctx, operation_id))


@router.delete("/{operation_id}", operation_id="cancelOperation", status_code=202)
async def cancel_operation(request: Request, ctx: Ctx, operation_id: OperationId) -> OperationData:
    """Cancel an operation: moves under way are cancelled, those that have ended stay."""
    return operation_data(request, await admin.cancel_operation(ctx, operation_id))
