"""Blocks of producer ids. Each id is allocated once, to a registered broker or coordinator."""

from typing import Final

from tidemark.model.errors import ErrorCode, TidemarkError
from tidemark.model.metadata import ClusterDelta, ClusterImage

from controller.core.cluster import Change, Cluster
from controller.core.effects import ProducerIds
from controller.core.inputs import AllocateProducerIds, CoordinatorRef

PRODUCER_ID_BLOCK: Final = 1_000


def decide_producer_ids(
    cluster: Cluster, asked: AllocateProducerIds
) -> tuple[Change | None, ProducerIds]:
    """Allocate the next block. Raises TidemarkError for a requester that is not registered, or that
    another process of its id has replaced.
    """
    if asked.coordinator is None:
        _check_broker(cluster.image, asked)
    else:
        _check_coordinator(cluster.image, asked.coordinator)
    first = cluster.next_producer_id
    change = Change(ClusterDelta(), next_producer_id=first + PRODUCER_ID_BLOCK)
    return change, ProducerIds(first, PRODUCER_ID_BLOCK)


def _check_broker(image: ClusterImage, asked: AllocateProducerIds) -> None:
    broker = image.brokers.get(asked.broker_id)
    if broker is None:
        raise TidemarkError(
            ErrorCode.BROKER_ID_NOT_REGISTERED, f"No broker with id {asked.broker_id} found."
        )
    if broker.broker_epoch != asked.broker_epoch:
        raise TidemarkError(
            ErrorCode.STALE_BROKER_EPOCH,
            f"broker {asked.broker_id} has epoch {broker.broker_epoch}, not {asked.broker_epoch}",
        )


def _check_coordinator(image: ClusterImage, asked: CoordinatorRef) -> None:
    registered = image.coordinators.get((asked.kind, asked.coordinator_id))
    if registered is None:
        raise TidemarkError(
            ErrorCode.BROKER_ID_NOT_REGISTERED,
            f"No {asked.kind} coordinator with id {asked.coordinator_id} found.",
        )
    if registered.incarnation_id != asked.incarnation_id:
        raise TidemarkError(
            ErrorCode.STALE_BROKER_EPOCH,
            f"{asked.kind} coordinator {asked.coordinator_id} is incarnation"
            f" {registered.incarnation_id.hex()}, not {asked.incarnation_id.hex()}",
        )
