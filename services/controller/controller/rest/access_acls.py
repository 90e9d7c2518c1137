"""Access control lists, as in Confluent's REST v3, and the question "may X do Y?"."""

from typing import Annotated, Literal

from fastapi import Query, Request, Response
from pydantic import Field
from tidemark.model.acls import AclBinding, AclFilter

from controller.admin import acls as admin
from controller.admin.models import Input
from controller.admin.paging import page
from controller.rest.changing import created
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
ResourceName = Annotated[
    str | None, Query(max_length=admin.TEXT_MAX, description="of this name", examples=["orders"])
]
Principal = Annotated[
    str | None, Query(max_length=admin.TEXT_MAX, description="User:name", examples=["User:alice"])
]
Host = Annotated[
    str | None, Query(max_length=admin.TEXT_MAX, description="IP address, or *", examples=["*"])
]
PatternFilter = Annotated[
    admin.AnyPattern,
    Query(description="MATCH: every ACL that covers a resource of this name, prefixed ones and *"),
]


class AclData(admin.AclView, Resource):
    """An ACL."""

    kind: Literal["KafkaAcl"] = "KafkaAcl"
    cluster_id: str


class AclDataList(Collection[AclData]):
    """ACLs that a filter selects."""

    kind: Literal["KafkaAclList"] = "KafkaAclList"
    total: int = Field(examples=[1])
    enforcement: admin.Enforcement


class DeletedAcls(Collection[AclData]):
    """ACLs that were deleted, or in a dry run would be."""

    kind: Literal["KafkaAclList"] = "KafkaAclList"


class AclBatch(Input):
    """ACLs to add together."""

    data: list[admin.AclInput] = Field(min_length=1, max_length=admin.ACLS_MAX)


class AclCheckData(admin.CheckView, Resource):
    """Answer to "may X do Y?"."""

    kind: Literal["TidemarkAclCheck"] = "TidemarkAclCheck"
    cluster_id: str


def acl_data(here: Links, binding: AclBinding) -> AclData:
    """Return the answer for one ACL. Its link is the list of this ACL alone."""
    view = admin.view(binding)
    names = view.model_dump()
    metadata = Metadata(
        self=here.with_query("acls", **names), resource_name=here.about().resource_name
    )
    return AclData(**names, metadata=metadata, cluster_id=here.cluster_id)


@router.get("/acls", operation_id="getKafkaAcls")
async def list_acls(  # a filter and a page
    request: Request,
    ctx: Ctx,
    here: Here,
    resource_type: admin.AnyResourceType = "ANY",
    resource_name: ResourceName = None,
    pattern_type: PatternFilter = "ANY",
    principal: Principal = None,
    host: Host = None,
    operation: admin.AnyOperation = "ANY",
    permission: admin.AnyPermission = "ANY",
    cursor: Cursor = None,
    page_size: PageSize = PAGE_SIZE_DEFAULT,
) -> AclDataList:
    """Return the ACLs that the filter selects, and whether brokers enforce them. ACLs that come or
    go between two pages shift the next one.
    """
    wanted = admin.filter_of(
        resource_type=resource_type,
        resource_name=resource_name,
        pattern_type=pattern_type,
        principal=principal,
        host=host,
        operation=operation,
        permission=permission,
    )
    listed = admin.listed(ctx, wanted)
    found = page(range(len(listed)), cursor, page_size)
    return AclDataList(
        metadata=here.listing(found.cursor, request),
        data=[acl_data(here, listed[at]) for at in found.keys],
        total=found.total,
        enforcement=await admin.enforcement(ctx),
    )


@created(router, "/acls", "createKafkaAcls")
async def create_acl(
    ctx: Ctx,
    here: Here,
    acl: admin.AclInput,
    dry_run: DryRun = False,  # noqa: FBT002
    _: IdempotencyKey = None,
) -> Response:
    """Add an ACL. One that exists stays."""
    return await _created(ctx, here, [acl], dry_run=dry_run)


@created(router, "/acls:batch", "batchCreateKafkaAcls")
async def create_acls(
    ctx: Ctx,
    here: Here,
    batch: AclBatch,
    dry_run: DryRun = False,  # noqa: FBT002
    _: IdempotencyKey = None,
) -> Response:
    """Add several ACLs. If one of them is wrong, none is added."""
    return await _created(ctx, here, batch.data, dry_run=dry_run)


async def _created(
    ctx: Ctx, here: Links, inputs: list[admin.AclInput], *, dry_run: bool
) -> Response:
    await admin.create(ctx, inputs, dry_run=dry_run)
    if dry_run:
        return Response(status_code=204)
    return Response(status_code=201, headers={"location": here.url("acls")})


@router.delete("/acls", operation_id="deleteKafkaAcls")
async def delete_acls(
    ctx: Ctx,
    here: Here,
    resource_type: Annotated[admin.AnyResourceType, Query()],
    pattern_type: Annotated[admin.AnyPattern, Query()],
    operation: Annotated[admin.AnyOperation, Query()],
    permission: Annotated[admin.AnyPermission, Query()],
    resource_name: ResourceName = None,
    principal: Principal = None,
    host: Host = None,
    dry_run: DryRun = False,  # noqa: FBT002
) -> DeletedAcls:
    """Delete the ACLs that the filter selects, and return them."""
    wanted: AclFilter = admin.filter_of(
        resource_type=resource_type,
        resource_name=resource_name,
        pattern_type=pattern_type,
        principal=principal,
        host=host,
        operation=operation,
        permission=permission,
    )
    deleted = await admin.delete(ctx, wanted, dry_run=dry_run)
    return DeletedAcls(metadata=here.listing(), data=[acl_data(here, one) for one in deleted])


@router.get("/acls:check", operation_id="checkAccess")
async def check(
    ctx: Ctx,
    here: Here,
    principal: Annotated[
        str,
        Query(max_length=admin.TEXT_MAX, description="User:name", examples=["User:alice"]),
    ],
    operation: admin.OperationName,
    resource_type: admin.ResourceTypeName,
    resource_name: Annotated[
        str, Query(max_length=admin.TEXT_MAX, description="not used for CLUSTER")
    ] = "",
    host: Annotated[
        str,
        Query(
            max_length=admin.TEXT_MAX,
            description="IP address of the client; without it, ACLs for all hosts apply",
        ),
    ] = "",
) -> AclCheckData:
    """Answer whether a principal may do an operation, and which rule decides it. Nothing is done,
    and the resource need not exist.
    """
    asked = admin.Question(principal, host, operation, resource_type, resource_name)
    found = await admin.check(ctx, asked)
    return AclCheckData(
        **found.model_dump(), metadata=here.about("acls", ":check"), cluster_id=here.cluster_id
    )
