from collections.abc import Iterable
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from share_coordinator.core.state_batches import Batches, above, combine
from tidemark.model.ids import NO_OFFSET, Offset
from tidemark.model.share_state import PERSISTED_STATES, DeliveryState, StateBatch
from unit.share_coordinator.worlds import batch

AVAILABLE, ACKNOWLEDGED = DeliveryState.AVAILABLE, DeliveryState.ACKNOWLEDGED
ByOffset = dict[int, tuple[int, DeliveryState]]


def plain(kept: Iterable[StateBatch], written: Iterable[StateBatch], start: int) -> ByOffset:
    """Slow and obvious: each offset by itself."""
    found: ByOffset = {}
    for one in (*kept, *written):
        for offset in range(max(one.first_offset, start), one.last_offset + 1):
            rank = one.delivery_count, one.delivery_state
            found[offset] = max(found.get(offset, rank), rank)
    return found


states = st.sampled_from(sorted(PERSISTED_STATES))
batches = st.builds(
    lambda first, length, state, count: batch(first, first + length, state, count),
    st.integers(0, 30),
    st.integers(0, 8),
    states,
    st.integers(0, 2),
)
starts = st.integers(-1, 35).map(Offset)


@given(st.lists(batches, max_size=8), st.lists(batches, max_size=8), starts)
def test_batches_agree_with_their_plain_twin(
    before: list[StateBatch], written: list[StateBatch], start: Offset
) -> None:
    kept = combine((), before, NO_OFFSET)
    assert plain(combine(kept, written, start), (), -1) == plain(before, written, start)


@given(st.lists(batches, max_size=12), starts)
def test_batches_ascend_and_are_as_few_as_can_be(written: list[StateBatch], start: Offset) -> None:
    found = combine((), written, start)
    for one, after in pairwise(found):
        assert one.first_offset <= one.last_offset < after.first_offset
        is_alike = one[2:] == after[2:]
        assert not (is_alike and one.last_offset + 1 == after.first_offset)


@given(st.lists(batches, max_size=6), st.lists(batches, max_size=6))
def test_a_write_that_arrives_late_undoes_nothing(
    early: list[StateBatch], late: list[StateBatch]
) -> None:
    in_order: Batches = combine(combine((), early, NO_OFFSET), late, NO_OFFSET)
    assert combine(combine((), late, NO_OFFSET), early, NO_OFFSET) == in_order
    assert combine(in_order, early, NO_OFFSET) == in_order


def test_the_greater_count_decides_then_the_state() -> None:
    kept = (batch(0, 9, AVAILABLE, 2),)
    assert combine(kept, [batch(3, 4, ACKNOWLEDGED, 2)], NO_OFFSET) == (
        batch(0, 2, AVAILABLE, 2),
        batch(3, 4, ACKNOWLEDGED, 2),
        batch(5, 9, AVAILABLE, 2),
    )
    assert combine(kept, [batch(3, 4, ACKNOWLEDGED, 1)], NO_OFFSET) == kept


def test_what_straddles_the_start_keeps_its_end() -> None:
    found = above(Offset(5), [batch(0, 4, AVAILABLE), batch(3, 7, AVAILABLE)])
    assert found == [batch(5, 7, AVAILABLE)]
