"""Reassignments of replicas, elections of leaders, and actions on brokers."""

from typing import Annotated, Literal

from fastapi import Query
from pydantic import Field

from controller.admin import operations
from controller.admin import reassignments as admin
from controller.admin import restart as restart_admin
from controller.admin.models import Input
from controller.rest.changing import Begin, PlanData, begins_operation, plan_data
from controller.rest.idempotent import IdempotencyKey, IdempotentRoute
from controller.rest.operations import OperationData
from controller.rest.problems import CHANGES, RESPONSES
from controller.rest.shapes import (
    BrokerIdPath,
    Collection,
    Ctx,
    Here,
    Links,
    PartitionId,
    Relationship,
    Resource,
    Shape,
    TopicName,
    cluster_router,
)

router = cluster_router("Reassignments", {**RESPONSES, **CHANGES}, route_class=IdempotentRoute)
DryRun = Annotated[bool, Query(description="show what would be done, and change nothing")]


class ReassignmentData(admin.ReassignmentView, Resource):
    """Move in progress, as Confluent's REST shows it, with what the image has."""

    kind: Literal["KafkaReassignment"] = "KafkaReassignment"
    cluster_id: str
    replicas: Relationship


class ReassignmentDataList(Collection[ReassignmentData]):
    """Moves in progress."""

    kind: Literal["KafkaReassignmentList"] = "KafkaReassignmentList"


class ApplyRequest(Input):
    """Replicas that partitions are to have, as a plan returns them."""

    moves: list[admin.WantedReplicas] = Field(min_length=1, max_length=admin.MOVES_MAX)


class PartitionInput(Input):
    """One partition."""

    topic_name: str = Field(max_length=249, examples=["orders"])
    partition_id: int = Field(ge=0, lt=2**31, examples=[0])


class CancelRequest(Input):
    """Moves to cancel; none: all in progress."""

    partitions: list[PartitionInput] = Field(default=[], max_length=admin.MOVES_MAX)


class ElectionRequest(Input):
    """Election; without partitions, of all that need one."""

    election_type: Literal["PREFERRED", "UNCLEAN"] = Field(
        default="PREFERRED",
        description="UNCLEAN elects any live replica of a partition without leader, and may lose"
        " records",
    )
    partitions: list[PartitionInput] = Field(default=[], max_length=admin.MOVES_MAX)


class ElectionData(Shape):
    """Results of elections."""

    kind: Literal["TidemarkElectionList"] = "TidemarkElectionList"
    dry_run: bool
    data: list[admin.Election]


class RestartData(restart_admin.RestartCheck, Resource):
    """Risks of a restart of a broker."""

    kind: Literal["TidemarkRestartCheck"] = "TidemarkRestartCheck"
    cluster_id: str


class ReplacementData(restart_admin.ReplacementCheck, Resource):
    """Risks of an empty disk for a broker."""

    kind: Literal["TidemarkReplacementCheck"] = "TidemarkReplacementCheck"
    cluster_id: str


def _data(here: Links, one: admin.ReassignmentView) -> ReassignmentData:
    at = ("topics", one.topic_name, "partitions", one.partition_id)
    return ReassignmentData(
        **one.model_dump(),
        metadata=here.about(*at, "reassignment", topic=one.topic_name, partition=one.partition_id),
        cluster_id=here.cluster_id,
        replicas=here.to(*at, "replicas"),
    )


@router.get("/topics/-/partitions/-/reassignment", operation_id="listKafkaAllReassignments")
async def all_reassignments(ctx: Ctx, here: Here) -> ReassignmentDataList:
    """Return the moves in progress."""
    found = await admin.list_reassignments(ctx)
    return ReassignmentDataList(metadata=here.listing(), data=[_data(here, one) for one in found])


@router.get("/reassignments", operation_id="listReassignments")
async def list_reassignments(ctx: Ctx, here: Here) -> ReassignmentDataList:
    """Return the moves in progress, to watch them."""
    return await all_reassignments(ctx, here)


@router.get(
    "/topics/{topic_name}/partitions/-/reassignment",
    operation_id="searchKafkaReassignmentsByTopic",
)
async def of_topic(ctx: Ctx, here: Here, topic_name: TopicName) -> ReassignmentDataList:
    """Return the moves in progress of a topic."""
    found = await admin.list_reassignments(ctx, topic_name)
    return ReassignmentDataList(metadata=here.listing(), data=[_data(here, one) for one in found])


@router.get(
    "/topics/{topic_name}/partitions/{partition_id}/reassignment",
    operation_id="getKafkaReassignment",
)
async def of_partition(
    ctx: Ctx, here: Here, topic_name: TopicName, partition_id: PartitionId
) -> ReassignmentData:
    """Return the move of one partition."""
    return _data(here, await admin.get_reassignment(ctx, topic_name, partition_id))


@router.post("/reassignments:plan", operation_id="planReassignment")
async def plan(ctx: Ctx, here: Here, goal: admin.PlanRequest) -> PlanData:
    """Return moves that spread replicas evenly over racks and brokers, or empty brokers. Changes
    nothing.
    """
    return plan_data(here, await admin.plan(ctx, goal))


@begins_operation(router, "/reassignments", "applyReassignment")
async def apply(
    ctx: Ctx,
    begin: Begin,
    request: ApplyRequest,
    dry_run: DryRun = False,  # noqa: FBT002
    key: IdempotencyKey = None,
) -> OperationData | PlanData:
    """Begin to move partitions. The operation has the progress, and can be cancelled."""
    return await begin.answer(
        lambda: operations.reassign(ctx, request.moves, key=key),
        lambda: operations.plan_reassign(ctx, request.moves),
        dry_run=dry_run,
    )


@router.post("/reassignments:cancel", operation_id="cancelReassignments")
async def cancel(  # a body and its options
    ctx: Ctx,
    here: Here,
    request: CancelRequest,
    dry_run: DryRun = False,  # noqa: FBT002
    _: IdempotencyKey = None,
) -> ReassignmentDataList:
    """Cancel moves in progress, and return them as they were."""
    wanted = [(one.topic_name, one.partition_id) for one in request.partitions] or None
    found = await admin.cancel(ctx, wanted, dry_run=dry_run)
    return ReassignmentDataList(metadata=here.listing(), data=[_data(here, one) for one in found])


@router.post("/partitions:elect-leaders", operation_id="electLeaders")
async def elect_leaders(  # a body and its options
    ctx: Ctx,
    request: ElectionRequest,
    dry_run: DryRun = False,  # noqa: FBT002
    _: IdempotencyKey = None,
) -> ElectionData:
    """Elect preferred leaders, or any live replica of partitions without a leader."""
    wanted = [(one.topic_name, one.partition_id) for one in request.partitions] or None
    unclean = request.election_type == "UNCLEAN"
    found = await admin.elect_leaders(ctx, wanted, unclean=unclean, dry_run=dry_run)
    return ElectionData(dry_run=dry_run, data=found)


# -- brokers


@router.get("/brokers/{broker_id}:can-restart", operation_id="canRestartBroker", tags=["Brokers"])
async def can_restart(ctx: Ctx, here: Here, broker_id: BrokerIdPath) -> RestartData:
    """Return the risks of a restart of this broker now."""
    found = await restart_admin.gate(ctx, broker_id)
    return RestartData(
        **found.model_dump(),
        metadata=here.about("brokers", broker_id, ":can-restart", broker=broker_id),
        cluster_id=here.cluster_id,
    )


@router.get("/brokers/{broker_id}:can-replace", operation_id="canReplaceBroker", tags=["Brokers"])
async def can_replace(ctx: Ctx, here: Here, broker_id: BrokerIdPath) -> ReplacementData:
    """Return the risks of an empty disk for this broker, whose own disk is lost."""
    found = await restart_admin.can_replace(ctx, broker_id)
    return ReplacementData(
        **found.model_dump(),
        metadata=here.about("brokers", broker_id, ":can-replace", broker=broker_id),
        cluster_id=here.cluster_id,
    )


@begins_operation(router, "/brokers/{broker_id}:drain", "drainBroker", tags=["Brokers"])
async def drain(
    ctx: Ctx,
    begin: Begin,
    broker_id: BrokerIdPath,
    dry_run: DryRun = False,  # noqa: FBT002
    key: IdempotencyKey = None,
) -> OperationData | PlanData:
    """Begin to give the leaderships of a broker to other replicas; its replicas stay."""
    return await begin.answer(
        lambda: operations.drain(ctx, broker_id, key=key),
        lambda: operations.plan_drain(ctx, broker_id),
        dry_run=dry_run,
    )


@begins_operation(router, "/brokers/{broker_id}:undrain", "undrainBroker", tags=["Brokers"])
async def undrain(
    ctx: Ctx,
    begin: Begin,
    broker_id: BrokerIdPath,
    dry_run: DryRun = False,  # noqa: FBT002
    key: IdempotencyKey = None,
) -> OperationData | PlanData:
    """Begin to give a drained broker its leaderships back."""
    return await begin.answer(
        lambda: operations.undrain(ctx, broker_id, key=key),
        lambda: operations.plan_undrain(ctx, broker_id),
        dry_run=dry_run,
    )


@begins_operation(
    router, "/brokers/{broker_id}:decommission", "decommissionBroker", tags=["Brokers"]
)
async def decommission(
    ctx: Ctx,
    begin: Begin,
    broker_id: BrokerIdPath,
    dry_run: DryRun = False,  # noqa: FBT002
    key: IdempotencyKey = None,
) -> OperationData | PlanData:
    """Begin to move all replicas away from a broker; stop it once the operation has succeeded."""
    return await begin.answer(
        lambda: operations.decommission(ctx, broker_id, key=key),
        lambda: operations.plan_decommission(ctx, broker_id),
        dry_run=dry_run,
    )
