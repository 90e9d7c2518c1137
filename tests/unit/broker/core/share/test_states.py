"""Tables of moves: what they allow, and what follows from them."""

from itertools import product

import pytest
from broker.core.share.states import (
    ACQUIRED,
    AVAILABLE,
    NEXT_DELIVERY,
    NEXT_PHASE,
    Cause,
    Phase,
    PhaseCause,
)
from tidemark.model.share_state import TERMINAL_STATES, DeliveryState


def test_what_is_finished_stays() -> None:
    assert not [before for before, _ in NEXT_DELIVERY if before in TERMINAL_STATES]


def test_only_what_is_available_is_acquired() -> None:
    assert [move for move, after in NEXT_DELIVERY.items() if after is ACQUIRED] == [
        (AVAILABLE, Cause.FETCHED)
    ]


@pytest.mark.parametrize("state", DeliveryState)
def test_every_state_is_reached_or_is_where_a_record_begins(state: DeliveryState) -> None:
    assert state is AVAILABLE or state in NEXT_DELIVERY.values()


@pytest.mark.parametrize("cause", Cause)
def test_every_cause_moves_something(cause: Cause) -> None:
    assert cause in {one for _, one in NEXT_DELIVERY}


@pytest.mark.parametrize(("phase", "cause"), list(product(Phase, PhaseCause)))
def test_what_was_overtaken_stays_fenced(phase: Phase, cause: PhaseCause) -> None:
    after = NEXT_PHASE.get((phase, cause))
    assert phase is not Phase.FENCED or after in (None, Phase.FENCED)
    assert cause is not PhaseCause.OVERTAKEN or after is Phase.FENCED
