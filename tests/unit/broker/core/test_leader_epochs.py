"""Leader epochs compared with the epoch of every single offset."""

import pytest
from broker.core.leader_epochs import LeaderEpochs
from hypothesis import given
from hypothesis import strategies as st
from tidemark.model.ids import NO_EPOCH, NO_OFFSET

STEPS = st.lists(st.tuples(st.integers(1, 3), st.integers(0, 4)), max_size=8)


def built(steps: list[tuple[int, int]]) -> tuple[LeaderEpochs, list[int]]:
    """(epoch step, records written in it): the table, and the epoch of each offset."""
    written: list[int] = []
    epochs, epoch = LeaderEpochs(), -1
    for step, records in steps:
        epoch += step
        epochs.assign(epoch, len(written))
        written += [epoch] * records
    epochs.check()
    return epochs, written


@given(STEPS)
def test_every_offset_has_the_epoch_it_was_written_in(steps: list[tuple[int, int]]) -> None:
    epochs, written = built(steps)
    assert [epochs.epoch_of(offset) for offset in range(len(written))] == written


@given(STEPS, st.integers(0, 25))
def test_an_epoch_ends_where_a_later_one_begins(steps: list[tuple[int, int]], asked: int) -> None:
    epochs, written = built(steps)
    _, end = epochs.end_offset_for(asked, len(written))
    if asked > epochs.latest:
        assert end == NO_OFFSET
    else:
        assert end == sum(epoch <= asked for epoch in written)


@given(STEPS, st.integers(0, 30))
def test_truncation_forgets_what_began_beyond(steps: list[tuple[int, int]], end: int) -> None:
    epochs, written = built(steps)
    epochs.truncate_to(end)
    epochs.check()
    assert all(entry.start_offset < end for entry in epochs.entries())
    kept = min(end, len(written))
    assert [epochs.epoch_of(offset) for offset in range(kept)] == written[:kept]


@given(STEPS, st.integers(0, 30))
def test_a_later_log_start_keeps_the_epoch_that_holds_it(
    steps: list[tuple[int, int]], start: int
) -> None:
    epochs, written = built(steps)
    epochs.truncate_from_start(start)
    epochs.check()
    kept = range(start, len(written))
    assert [epochs.epoch_of(offset) for offset in kept] == written[start:]
    assert sum(entry.start_offset < start for entry in epochs.entries()) == 0


def test_epochs_older_than_all_known_end_at_the_first_start() -> None:
    epochs = LeaderEpochs([(5, 10), (7, 20)])
    assert epochs.end_offset_for(3, 30) == (3, 10)
    assert epochs.end_offset_for(6, 30) == (5, 20)
    assert epochs.end_offset_for(7, 30) == (7, 30)
    assert epochs.end_offset_for(8, 30) == (NO_EPOCH, NO_OFFSET)
    assert not epochs.assign(7, 25)


def test_disorder_is_a_bug() -> None:
    with pytest.raises(AssertionError):
        LeaderEpochs([(5, 10), (4, 20)])
