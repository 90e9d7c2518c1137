"""The in-sync replicas of a partition as its leader has them: agreed, proposed, and maximal.

A change counts once the controller has written it. Until its outcome is known it may or may not
count, so that everything that must hold for the ISR must hold for the maximal ISR: agreed and
proposed together (KIP-497).
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tidemark.model.ids import BrokerEpoch, BrokerId, LeaderEpoch, PartitionEpoch, TopicId


class IsrProposal(NamedTuple):
    """An ISR that a leader asks the controller for, with the broker epoch of each member."""

    topic_id: TopicId
    partition: int
    leader_epoch: LeaderEpoch
    partition_epoch: PartitionEpoch
    """Of the state that it changes."""
    isr: tuple[tuple[BrokerId, BrokerEpoch], ...]

    @property
    def members(self) -> tuple[BrokerId, ...]:
        """Without the epochs."""
        return tuple(broker_id for broker_id, _ in self.isr)


class Isr:
    """Invariant: ``maximal`` is what is agreed and, while one is pending, what is proposed."""

    __slots__ = ("agreed", "maximal", "partition_epoch", "pending")

    def __init__(self) -> None:
        self.agreed: tuple[BrokerId, ...] = ()
        self.maximal: tuple[BrokerId, ...] = ()
        self.partition_epoch = PartitionEpoch(-1)
        self.pending: IsrProposal | None = None

    def begin(self, agreed: Sequence[BrokerId], partition_epoch: PartitionEpoch) -> None:
        """A leader epoch begins with this ISR; whatever was pending was another leader's."""
        self.agreed = self.maximal = tuple(agreed)
        self.partition_epoch = partition_epoch
        self.pending = None

    def take(self, agreed: Sequence[BrokerId], partition_epoch: PartitionEpoch) -> bool:
        """A newer state, by the feed or in an answer, settles what is pending; an older one is
        nothing. Whether it was newer.
        """
        if partition_epoch <= self.partition_epoch:
            return False
        self.begin(agreed, partition_epoch)
        return True

    def propose(self, proposal: IsrProposal) -> None:
        """From now on it may be agreed at any moment."""
        assert self.pending is None, "one proposal at a time"
        self.pending = proposal
        self.maximal = union(self.agreed, proposal.members)

    def refuse(self) -> None:
        """The controller will not agree to what is pending."""
        self.pending = None
        self.maximal = self.agreed


def union(one: Iterable[BrokerId], other: Iterable[BrokerId]) -> tuple[BrokerId, ...]:
    """Both, each once, in order of appearance."""
    return tuple(dict.fromkeys((*one, *other)))
