"""Load: throughput of the brokers, and lag of the consumer groups."""

from typing import Annotated, Literal

from fastapi import Query
from pydantic import Field

from controller.admin import load as admin
from controller.rest.problems import RESPONSES
from controller.rest.shapes import Ctx, Here, Resource, cluster_router

router = cluster_router("Load", RESPONSES)


class TrafficData(admin.Traffic, Resource):
    """Throughput of the cluster and of each broker."""

    kind: Literal["TidemarkTraffic"] = "TidemarkTraffic"
    cluster_id: str


class LagData(admin.LagView, Resource):
    """Lag of all consumer groups."""

    kind: Literal["TidemarkGroupLag"] = "TidemarkGroupLag"
    cluster_id: str
    groups_max: int = Field(description="bound of `groups`", examples=[10])


@router.get("/traffic", operation_id="getTraffic")
async def traffic(ctx: Ctx, here: Here) -> TrafficData:
    """Return the throughput, from the difference of two answers of each broker."""
    return TrafficData(
        **admin.traffic(ctx).model_dump(),
        metadata=here.about("traffic"),
        cluster_id=here.cluster_id,
    )


@router.get("/group-lag", operation_id="getGroupLag")
async def group_lag(
    ctx: Ctx,
    here: Here,
    limit: Annotated[int, Query(ge=1, le=admin.LAGS_MAX)] = admin.LAGS_MAX,
) -> LagData:
    """Return the lag of all consumer groups, and the groups with the largest."""
    found = await admin.group_lags(ctx, limit)
    return LagData(
        **found.model_dump(),
        metadata=here.about("group-lag"),
        cluster_id=here.cluster_id,
        groups_max=limit,
    )
