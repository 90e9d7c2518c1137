import pytest
from broker.core.isr import Isr, IsrProposal, union
from tidemark.model.ids import BrokerEpoch, BrokerId, LeaderEpoch, PartitionEpoch, TopicId

ONE, TWO, THREE = BrokerId(1), BrokerId(2), BrokerId(3)


def proposal(*members: BrokerId) -> IsrProposal:
    isr = tuple((one, BrokerEpoch(10)) for one in members)
    return IsrProposal(TopicId(bytes(16)), 0, LeaderEpoch(5), PartitionEpoch(1), isr)


def agreed(*members: BrokerId) -> Isr:
    isr = Isr()
    isr.begin(members, PartitionEpoch(1))
    return isr


@pytest.mark.feature("G17")
def test_a_proposed_member_counts_before_it_is_agreed_and_a_dropped_one_until_then() -> None:
    isr = agreed(ONE, TWO)
    isr.propose(proposal(ONE, THREE))
    assert (isr.agreed, isr.maximal) == ((1, 2), (1, 2, 3))


def test_only_a_newer_state_settles_it() -> None:
    isr = agreed(ONE, TWO)
    isr.propose(proposal(ONE))
    assert not isr.take((ONE, TWO), PartitionEpoch(1))
    assert isr.pending is not None
    assert isr.take((ONE,), PartitionEpoch(2))
    assert list(isr.maximal) == [1]


def test_what_is_refused_counts_no_more() -> None:
    isr = agreed(ONE)
    isr.propose(proposal(ONE, TWO))
    isr.refuse()
    assert isr.pending is None
    assert isr.maximal == (1,)


def test_a_union_names_each_once_in_order() -> None:
    assert union((ONE, TWO), (THREE, ONE)) == (1, 2, 3)
