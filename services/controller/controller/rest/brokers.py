"""/v3/clusters/{cluster_id}/brokers: brokers, their replicas and log directories."""

from typing import Literal

from fastapi import Request, Response
from pydantic import Field

from controller.admin import brokers as admin
from controller.admin.paging import page
from controller.rest.changing import changed_or_checked, without_content
from controller.rest.config_changes import DryRun
from controller.rest.problems import CHANGES, RESPONSES
from controller.rest.shapes import (
    PAGE_SIZE_DEFAULT,
    BrokerIdPath,
    Collection,
    Ctx,
    Cursor,
    Here,
    Links,
    PageSize,
    Relationship,
    Resource,
    cluster_router,
)

router = cluster_router("Brokers", {**RESPONSES, **CHANGES})


class BrokerData(admin.BrokerView, Resource):
    """Broker as Confluent's REST shows it, with what the image has."""

    kind: Literal["KafkaBroker"] = "KafkaBroker"
    cluster_id: str
    configs: Relationship
    partition_replicas: Relationship
    log_dirs: Relationship


class BrokerDataList(Collection[BrokerData]):
    """Registered brokers, by id."""

    kind: Literal["KafkaBrokerList"] = "KafkaBrokerList"


class ReplicaOfBrokerData(admin.ReplicaOfBroker, Resource):
    """Replica of a broker."""

    kind: Literal["KafkaReplica"] = "KafkaReplica"
    cluster_id: str
    broker: Relationship


class ReplicaOfBrokerDataList(Collection[ReplicaOfBrokerData]):
    """Page of a broker's replicas, by topic and partition."""

    kind: Literal["KafkaReplicaList"] = "KafkaReplicaList"
    total: int = Field(examples=[60])


class LogDirsData(admin.LogDirectories, Resource):
    """Log directories of a broker."""

    kind: Literal["TidemarkLogDirectories"] = "TidemarkLogDirectories"
    cluster_id: str


def broker_data(here: Links, view: admin.BrokerView) -> BrokerData:
    """Return the answer for one broker."""
    at = ("brokers", view.broker_id)
    return BrokerData(
        **view.model_dump(),
        metadata=here.about(*at, broker=view.broker_id),
        cluster_id=here.cluster_id,
        configs=here.to(*at, "configs"),
        partition_replicas=here.to(*at, "partition-replicas"),
        log_dirs=here.to(*at, "log-dirs"),
    )


@router.get("/brokers", operation_id="listKafkaBrokers")
async def list_brokers(ctx: Ctx, here: Here) -> BrokerDataList:
    """Return all registered brokers, fenced ones too."""
    views = await admin.list_brokers(ctx)
    return BrokerDataList(metadata=here.listing(), data=[broker_data(here, one) for one in views])


@router.get("/brokers/{broker_id}", operation_id="getKafkaBroker")
async def get_broker(ctx: Ctx, here: Here, broker_id: BrokerIdPath) -> BrokerData:
    """Return one broker."""
    return broker_data(here, await admin.get_broker(ctx, broker_id))


@without_content(router.delete, "/brokers/{broker_id}", "unregisterKafkaBroker")
async def unregister(
    ctx: Ctx,
    broker_id: BrokerIdPath,
    dry_run: DryRun = False,  # noqa: FBT002
) -> Response:
    """Forget a broker that will not return: it is stopped, and has no replicas."""
    return await changed_or_checked(
        lambda: admin.unregister(ctx, broker_id),
        lambda: admin.check_unregister(ctx, broker_id),
        dry_run=dry_run,
    )


@router.get("/brokers/{broker_id}/partition-replicas", operation_id="searchKafkaReplicasByBroker")
async def partition_replicas(
    request: Request,
    ctx: Ctx,
    here: Here,
    broker_id: BrokerIdPath,
    cursor: Cursor = None,
    page_size: PageSize = PAGE_SIZE_DEFAULT,
) -> ReplicaOfBrokerDataList:
    """Return the replicas of one broker, page by page."""
    found = page(admin.replica_keys(ctx, broker_id), cursor, page_size)
    replicas = admin.replicas_of(ctx, broker_id, found.keys)
    data = [
        ReplicaOfBrokerData(
            **replicas[key].model_dump(),
            metadata=here.about(
                "topics",
                key[0],
                "partitions",
                key[1],
                "replicas",
                broker_id,
                topic=key[0],
                partition=key[1],
                replica=broker_id,
            ),
            cluster_id=here.cluster_id,
            broker=here.to("brokers", broker_id),
        )
        for key in found.keys
    ]
    return ReplicaOfBrokerDataList(
        metadata=here.listing(found.cursor, request), data=data, total=found.total
    )


@router.get("/brokers/{broker_id}/log-dirs", operation_id="getBrokerLogDirectories")
async def log_dirs(ctx: Ctx, here: Here, broker_id: BrokerIdPath) -> LogDirsData:
    """Return the log directories of one broker, with their age; `problem` is the reason
    why figures are missing.
    """
    found = await admin.log_dirs(ctx, broker_id)
    return LogDirsData(
        **found.model_dump(),
        metadata=here.about("brokers", broker_id, "log-dirs", broker=broker_id),
        cluster_id=here.cluster_id,
    )
