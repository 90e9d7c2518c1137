import pytest
from tidemark.model.replacement_risks import ReplacementRiskKind, replacement_risks
from tidemark.model.restart_risks import PartitionState
from tidemark.model.topics import TopicPartition

AT = TopicPartition("orders", 0)
NONE: list[ReplacementRiskKind] = []


@pytest.mark.feature("KU30")
@pytest.mark.parametrize(
    ("leader", "replicas", "isr", "kinds"),
    [
        (2, (1, 2, 3), (2, 3), NONE),
        (2, (1, 2, 3), (1, 2, 3), NONE),
        (2, (2, 3), (2,), NONE),
        (None, (1,), (1,), [ReplacementRiskKind.ONLY_REPLICA]),
        (1, (1,), (1,), [ReplacementRiskKind.ONLY_REPLICA]),
        (None, (1, 2, 3), (1,), [ReplacementRiskKind.NO_LEADER]),
        (2, (1, 2, 3), (2,), [ReplacementRiskKind.OTHERS_NOT_IN_SYNC]),
    ],
)
def test_risks_of_an_empty_disk_for_broker_1(
    leader: int | None,
    replicas: tuple[int, ...],
    isr: tuple[int, ...],
    kinds: list[ReplacementRiskKind],
) -> None:
    found = replacement_risks(1, [PartitionState(AT, leader, replicas, isr)])
    assert [risk.kind for risk in found] == kinds


def test_the_worst_kind_comes_first() -> None:
    behind = PartitionState(AT, 2, (1, 2, 3), (2,))
    lost = PartitionState(TopicPartition("zebras", 0), None, (1,), (1,))
    kinds = [risk.kind for risk in replacement_risks(1, [behind, lost])]
    assert kinds == [ReplacementRiskKind.ONLY_REPLICA, ReplacementRiskKind.OTHERS_NOT_IN_SYNC]
