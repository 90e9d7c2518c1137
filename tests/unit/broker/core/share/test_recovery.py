"""Windows from the state that was kept."""

import pytest
from broker.core.share.recovery import recovered_window
from broker.core.share.window import Window
from tidemark.model.ids import Offset
from tidemark.model.share_state import StateBatch
from unit.broker.core.share.share_worlds import (
    ACKNOWLEDGED,
    ACQUIRED,
    ARCHIVED,
    AVAILABLE,
    state_batch,
)


def recovered(start: int, *batches: StateBatch) -> list[str]:
    window = recovered_window(Offset(start), batches, 3)
    assert isinstance(window, Window), window
    window.check()
    return [str(one) for one in window]


def test_a_gap_between_batches_is_available() -> None:
    assert recovered(3, state_batch(5, 9, ACKNOWLEDGED, 1), state_batch(12, 14, AVAILABLE, 2)) == [
        "3-4 AVAILABLE 0",
        "5-9 ACKNOWLEDGED 1",
        "10-11 AVAILABLE 0",
        "12-14 AVAILABLE 2",
    ]


def test_the_start_passes_what_is_finished() -> None:
    batches = [state_batch(0, 9, ACKNOWLEDGED, 1), state_batch(10, 19, ARCHIVED, 5)]
    assert recovered(0, *batches, state_batch(20, 29, AVAILABLE, 1)) == ["20-29 AVAILABLE 1"]
    assert recovered(0, *batches) == []


def test_what_is_below_the_start_is_left_out() -> None:
    batches = [state_batch(0, 4, AVAILABLE, 1), state_batch(5, 14, AVAILABLE, 2)]
    assert recovered(10, *batches) == ["10-14 AVAILABLE 2"]


def test_without_batches_the_window_is_empty_at_the_start() -> None:
    assert recovered(42) == []


@pytest.mark.parametrize(
    "batches",
    [
        [state_batch(5, 4, AVAILABLE, 1)],
        [state_batch(0, 4, AVAILABLE, 1), state_batch(4, 9, AVAILABLE, 1)],
        [state_batch(0, 4, ACQUIRED, 1)],
        [state_batch(0, 4, AVAILABLE, -1)],
    ],
)
def test_what_is_not_a_state_is_refused_with_a_reason(batches: list[StateBatch]) -> None:
    problem = recovered_window(Offset(0), batches, 3)
    assert isinstance(problem, str)
    assert f"{batches[-1].first_offset}-{batches[-1].last_offset}" in problem
