"""The high watermark against its plain twin; the order of a log's bounds."""

from collections.abc import Mapping, Set

import pytest
from broker.core.bounds import LogBounds, high_watermark
from hypothesis import given
from hypothesis import strategies as st
from tidemark.model.ids import BrokerId, Offset

ENDS = st.dictionaries(st.integers(1, 5).map(BrokerId), st.integers(0, 30).map(Offset), min_size=1)


def plain_high_watermark(log_ends: Mapping[BrokerId, Offset], isr: Set[BrokerId]) -> Offset:
    """Slow and obvious: the first offset that some in-sync replica lacks."""
    offset = 0
    while all(log_ends[broker] > offset for broker in isr):
        offset += 1
    return Offset(offset)


@given(st.data())
def test_high_watermark_agrees_with_its_plain_twin(data: st.DataObject) -> None:
    log_ends = data.draw(ENDS)
    isr = data.draw(st.sets(st.sampled_from(sorted(log_ends)), min_size=1))
    assert high_watermark(log_ends, isr) == plain_high_watermark(log_ends, isr)


def test_bounds_are_in_order() -> None:
    bounds = LogBounds(Offset(0), Offset(40), Offset(42), Offset(45))
    bounds.check()
    assert str(bounds) == "0/_40/_42/_45"
    bounds.log_start = Offset(41)
    with pytest.raises(AssertionError):
        bounds.check()
