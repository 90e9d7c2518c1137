from dataclasses import replace

import pytest
from controller.core.isr import effective_min, with_isr, without_replica
from tidemark.model.ids import BrokerId
from unit.controller.worlds import a_topic

WHOLE = a_topic("t", (1, 2, 3)).partitions[0]
ONE, TWO, THREE = BrokerId(1), BrokerId(2), BrokerId(3)


@pytest.mark.feature("G17")
def test_at_the_minimum_the_elr_is_empty() -> None:
    after = with_isr(WHOLE, (ONE, TWO), 2)
    assert (after.isr, after.elr, after.partition_epoch) == ((1, 2), (), 1)


def test_below_the_minimum_a_replica_that_left_is_eligible() -> None:
    assert with_isr(with_isr(WHOLE, (ONE, TWO), 2), (ONE,), 2).elr == (2,)


def test_eligible_replicas_stay_so_while_the_isr_is_below_the_minimum() -> None:
    one = with_isr(WHOLE, (ONE,), 3)
    assert with_isr(one, (ONE, TWO), 3).elr == (3,)


def test_back_at_the_minimum_they_are_not_eligible_any_more() -> None:
    assert with_isr(with_isr(WHOLE, (ONE,), 2), (ONE, TWO), 2).elr == ()


def test_the_minimum_is_never_more_than_there_are_replicas() -> None:
    assert effective_min(WHOLE, 5) == 3


def test_the_last_member_stays() -> None:
    alone = replace(WHOLE, isr=(THREE,))
    assert without_replica(alone, THREE, 1) is alone
    assert without_replica(WHOLE, THREE, 1).isr == (1, 2)
