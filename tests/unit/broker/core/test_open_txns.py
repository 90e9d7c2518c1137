"""Open transactions compared with their plain twin: every offset that is not decided yet."""

import pytest
from broker.core.open_txns import OpenTxns
from hypothesis import example, given
from hypothesis import strategies as st

STEPS = st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=30)


@pytest.mark.feature("M01", "M02")
@given(STEPS, st.integers(0, 31))
@example(steps=[(0, False), (0, True)], high_watermark=1)
def test_readers_stop_at_the_oldest_transaction_that_is_not_decided(
    steps: list[tuple[int, bool]], high_watermark: int
) -> None:
    txns, open_at, spans = OpenTxns(), dict[int, int](), list[tuple[int, int]]()
    for offset, (producer_id, ends) in enumerate(steps):
        if not ends and producer_id not in open_at:
            open_at[producer_id] = offset
            txns.begin(producer_id, offset)
        elif ends and producer_id in open_at:
            spans.append((open_at.pop(producer_id), offset))
            assert txns.end(producer_id, offset) == spans[-1][0]
    undecided = [first for first, last in spans if last >= high_watermark]
    expected = min([*open_at.values(), *undecided, high_watermark])
    assert txns.last_stable(high_watermark) == expected


def test_the_end_of_a_transaction_that_wrote_nothing_changes_nothing() -> None:
    txns = OpenTxns()
    assert txns.end(7, 3) is None
    assert not txns


def test_what_was_open_and_what_was_not_replicated_is_restored() -> None:
    txns = OpenTxns()
    txns.restore([(8, 20), (7, 10)], [(5, 12)])
    assert [txns.last_stable(end) for end in (12, 30)] == [5, 10]
    assert (txns.first_of(8), txns.first_open(), len(txns)) == (20, 10, 2)
