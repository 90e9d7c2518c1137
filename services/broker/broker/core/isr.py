"""The in-sync replicas of a partition as its leader has them: agreed, proposed, and maximal.

A change counts once the controller has written it. Until its outcome is known it may or may not
count. So any condition on the ISR must hold for the maximal ISR: agreed and proposed together
(KIP-497).
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tidemark.model.ids import BrokerEpoch, BrokerId, LeaderEpoch, PartitionEpoch, TopicId


class IsrProposal(NamedTuple):
    """An ISR proposed to the controller, with the broker epoch of each member."""

    topic_id: TopicId
    partition: int
    leader_epoch: LeaderEpoch
    partition_epoch: PartitionEpoch
    """Partition epoch of the state that the proposal changes."""
    isr: tuple[tuple[BrokerId, BrokerEpoch], ...]

    @property
    def members(self) -> tuple[BrokerId, ...]:
        """Broker ids without the epochs."""
        return tuple(broker_id for broker_id, _ in self.isr)


class Isr:
    """ISR of one leader epoch.

    Invariant: ``maximal`` is ``agreed`` plus the members of a pending proposal.
    """

    __slots__ = ("agreed", "maximal", "partition_epoch", "pending")

    def __init__(self) -> None:
        self.agreed: tuple[BrokerId, ...] = ()
        self.maximal: tuple[BrokerId, ...] = ()
        self.partition_epoch = PartitionEpoch(-1)
        self.pending: IsrProposal | None = None

    def begin(self, agreed: Sequence[BrokerId], partition_epoch: PartitionEpoch) -> None:
        """Begin a leader epoch with this ISR; a pending proposal belonged to another leader."""
        self.agreed = self.maximal = tuple(agreed)
        self.partition_epoch = partition_epoch
        self.pending = None

    def take(self, agreed: Sequence[BrokerId], partition_epoch: PartitionEpoch) -> bool:
        """Take a newer state from the feed or a reply, which settles the pending proposal. Returns
        True if it was newer; an older one changes nothing.
        """
        if partition_epoch <= self.partition_epoch:
            return False
        self.begin(agreed, partition_epoch)
        return True

    def propose(self, proposal: IsrProposal) -> None:
        """Make a proposal pending; it may be agreed at any moment."""
        assert self.pending is None, "one proposal at a time"
        self.pending = proposal
        self.maximal = union(self.agreed, proposal.members)

    def refuse(self) -> None:
        """Drop the pending proposal, which the controller refused."""
        self.pending = None
        self.maximal = self.agreed


def union(one: Iterable[BrokerId], other: Iterable[BrokerId]) -> tuple[BrokerId, ...]:
    """Return the members of both, each once, in order of appearance."""
    return tuple(dict.fromkeys((*one, *other)))
