"""Risks of an empty disk for a broker whose disk is lost. Pure."""

from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Final, NamedTuple

from tidemark.model.restart_risks import PartitionState
from tidemark.model.topics import TopicPartition


class ReplacementRiskKind(StrEnum):
    """Kinds of risks, the worst first."""

    ONLY_REPLICA = "only_replica"
    NO_LEADER = "no_leader"
    OTHERS_NOT_IN_SYNC = "others_not_in_sync"


MEANING: Final = {
    ReplacementRiskKind.ONLY_REPLICA: "its only replica was there: its records are lost, and it"
    " starts empty",
    ReplacementRiskKind.NO_LEADER: "it has no leader: the lost disk may be the only one with all of"
    " its records",
    ReplacementRiskKind.OTHERS_NOT_IN_SYNC: "another replica is not in sync: until it is, fewer"
    " copies than wanted are left",
}


class ReplacementRisk(NamedTuple):
    """Possible cost of a replacement for one partition."""

    kind: ReplacementRiskKind
    partition: TopicPartition


def replacement_risks(
    broker_id: int, partitions: Iterable[PartitionState]
) -> list[ReplacementRisk]:
    """Return the risks of a replacement of this broker's disks, the worst kind first. Partitions
    without a replica there are not at risk.
    """
    order = list(ReplacementRiskKind)
    risks = [
        ReplacementRisk(kind, state.partition)
        for state in partitions
        if broker_id in state.replicas
        for kind in _risks_of(broker_id, state)
    ]
    return sorted(risks, key=lambda risk: (order.index(risk.kind), risk.partition))


def _risks_of(broker_id: int, state: PartitionState) -> Iterator[ReplacementRiskKind]:
    if len(state.replicas) == 1:
        yield ReplacementRiskKind.ONLY_REPLICA
    elif state.leader is None:
        yield ReplacementRiskKind.NO_LEADER
    elif not {*state.replicas} - {broker_id} <= {*state.isr}:
        yield ReplacementRiskKind.OTHERS_NOT_IN_SYNC
