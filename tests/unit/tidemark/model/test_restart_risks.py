import pytest
from hypothesis import given
from hypothesis import strategies as st
from tidemark.model.restart_risks import PartitionState, RiskKind, restart_risks
from tidemark.model.topics import TopicPartition

AT = TopicPartition("orders", 0)
NONE: list[RiskKind] = []


def state(
    replicas: tuple[int, ...], isr: tuple[int, ...], *, min_isr: int = 1, caught_up: str = ""
) -> PartitionState:
    """Led by the first in sync; ``caught_up`` has the ids of replicas with every record."""
    known = frozenset(int(one) for one in caught_up.split()) if caught_up else None
    return PartitionState(AT, isr[0] if isr else None, replicas, isr, min_isr, known)


@pytest.mark.feature("AD59")
@pytest.mark.parametrize(
    ("partition", "kinds"),
    [
        (state((1, 2, 3), (1, 2, 3), min_isr=2), NONE),
        (state((1,), (1,)), [RiskKind.REPLICATION_FACTOR_1]),
        (state((1,), ()), [RiskKind.REPLICATION_FACTOR_1]),
        (state((1, 2, 3), (1,)), [RiskKind.UNAVAILABLE]),
        (state((1, 2, 3), (1, 2), min_isr=2), [RiskKind.BELOW_MIN_ISR]),
        (state((1, 2), (1, 2), caught_up="1"), [RiskKind.ACKS_1_LOSS]),
        (state((1, 2), (1, 2), caught_up="1 2"), NONE),
        (state((1, 2), (2, 1), caught_up="2"), NONE),
        (state((1, 2), (1, 2), min_isr=2, caught_up="1"), list(RiskKind)[2:]),
        (state((1, 2, 3), (2, 3), min_isr=2), NONE),
        (state((2, 3), (2,), min_isr=2), NONE),
    ],
)
def test_what_the_restart_of_broker_1_may_cost(
    partition: PartitionState, kinds: list[RiskKind]
) -> None:
    assert [risk.kind for risk in restart_risks(1, [partition])] == kinds


def test_the_worst_kind_comes_first_and_each_has_a_meaning() -> None:
    partitions = [state((1, 2), (1, 2), min_isr=2), state((1,), (1,))]
    risks = restart_risks(1, partitions)
    assert [risk.kind for risk in risks] == [RiskKind.REPLICATION_FACTOR_1, RiskKind.BELOW_MIN_ISR]
    assert all(risk.meaning for risk in risks)


IDS = st.lists(st.integers(1, 5), min_size=1, max_size=5, unique=True)


@given(IDS, st.data(), st.integers(1, 5))
def test_without_a_risk_another_replica_leads_with_enough_in_sync(
    replicas: list[int], data: st.DataObject, min_isr: int
) -> None:
    isr = data.draw(st.lists(st.sampled_from(replicas), min_size=1, unique=True))
    partition = state(tuple(replicas), tuple(isr), min_isr=min(min_isr, len(isr)))
    left = set(isr) - {1}
    if 1 in isr and not restart_risks(1, [partition]):
        assert len(left) >= partition.min_isr
