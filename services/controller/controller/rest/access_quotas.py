"""Client quotas: listed, set and removed."""

from typing import Annotated, Literal

from fastapi import Query, Request
from pydantic import Field
from tidemark.model.quotas import QuotaEntity

from controller.admin import quotas as admin
from controller.admin.errors import bad_value
from controller.admin.paging import page
from controller.rest.idempotent import IdempotencyKey, IdempotentRoute
from controller.rest.problems import CHANGES, RESPONSES
from controller.rest.shapes import (
    PAGE_SIZE_DEFAULT,
    Collection,
    Ctx,
    Cursor,
    Here,
    Links,
    Metadata,
    PageSize,
    Resource,
    cluster_router,
)

router = cluster_router("Access", {**RESPONSES, **CHANGES}, route_class=IdempotentRoute)

DryRun = Annotated[bool, Query(description="check and show, and change nothing")]
Part = Annotated[str | None, Query(max_length=admin.NAME_MAX, min_length=1)]
Defaults = Annotated[
    list[admin.EntityType],
    Query(max_length=2, description="types of which the default is meant", examples=[["user"]]),
]


class QuotaData(admin.QuotaView, Resource):
    """Quotas of an entity."""

    kind: Literal["TidemarkQuota"] = "TidemarkQuota"
    cluster_id: str


class QuotaDataList(Collection[QuotaData]):
    """Page of quotas, by entity."""

    kind: Literal["TidemarkQuotaList"] = "TidemarkQuotaList"
    total: int = Field(examples=[1])


def _data(here: Links, view: admin.QuotaView) -> QuotaData:
    """Return the answer for one entity. Its link is the list of this entity and of those with
    further parts.
    """
    return QuotaData(
        **view.model_dump(),
        metadata=Metadata(
            self=here.with_query("quotas", **_query(view.entity)),
            resource_name=here.about().resource_name,
        ),
        cluster_id=here.cluster_id,
    )


def _query(entity: admin.Entity) -> dict[str, str | list[str]]:
    named: dict[str, str | list[str]] = {
        one.replace("-", "_"): name for one, name in entity.items() if name is not None
    }
    defaults: list[str] = [one for one, name in entity.items() if name is None]
    return {**named, "default": defaults} if defaults else named


@router.get("/quotas", operation_id="listQuotas")
async def list_quotas(  # an entity and a page
    request: Request,
    ctx: Ctx,
    here: Here,
    user: Part = None,
    client_id: Part = None,
    ip: Part = None,
    default: Defaults = [],  # noqa: B006 - never changed
    cursor: Cursor = None,
    page_size: PageSize = PAGE_SIZE_DEFAULT,
) -> QuotaDataList:
    """Return the quotas of all entities, or of those with these parts."""
    wanted = _names(user, client_id, ip, default)
    entity = admin.entity_of(wanted) if wanted else QuotaEntity()
    listed = admin.listed(ctx, entity)
    found = page(range(len(listed)), cursor, page_size)
    return QuotaDataList(
        metadata=here.listing(found.cursor, request),
        data=[_data(here, listed[at]) for at in found.keys],
        total=found.total,
    )


@router.post("/quotas:alter", operation_id="alterQuotas")
async def alter(
    ctx: Ctx,
    here: Here,
    change: admin.QuotaChange,
    dry_run: DryRun = False,  # noqa: FBT002
    _: IdempotencyKey = None,
) -> QuotaData:
    """Set quotas of an entity, and with null remove them; return all that it has then."""
    return _data(here, await admin.alter(ctx, change, dry_run=dry_run))


@router.delete("/quotas", operation_id="deleteQuotas")
async def delete(
    ctx: Ctx,
    here: Here,
    user: Part = None,
    client_id: Part = None,
    ip: Part = None,
    default: Defaults = [],  # noqa: B006 - never changed
    dry_run: DryRun = False,  # noqa: FBT002
) -> QuotaData:
    """Remove all quotas of one entity, and return those that it had."""
    wanted = _names(user, client_id, ip, default)
    if not wanted:
        raise bad_value(
            "no entity is named", field="user", remedy="name a user, a client_id, both, or an ip"
        )
    return _data(here, await admin.remove(ctx, admin.entity_of(wanted), dry_run=dry_run))


def _names(
    user: str | None, client_id: str | None, ip: str | None, defaults: list[admin.EntityType]
) -> dict[admin.EntityType, str | None]:
    """Return the names of an entity by type. Raises AdminError for a name with its default."""
    given: dict[admin.EntityType, str | None] = {"user": user, "client-id": client_id, "ip": ip}
    named = {one: name for one, name in given.items() if name is not None}
    for one in defaults:
        if one in named:
            raise bad_value(f"{one} is named, and its default too", field="default")
    return {**named, **dict.fromkeys(defaults)}
