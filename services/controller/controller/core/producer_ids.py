"""Producer ids in blocks: each is given out once, for good, to whoever asks and is registered."""

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
    """The next block. Raises TidemarkError to a stranger, and to who has registered anew since."""
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
    known = image.coordinators.get((asked.kind, asked.coordinator_id))
    if known is None:
        raise TidemarkError(
            ErrorCode.BROKER_ID_NOT_REGISTERED,
            f"No {asked.kind} coordinator with id {asked.coordinator_id} found.",
        )
    if known.incarnation_id != asked.incarnation_id:
        raise TidemarkError(
            ErrorCode.STALE_BROKER_EPOCH,
            f"{asked.kind} coordinator {asked.coordinator_id} is incarnation"
            f" {known.incarnation_id.hex()}, not {asked.incarnation_id.hex()}",
        )
