"""ISR and eligible leader replicas of a partition, which change together (KIP-966)."""

from collections.abc import Sequence
from dataclasses import replace

from tidemark.model.ids import BrokerId, PartitionEpoch
from tidemark.model.metadata import PartitionImage


def effective_min(partition: PartitionImage, min_insync_replicas: int) -> int:
    """Return min.insync.replicas, but at most the number of replicas."""
    return min(min_insync_replicas, len(partition.replicas))


def with_isr(
    partition: PartitionImage, isr: Sequence[BrokerId], min_insync_replicas: int
) -> PartitionImage:
    """Return the partition with another ISR, in the next partition epoch.

    While the ISR is below the minimum the high watermark does not move, so a replica that left has
    all committed records and may lead, as an eligible leader replica. With the ISR at the minimum
    the watermark moves again, and no replica outside the ISR is eligible.
    """
    elr: tuple[BrokerId, ...] = ()
    if len(isr) < effective_min(partition, min_insync_replicas):
        complete = (*partition.elr, *partition.isr)
        elr = tuple(one for one in partition.replicas if one in complete and one not in isr)
    return replace(
        partition,
        isr=tuple(isr),
        elr=elr,
        partition_epoch=PartitionEpoch(partition.partition_epoch + 1),
    )


def without_replica(
    partition: PartitionImage, broker: BrokerId, min_insync_replicas: int
) -> PartitionImage:
    """Return the partition without a member of its ISR; the same object if the broker is no member
    or the last one.
    """
    if broker not in partition.isr or len(partition.isr) == 1:
        return partition
    isr = tuple(one for one in partition.isr if one != broker)
    return with_isr(partition, isr, min_insync_replicas)
