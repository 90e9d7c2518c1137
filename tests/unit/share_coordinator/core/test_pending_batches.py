from collections.abc import Iterable
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from share_coordinator.core import pending_batches
from share_coordinator.core.pending_batches import Pending, lay_over, may_be_pending, remaining
from share_coordinator.core.state_batches import Batches, combine
from tidemark.model.ids import NO_OFFSET, Offset
from tidemark.model.share_state import PERSISTED_STATES, DeliveryState, PendingBatch, StateBatch
from unit.share_coordinator.worlds import batch, pending

AVAILABLE, ACKNOWLEDGED = DeliveryState.AVAILABLE, DeliveryState.ACKNOWLEDGED
ARCHIVING, ARCHIVED = DeliveryState.ARCHIVING, DeliveryState.ARCHIVED

offsets = st.integers(0, 30)
lengths = st.integers(0, 8)
counts = st.integers(0, 2)
held = st.builds(
    lambda first, length, outcome, count, producer: pending(
        first, first + length, outcome, count, producer=producer
    ),
    offsets,
    lengths,
    st.sampled_from([ACKNOWLEDGED, ARCHIVED]),
    counts,
    st.integers(1, 3),
)
kept = st.lists(
    st.builds(
        lambda first, length, state, count: batch(first, first + length, state, count),
        offsets,
        lengths,
        st.sampled_from(sorted(PERSISTED_STATES)),
        counts,
    ),
    max_size=6,
).map(lambda batches: combine((), batches, NO_OFFSET))
starts = st.integers(-1, 35).map(Offset)
ByOffset = dict[int, tuple[DeliveryState, int, object]]


def by_offset(found: Iterable[PendingBatch]) -> ByOffset:
    return {
        offset: (one.outcome, one.delivery_count, one.transaction)
        for one in found
        for offset in range(one.first_offset, one.last_offset + 1)
    }


def ranks(batches: Iterable[StateBatch]) -> dict[int, tuple[int, int]]:
    return {
        offset: (one.delivery_count, one.delivery_state)
        for one in batches
        for offset in range(one.first_offset, one.last_offset + 1)
    }


@given(st.lists(held, max_size=8))
def test_a_later_batch_takes_the_place_of_what_it_overlaps(written: list[PendingBatch]) -> None:
    found = lay_over((), written)
    plain: ByOffset = {}
    for one in written:
        plain |= by_offset([one])
    assert by_offset(found) == plain
    for one, after in pairwise(found):
        assert one.first_offset <= one.last_offset < after.first_offset


@given(st.lists(held, max_size=6), kept, starts)
def test_what_is_finished_or_below_the_start_is_not_pending(
    written: list[PendingBatch], batches: Batches, start: Offset
) -> None:
    before = lay_over((), written)
    states = ranks(batches)
    expected = {
        offset: one
        for offset, one in by_offset(before).items()
        if offset >= start and states.get(offset, (-1, 0)) <= (one[1], DeliveryState.ACQUIRED)
    }
    assert by_offset(remaining(before, batches, start)) == expected


@given(kept, st.lists(held, max_size=6))
def test_offsets_that_are_pending_are_in_no_batch(
    batches: Batches, written: list[PendingBatch]
) -> None:
    before = lay_over((), written)
    covered = by_offset(before)
    expected = {offset: one for offset, one in ranks(batches).items() if offset not in covered}
    assert ranks(pending_batches.uncovered(batches, before)) == expected


def test_what_is_finished_may_not_be_pending() -> None:
    batches = (batch(4, 6, ACKNOWLEDGED),)
    assert may_be_pending(pending(7, 9), batches, (), Offset(0))
    assert not may_be_pending(pending(6, 9), batches, (), Offset(0))
    assert may_be_pending(pending(6, 9, count=2), batches, (), Offset(0))
    assert not may_be_pending(pending(7, 9), batches, (), Offset(8))


def test_one_delivery_is_pending_in_one_transaction() -> None:
    before: Pending = (pending(4, 6, producer=1),)
    assert may_be_pending(pending(4, 6, producer=1), (), before, Offset(0))
    assert not may_be_pending(pending(6, 6, producer=2), (), before, Offset(0))
    assert may_be_pending(pending(6, 6, producer=2, count=2), (), before, Offset(0))


def test_a_commit_finishes_and_an_abort_gives_back() -> None:
    over = (pending(1, 2), pending(5, 5, ARCHIVED, 3))
    assert pending_batches.ended(over, commits=True) == (
        batch(1, 2, ACKNOWLEDGED),
        batch(5, 5, ARCHIVED, 3),
    )
    assert pending_batches.ended(over, commits=False) == (
        batch(1, 2, AVAILABLE),
        batch(5, 5, AVAILABLE, 3),
    )


def letters(first: int, last: int, *, count: int = 1, producer: int = 7) -> PendingBatch:
    """Dead letters whose copies a transaction has."""
    return pending(first, last, ARCHIVED, count, producer=producer, before=ARCHIVING)


def test_only_dead_letters_are_pending_as_such() -> None:
    batches = (batch(4, 6, ARCHIVING), batch(7, 7, ARCHIVING, 2), batch(8, 9, ARCHIVED))
    assert may_be_pending(letters(4, 6), batches, (), Offset(0))
    assert may_be_pending(letters(7, 7, count=2), batches, (), Offset(0))
    for refused in (letters(3, 6), letters(6, 7), letters(9, 9), pending(4, 6, ARCHIVED)):
        assert not may_be_pending(refused, batches, (), Offset(0))


def test_dead_letters_are_pending_in_one_transaction() -> None:
    batches, held = (batch(4, 6, ARCHIVING),), (letters(4, 4, producer=1),)
    assert not may_be_pending(letters(4, 6, producer=2), batches, held, Offset(0))
    assert may_be_pending(letters(5, 6, producer=2), batches, held, Offset(0))


def test_dead_letters_stay_pending_above_their_state() -> None:
    held = (letters(4, 6),)
    assert remaining(held, (batch(4, 6, ARCHIVING),), Offset(0)) == held
    assert remaining(held, (batch(4, 6, ARCHIVED),), Offset(0)) == ()


def test_an_abort_leaves_dead_letters() -> None:
    assert pending_batches.ended([letters(1, 2)], commits=True) == (batch(1, 2, ARCHIVED),)
    assert pending_batches.ended([letters(1, 2)], commits=False) == (batch(1, 2, ARCHIVING),)
