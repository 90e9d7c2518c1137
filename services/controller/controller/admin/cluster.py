"""The cluster: its brokers, controllers and coordinators, as the metadata image has them."""

from collections import Counter

from pydantic import Field
from tidemark.model.ids import NO_BROKER
from tidemark.model.metadata import COORDINATOR_KINDS, NO_COORDINATOR

from controller.admin.context import AdminContext
from controller.admin.models import Model


class Coordinators(Model):
    """Registered replicas of one kind of coordinators, and the shards of the kind."""

    kind: str = Field(description="txn or share", examples=["txn"])
    coordinator_ids: list[int] = Field(examples=[[1]])
    shards: int = Field(description="shards of the kind's state topic", examples=[50])
    unowned_shards: int = Field(examples=[0])


class ControllerView(Model):
    """This controller, and the active one."""

    replica_id: int = Field(description="controller that answers", examples=[1])
    active: bool = Field(description="true if it is the active one", examples=[True])
    controller_id: int | None = Field(description="active controller", examples=[1])
    controller_epoch: int | None = Field(examples=[4])
    controller_endpoint: str | None = Field(examples=["127.0.0.1:19090"])


class ClusterView(ControllerView):
    """Cluster with its counts."""

    cluster_id: str | None = Field(
        description="null while this controller has no metadata",
        examples=["mJ2v1Yd5S6uI0F6h7kPzDw"],
    )
    metadata_version: int = Field(
        description="position of this controller's metadata in the feed", examples=[812]
    )
    brokers: int = Field(examples=[3])
    fenced_brokers: int = Field(examples=[0])
    topics: int = Field(examples=[12])
    partitions: int = Field(examples=[60])
    leaderless_partitions: int = Field(examples=[0])
    under_replicated_partitions: int = Field(examples=[0])
    reassigning_partitions: int = Field(examples=[0])
    coordinators: list[Coordinators]


async def cluster(ctx: AdminContext) -> ClusterView:
    """Return the cluster. Never raises: without metadata the counts are 0."""
    image = ctx.shared.image()
    partitions = [one for topic in image.topics.values() for one in topic.partitions]
    return ClusterView(
        **controller(ctx).model_dump(),
        cluster_id=image.cluster_id or None,
        metadata_version=max(0, image.position.version),
        brokers=len(image.brokers),
        fenced_brokers=sum(broker.fenced for broker in image.brokers.values()),
        topics=len(image.topics),
        partitions=len(partitions),
        leaderless_partitions=sum(one.leader == NO_BROKER for one in partitions),
        under_replicated_partitions=sum(len(one.isr) < len(one.replicas) for one in partitions),
        reassigning_partitions=sum(one.is_reassigning for one in partitions),
        coordinators=coordinators(ctx),
    )


def controller(ctx: AdminContext) -> ControllerView:
    """Return this controller, and the active one."""
    node = ctx.shared.node
    active = node.election.active
    return ControllerView(
        replica_id=node.controller_id,
        active=node.is_active,
        controller_id=None if active is None else active.controller_id,
        controller_epoch=None if active is None else active.controller_epoch,
        controller_endpoint=None if active is None else active.grpc_endpoint,
    )


def coordinators(ctx: AdminContext) -> list[Coordinators]:
    """Return the coordinators of each kind."""
    image = ctx.shared.image()
    ids = {
        kind: sorted(number for of, number in image.coordinators if of == kind)
        for kind in COORDINATOR_KINDS
    }
    unowned = Counter(
        kind
        for kind, owners in image.shards.items()
        for owner in owners
        if owner.coordinator_id == NO_COORDINATOR
    )
    return [
        Coordinators(
            kind=kind,
            coordinator_ids=ids[kind],
            shards=len(image.shards.get(kind, ())),
            unowned_shards=unowned[kind],
        )
        for kind in COORDINATOR_KINDS
    ]
