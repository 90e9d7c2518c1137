"""Share groups: members, offsets, records in flight, and moves of start offsets."""

from typing import Annotated, Literal

from fastapi import Query, Request, Response
from pydantic import Field

from controller.admin import groups
from controller.admin import share_groups as admin
from controller.admin.errors import bad_value
from controller.admin.group_offsets import ResetRequest
from controller.admin.groups import GroupView, ResetResult
from controller.admin.models import ItemProblem
from controller.admin.paging import page
from controller.rest.changing import changed_or_checked, without_content
from controller.rest.idempotent import IdempotencyKey, IdempotentRoute
from controller.rest.problems import CHANGES, RESPONSES
from controller.rest.shapes import (
    PAGE_SIZE_DEFAULT,
    Collection,
    Ctx,
    Cursor,
    GroupId,
    Here,
    PageSize,
    Relationship,
    Resource,
    cluster_router,
)

router = cluster_router("Share groups", {**RESPONSES, **CHANGES}, route_class=IdempotentRoute)


class ShareGroupListed(GroupView, Resource):
    """Share group of a listing."""

    kind: Literal["KafkaShareGroup"] = "KafkaShareGroup"
    cluster_id: str
    group: Relationship


class ShareGroupDataList(Collection[ShareGroupListed]):
    """Page of share groups, by id."""

    kind: Literal["KafkaShareGroupList"] = "KafkaShareGroupList"
    total: int = Field(examples=[1])
    problems: list[ItemProblem] = Field(description="brokers that did not answer in time")


class ShareGroupData(admin.ShareGroupDetail, Resource):
    """Share group with its members and partitions."""

    kind: Literal["KafkaShareGroup"] = "KafkaShareGroup"
    cluster_id: str


class ShareMemberData(admin.ShareMember, Resource):
    """Member of a share group."""

    kind: Literal["KafkaShareGroupMember"] = "KafkaShareGroupMember"
    cluster_id: str


class ShareMemberDataList(Collection[ShareMemberData]):
    """Members of a share group."""

    kind: Literal["KafkaShareGroupMemberList"] = "KafkaShareGroupMemberList"


class ShareOffsetData(admin.SharePartition, Resource):
    """Start offset and lag of a share group in one partition."""

    kind: Literal["KafkaShareGroupOffset"] = "KafkaShareGroupOffset"
    cluster_id: str


class ShareOffsetDataList(Collection[ShareOffsetData]):
    """Start offsets and lags of a share group."""

    kind: Literal["KafkaShareGroupOffsetList"] = "KafkaShareGroupOffsetList"


class ShareWindowData(admin.ShareWindowView, Resource):
    """Records in flight of one share-partition."""

    kind: Literal["KafkaShareGroupWindow"] = "KafkaShareGroupWindow"
    cluster_id: str


class ShareResetData(ResetResult, Resource):
    """Moves of a reset; with `dry_run` nothing was changed."""

    kind: Literal["TidemarkOffsetReset"] = "TidemarkOffsetReset"
    cluster_id: str


DryRun = Annotated[bool, Query(description="show, and change nothing")]


@router.get("/share-groups", operation_id="listShareGroups")
async def list_share_groups(
    request: Request,
    ctx: Ctx,
    here: Here,
    cursor: Cursor = None,
    page_size: PageSize = PAGE_SIZE_DEFAULT,
) -> ShareGroupDataList:
    """Return share groups by id, page by page."""
    listed, problems = await admin.list_share_groups(ctx)
    known = {one.group_id: one for one in listed}
    found = page(sorted(known), cursor, page_size)
    data = [
        ShareGroupListed(
            **known[name].model_dump(exclude={"kind"}),
            metadata=here.about("share-groups", name, share_group=name),
            cluster_id=here.cluster_id,
            group=here.to("share-groups", name),
        )
        for name in found.keys
    ]
    return ShareGroupDataList(
        metadata=here.listing(found.cursor, request),
        data=data,
        total=found.total,
        problems=problems,
    )


@router.get("/share-groups/{group_id}", operation_id="getShareGroup")
async def get_share_group(ctx: Ctx, here: Here, group_id: GroupId) -> ShareGroupData:
    """Return one share group with its members and partitions."""
    found = await admin.get_share_group(ctx, group_id)
    return ShareGroupData(
        **found.model_dump(),
        metadata=here.about("share-groups", group_id, share_group=group_id),
        cluster_id=here.cluster_id,
    )


@without_content(router.delete, "/share-groups/{group_id}", "deleteShareGroup")
async def delete_share_group(
    ctx: Ctx,
    group_id: GroupId,
    dry_run: DryRun = False,  # noqa: FBT002
) -> Response:
    """Delete a share group without members, with its state."""
    return await changed_or_checked(
        lambda: groups.delete(ctx, group_id, is_share=True),
        lambda: admin.check_delete(ctx, group_id),
        dry_run=dry_run,
    )


@router.get("/share-groups/{group_id}/members", operation_id="listShareGroupMembers")
async def list_members(ctx: Ctx, here: Here, group_id: GroupId) -> ShareMemberDataList:
    """Return the members of a share group."""
    found = await admin.get_share_group(ctx, group_id)
    data = [
        ShareMemberData(
            **one.model_dump(),
            metadata=here.about(
                "share-groups", group_id, "members", share_group=group_id, member=one.member_id
            ),
            cluster_id=here.cluster_id,
        )
        for one in found.members
    ]
    return ShareMemberDataList(metadata=here.listing(), data=data)


@router.get("/share-groups/{group_id}/offsets", operation_id="listShareGroupOffsets")
async def list_offsets(ctx: Ctx, here: Here, group_id: GroupId) -> ShareOffsetDataList:
    """Return start offset and lag of a share group in each partition."""
    found = await admin.get_share_group(ctx, group_id)
    data = [
        ShareOffsetData(
            **one.model_dump(),
            metadata=here.about(
                "share-groups",
                group_id,
                "offsets",
                share_group=group_id,
                topic=one.topic_name,
                partition=one.partition_id,
            ),
            cluster_id=here.cluster_id,
        )
        for one in found.partitions
    ]
    return ShareOffsetDataList(metadata=here.listing(), data=data)


@router.get("/share-groups/{group_id}/browse", operation_id="browseShareGroup")
async def browse(  # a share-partition and a range
    ctx: Ctx,
    here: Here,
    group_id: GroupId,
    topic: Annotated[str, Query(max_length=249)],
    partition: Annotated[int, Query(ge=0, lt=2**31)] = 0,
    first_offset: Annotated[int, Query(ge=0, lt=2**63)] = 0,
    last_offset: Annotated[int | None, Query(ge=0, lt=2**63)] = None,
) -> ShareWindowData:
    """Return the records in flight of one share-partition, by state; takes no locks."""
    found = await admin.browse(
        ctx, group_id, topic, partition, first_offset=first_offset, last_offset=last_offset
    )
    return ShareWindowData(
        **found.model_dump(),
        metadata=here.about(
            "share-groups",
            group_id,
            "browse",
            share_group=group_id,
            topic=topic,
            partition=partition,
        ),
        cluster_id=here.cluster_id,
    )


@router.post("/share-groups/{group_id}:reset", operation_id="resetShareGroup")
async def reset(  # a path, a body and its options
    ctx: Ctx,
    here: Here,
    group_id: GroupId,
    request: ResetRequest,
    dry_run: DryRun = False,  # noqa: FBT002
    _: IdempotencyKey = None,
) -> ShareResetData:
    """Move the start offsets of a share group without members. Records from there on are delivered
    again.
    """
    if request.to == "csv":
        raise bad_value("a share group is not reset by CSV", field="to")
    found = await admin.reset(
        ctx, group_id, request.to, request.value or 0, topic=request.topic_name, dry_run=dry_run
    )
    return ShareResetData(
        **found.model_dump(),
        metadata=here.about("share-groups", group_id, share_group=group_id),
        cluster_id=here.cluster_id,
    )
