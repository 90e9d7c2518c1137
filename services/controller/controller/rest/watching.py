"""Health, events and diagnostics."""

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated, Any, Final, Literal

from fastapi import Header, Query, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import Field
from starlette.types import Receive, Scope, Send
from tidemark.model.authorization import Operation

from controller.admin import diagnostics as diagnostics_admin
from controller.admin import health as health_admin
from controller.admin.context import AdminContext
from controller.admin.errors import TOO_MANY, AdminError
from controller.admin.events import Event
from controller.rest.problems import RESPONSES
from controller.rest.shapes import (
    Collection,
    Ctx,
    Here,
    Resource,
    cluster_router,
)

router = cluster_router("Health and events", RESPONSES)

STREAM: Final = "text/event-stream"
STREAM_S_MAX: Final = 300.0
"""Time after which a stream ends. Its reader connects again, from the last id on, and so proves
again who it is: a login may have been withdrawn.
"""
_HEARTBEAT_S: Final = 15.0
_EVENT_ID_MAX: Final = 2**62


class HealthData(health_admin.Health, Resource):
    """Health of the cluster."""

    kind: Literal["TidemarkHealth"] = "TidemarkHealth"
    cluster_id: str


class EventDataList(Collection[Event]):
    """Latest events, oldest first."""

    kind: Literal["TidemarkEventList"] = "TidemarkEventList"
    last_event_id: int = Field(examples=[17])


@router.get("/health", operation_id="getHealth")
async def health(ctx: Ctx, here: Here) -> HealthData:
    """Return what is wrong, why, and what to do; errors first."""
    found = await health_admin.health(ctx)
    return HealthData(
        **found.model_dump(), metadata=here.about("health"), cluster_id=here.cluster_id
    )


@router.get(
    "/events",
    operation_id="listEvents",
    response_model=EventDataList,
    responses={
        200: {
            "description": "the latest events; with `accept: text/event-stream` a stream",
            "content": {STREAM: {"schema": {"type": "string"}}},
        }
    },
)
async def events(  # a place and a form
    request: Request,
    ctx: Ctx,
    here: Here,
    after: Annotated[int, Query(ge=0, lt=_EVENT_ID_MAX, description="id of an event")] = 0,
    follow: Annotated[  # noqa: FBT002
        bool, Query(description="stream, as with accept: text/event-stream")
    ] = False,
    last_event_id: Annotated[
        int | None, Header(alias="Last-Event-ID", ge=0, lt=_EVENT_ID_MAX)
    ] = None,
) -> Any:
    """Return what changed lately; or follow it as server-sent events. Events belong to this
    controller: after a change of controller ids begin again.
    """
    log = ctx.events
    place = after if last_event_id is None else last_event_id
    if follow or STREAM in request.headers.get("accept", ""):
        return _stream(ctx, place)
    return EventDataList(metadata=here.listing(), data=log.after(place), last_event_id=log.last_id)


def _stream(ctx: AdminContext, place: int) -> Response:
    if ctx.shared.streams >= ctx.shared.limits.streams_max:
        raise AdminError(429, TOO_MANY, f"{ctx.shared.streams} event streams are open")
    return _EventStream(ctx, place)


class _EventStream(StreamingResponse):
    """Stream that counts while it is being answered. A client that leaves before the first event
    ends the answer before its body begins.
    """

    def __init__(self, ctx: AdminContext, place: int) -> None:
        headers = {"cache-control": "no-store"}
        super().__init__(_follow(ctx, place), media_type=STREAM, headers=headers)
        self._shared = ctx.shared

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        self._shared.streams += 1
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._shared.streams -= 1


async def _follow(ctx: AdminContext, place: int) -> AsyncIterator[str]:
    """Yield events as long as the caller may see them, for STREAM_S_MAX at most."""
    log, now_s = ctx.events, asyncio.get_running_loop().time
    ends = now_s() + STREAM_S_MAX
    yield "retry: 2000\n\n"
    place = min(place, log.last_id)
    while now_s() < ends and ctx.may(Operation.DESCRIBE):
        for one in log.after(place):
            place = one.event_id
            yield f"id: {one.event_id}\nevent: {one.type}\ndata: {one.model_dump_json()}\n\n"
        try:
            async with asyncio.timeout(_HEARTBEAT_S):
                await log.wait()
        except TimeoutError:
            yield ": nothing has changed\n\n"


@router.get(
    "/diagnostics",
    operation_id="getDiagnostics",
    response_class=Response,
    responses={
        200: {
            "description": "a ZIP archive of JSON files",
            "content": {"application/zip": {"schema": {"type": "string", "format": "binary"}}},
        }
    },
)
async def diagnostics(ctx: Ctx, here: Here) -> Response:
    """Return a bundle for a report of a problem: metadata, configuration without secrets, health,
    events, operations and log levels, as this controller has them. No records.
    """
    content = await diagnostics_admin.bundle(ctx)
    name = f'attachment; filename="tidemark-diagnostics-{here.cluster_id}.zip"'
    return Response(content, media_type="application/zip", headers={"content-disposition": name})
