"""The table of a classic group's states: every cell."""

from contextlib import nullcontext
from itertools import product

import pytest
from broker.core.groups.classic.group import ClassicGroup
from broker.core.groups.classic.states import NEXT_STATE, Cause, GroupState

CELLS = list(product(GroupState, Cause))


@pytest.mark.parametrize(("state", "cause"), CELLS)
def test_a_move_outside_the_table_is_a_bug(state: GroupState, cause: Cause) -> None:
    group = ClassicGroup("g")
    group.state = state
    with nullcontext() if (state, cause) in NEXT_STATE else pytest.raises(AssertionError):
        group.move(cause)
        assert group.state is NEXT_STATE[state, cause]


def test_nothing_leads_out_of_death() -> None:
    assert not [cause for state, cause in NEXT_STATE if state is GroupState.DEAD]


def test_every_state_but_the_first_is_reached() -> None:
    assert set(NEXT_STATE.values()) == set(GroupState)


def test_names_are_those_of_kafkas_tools() -> None:
    assert [state.value for state in GroupState] == [
        "Empty",
        "PreparingRebalance",
        "CompletingRebalance",
        "Stable",
        "Dead",
    ]
