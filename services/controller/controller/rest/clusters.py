"""/v3/clusters: the cluster, and what it links to."""

from typing import Literal

from fastapi import APIRouter, Request
from pydantic import Field

from controller.admin import cluster as admin
from controller.rest.problems import RESPONSES
from controller.rest.shapes import (
    Collection,
    CollectionMetadata,
    Ctx,
    Here,
    Links,
    Metadata,
    Relationship,
    Resource,
    base_url,
)

router = APIRouter(tags=["Cluster"], responses=RESPONSES)


class ClusterData(admin.ControllerView, Resource):
    """Cluster as Confluent's REST shows it, with what the controller adds."""

    kind: Literal["KafkaCluster"] = "KafkaCluster"
    cluster_id: str | None = Field(examples=["mJ2v1Yd5S6uI0F6h7kPzDw"])
    metadata_version: int = Field(examples=[812])
    brokers_count: int = Field(examples=[3])
    fenced_brokers_count: int = Field(examples=[0])
    topics_count: int = Field(examples=[12])
    partitions_count: int = Field(examples=[60])
    leaderless_partitions: int = Field(examples=[0])
    under_replicated_partitions: int = Field(examples=[0])
    reassigning_partitions: int = Field(examples=[0])
    coordinators: list[admin.Coordinators]
    controller: Relationship | None = None
    acls: Relationship | None = None
    brokers: Relationship | None = None
    broker_configs: Relationship | None = None
    consumer_groups: Relationship | None = None
    topics: Relationship | None = None
    partition_reassignments: Relationship | None = None
    share_groups: Relationship | None = None
    transactions: Relationship | None = None
    health: Relationship | None = None


class ClusterDataList(Collection[ClusterData]):
    """Clusters: the one of this controller."""

    kind: Literal["KafkaClusterList"] = "KafkaClusterList"


def _data(found: admin.ClusterView, base: str) -> ClusterData:
    """A controller without metadata has no cluster id, and so no links below it."""
    cluster_id = found.cluster_id
    counts = found.model_dump(exclude={"brokers", "fenced_brokers", "topics", "partitions"})
    here = Links(base, cluster_id or "", "")
    related = {
        "acls": here.to("acls"),
        "brokers": here.to("brokers"),
        "broker_configs": here.to("broker-configs"),
        "consumer_groups": here.to("consumer-groups"),
        "topics": here.to("topics"),
        "partition_reassignments": here.to("topics", "-", "partitions", "-", "reassignment"),
        "share_groups": here.to("share-groups"),
        "transactions": here.to("transactions"),
        "health": here.to("health"),
    }
    return ClusterData(
        **counts,
        metadata=here.about() if cluster_id else Metadata(self=f"{base}/v3/clusters"),
        brokers_count=found.brokers,
        fenced_brokers_count=found.fenced_brokers,
        topics_count=found.topics,
        partitions_count=found.partitions,
        **(related if cluster_id else {}),
    )


@router.get("/v3/clusters", operation_id="listKafkaClusters")
async def list_clusters(request: Request, ctx: Ctx) -> ClusterDataList:
    """Return the cluster of this controller, active or not."""
    base = base_url(request)
    return ClusterDataList(
        metadata=CollectionMetadata(self=f"{base}/v3/clusters"),
        data=[_data(await admin.cluster(ctx), base)],
    )


@router.get("/v3/clusters/{cluster_id}", operation_id="getKafkaCluster")
async def get_cluster(ctx: Ctx, here: Here) -> ClusterData:
    """Return the cluster."""
    return _data(await admin.cluster(ctx), here.base)
