"""Risks of restarting one broker: partitions that become unavailable, or may lose records. Pure."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from tidemark.model.topics import TopicPartition


class RiskKind(StrEnum):
    """Kinds of risks, the worst first."""

    REPLICATION_FACTOR_1 = "replication_factor_1"
    UNAVAILABLE = "unavailable"
    BELOW_MIN_ISR = "below_min_isr"
    ACKS_1_LOSS = "acks_1_loss"


MEANING: Final = {
    RiskKind.REPLICATION_FACTOR_1: "its only replica is there: it can be neither read nor written"
    " until the broker is back",
    RiskKind.UNAVAILABLE: "no other replica is in sync: it has no leader until the broker is back",
    RiskKind.BELOW_MIN_ISR: "fewer than min.insync.replicas stay in sync: acks=all is refused until"
    " the broker is back",
    RiskKind.ACKS_1_LOSS: "no other replica in sync has all records: those acknowledged with acks=1"
    " are lost if the broker does not stop cleanly",
}


@dataclass(frozen=True, slots=True)
class PartitionState:
    """State of one partition. ``leader`` is None without one; ``caught_up`` are the replicas that
    have every record of the leader, None if that is not known.
    """

    partition: TopicPartition
    leader: int | None
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    min_isr: int = 1
    caught_up: frozenset[int] | None = field(default=None)


@dataclass(frozen=True, slots=True)
class Risk:
    """Possible cost of a broker's restart for one partition."""

    kind: RiskKind
    partition: TopicPartition

    @property
    def meaning(self) -> str:
        """Sentence for people."""
        return MEANING[self.kind]


def restart_risks(broker_id: int, partitions: Iterable[PartitionState]) -> list[Risk]:
    """Return the risks of a restart of this broker, the worst kind first. Partitions without a
    replica there, and those without a leader already, are not at risk.
    """
    order = list(RiskKind)
    risks = [
        Risk(kind, state.partition)
        for state in partitions
        if broker_id in state.replicas
        for kind in _risks_of(broker_id, state)
    ]
    return sorted(risks, key=lambda risk: (order.index(risk.kind), risk.partition))


def _risks_of(broker_id: int, state: PartitionState) -> Iterator[RiskKind]:
    if len(state.replicas) == 1:
        yield RiskKind.REPLICATION_FACTOR_1
        return
    if broker_id not in state.isr:
        return
    others = [one for one in state.isr if one != broker_id]
    if not others:
        yield RiskKind.UNAVAILABLE
        return
    if len(others) < state.min_isr:
        yield RiskKind.BELOW_MIN_ISR
    if (
        state.leader == broker_id
        and state.caught_up is not None
        and state.caught_up.isdisjoint(others)
    ):
        yield RiskKind.ACKS_1_LOSS
