"""ISR and eligible leader replicas of a partition: one change concerns both (KIP-966)."""

from collections.abc import Sequence
from dataclasses import replace

from tidemark.model.ids import BrokerId, PartitionEpoch
from tidemark.model.metadata import PartitionImage


def effective_min(partition: PartitionImage, min_insync_replicas: int) -> int:
    """min.insync.replicas, but never more than there are replicas."""
    return min(min_insync_replicas, len(partition.replicas))


def with_isr(
    partition: PartitionImage, isr: Sequence[BrokerId], min_insync_replicas: int
) -> PartitionImage:
    """The partition with another ISR, under the next partition epoch.

    While the ISR is below the minimum the high watermark stands still, so that whoever left it has
    all that is committed: it may lead, as an eligible leader replica. At the minimum the watermark
    moves again, and they may not.
    """
    elr: tuple[BrokerId, ...] = ()
    if len(isr) < effective_min(partition, min_insync_replicas):
        held = (*partition.elr, *partition.isr)
        elr = tuple(one for one in partition.replicas if one in held and one not in isr)
    return replace(
        partition,
        isr=tuple(isr),
        elr=elr,
        partition_epoch=PartitionEpoch(partition.partition_epoch + 1),
    )


def without_replica(
    partition: PartitionImage, broker: BrokerId, min_insync_replicas: int
) -> PartitionImage:
    """A member leaves the ISR; the last one stays. The same object when it is not in it."""
    if broker not in partition.isr or len(partition.isr) == 1:
        return partition
    isr = tuple(one for one in partition.isr if one != broker)
    return with_isr(partition, isr, min_insync_replicas)
