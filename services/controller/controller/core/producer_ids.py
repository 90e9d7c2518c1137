"""Blocks of producer ids. Each id is allocated once, to a registered broker or coordinator."""

from typing import Final

from tidemark.model.errors import ErrorCode, TidemarkError
from tidemark.model.metadata import ClusterDelta, ClusterImage

from controller.core.cluster import Change, Cluster
from controller.core.effects import ProducerIds
from controller.core.inputs import AllocateProducerIds, CoordinatorRef

PRODUCER_ID_BLOCK: Final = 1_000


def decide_producer_ids(
    cluster: Cluster, request: AllocateProducerIds
) -> tuple[Change | None, ProducerIds]:
    """Allocate the next block. Raises TidemarkError for a requester that is not registered, or that
    another process of its id has replaced.
    """
    if request.coordinator is None:
        _check_broker(cluster.image, request)
    else:
        _check_coordinator(cluster.image, request.coordinator)
    first = cluster.next_producer_id
    change = Change(ClusterDelta(), next_producer_id=first + PRODUCER_ID_BLOCK)
    return change, ProducerIds(first, PRODUCER_ID_BLOCK)


def _check_broker(image: ClusterImage, request: AllocateProducerIds) -> None:
    broker = image.brokers.get(request.broker_id)
    if broker is None:
        raise TidemarkError(
            ErrorCode.BROKER_ID_NOT_REGISTERED, f"No broker with id {request.broker_id} found."
        )
    if broker.broker_epoch != request.broker_epoch:
        raise TidemarkError(
            ErrorCode.STALE_BROKER_EPOCH,
            f"broker {request.broker_id} has epoch {broker.broker_epoch},"
            f" not {request.broker_epoch}",
        )


def _check_coordinator(image: ClusterImage, coordinator: CoordinatorRef) -> None:
    registered = image.coordinators.get((coordinator.kind, coordinator.coordinator_id))
    if registered is None:
        raise TidemarkError(
            ErrorCode.BROKER_ID_NOT_REGISTERED,
            f"No {coordinator.kind} coordinator with id {coordinator.coordinator_id} found.",
        )
    if registered.incarnation_id != coordinator.incarnation_id:
        raise TidemarkError(
            ErrorCode.STALE_BROKER_EPOCH,
            f"{coordinator.kind} coordinator {coordinator.coordinator_id} is incarnation"
            f" {registered.incarnation_id.hex()}, not {coordinator.incarnation_id.hex()}",
        )
