from contextlib import nullcontext
from itertools import product

import pytest
from tidemark.model.ids import InstantMs
from tidemark.model.topics import TopicPartition
from txn_coordinator.core.effects import SendMarkers
from txn_coordinator.core.marker_states import (
    DROPPED,
    NEXT_STATE,
    PARKED,
    SENT,
    UNDER_WAY,
    WRITTEN,
    Cause,
    Ending,
    MarkerState,
)

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)


def ending(*partitions: TopicPartition) -> Ending:
    return Ending(3, 9, SendMarkers("t", 70, 5, 1_000, True, partitions, 2), InstantMs(0))


@pytest.mark.parametrize(("state", "cause"), list(product(MarkerState, Cause)))
def test_a_marker_makes_the_moves_of_the_table_and_no_others(
    state: MarkerState, cause: Cause
) -> None:
    one = ending(A0)
    one.markers[A0] = state
    with nullcontext() if (state, cause) in NEXT_STATE else pytest.raises(KeyError):
        one.move((A0,), cause)
        assert one.markers[A0] is NEXT_STATE[state, cause]


def test_written_and_dropped_are_final_and_every_other_state_can_be_left() -> None:
    assert {state for state, _ in NEXT_STATE} == UNDER_WAY
    assert set(MarkerState) - UNDER_WAY == {WRITTEN, DROPPED}


def test_every_marker_under_way_can_be_called_off() -> None:
    for state in UNDER_WAY:
        assert NEXT_STATE[state, Cause.CALLED_OFF] is DROPPED


def test_written_markers_are_counted() -> None:
    one = ending(A0, A1)
    assert (one.unwritten, one.markers) == (2, {A0: PARKED, A1: PARKED})
    one.move((A0,), Cause.PARTITION_GONE)
    assert one.unwritten == 1
    one.check()


def test_a_dropped_effect_keeps_what_is_written() -> None:
    one = ending(A0, A1)
    one.markers[A1] = SENT
    one.move((A0,), Cause.PARTITION_GONE)
    one.drop()
    assert one.markers == {A0: WRITTEN, A1: DROPPED}
    assert one.is_over
    one.check()
