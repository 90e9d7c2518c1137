"""Algebra of pending batches: consecutive offsets whose acknowledgement belongs to an open
transaction.

Pending batches that are kept ascend and do not overlap. In the order of (delivery count, delivery
state) a pending acknowledgement ranks as ACQUIRED, and the pending archiving of a dead letter right
after ARCHIVING: a state that is greater removes it. Below it the state batches keep what the
offsets had before, which is what an abort leaves to a dead letter.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from typing import Final, TypeVar

from tidemark.model.ids import Offset
from tidemark.model.share_state import DeliveryState, PendingBatch, StateBatch, TransactionKey

from share_coordinator.core.state_batches import Batches

Pending = tuple[PendingBatch, ...]
_AFTER_ABORT: Final = {
    DeliveryState.ACQUIRED: DeliveryState.AVAILABLE,
    DeliveryState.ARCHIVING: DeliveryState.ARCHIVING,
}
RangeT = TypeVar("RangeT", StateBatch, PendingBatch)


def lay_over(kept: Pending, written: Iterable[PendingBatch]) -> Pending:
    """Return ``kept`` with ``written`` in place of what it overlaps."""
    found = list(kept)
    for batch in written:
        at = _cut_out(found, batch.first_offset, batch.last_offset)
        found.insert(at, batch)
    return tuple(found)


def remaining(pending: Pending, batches: Batches, start: Offset) -> Pending:
    """Return what is still pending at or above ``start``, given these state batches."""
    found = list(pending)
    if found and found[0].first_offset < start:
        _cut_out(found, found[0].first_offset, Offset(start - 1))
    for one in pending:
        for batch in _overlapping(batches, one.first_offset, one.last_offset):
            if _rank(batch) > _rank_of_pending(one):
                first = max(batch.first_offset, one.first_offset)
                last = min(batch.last_offset, one.last_offset)
                _cut_out(found, first, last)
    return tuple(found)


def uncovered(batches: Batches, pending: Pending) -> Batches:
    """Return the state batches without the offsets that are pending."""
    found = list(batches)
    for one in pending:
        _cut_out(found, one.first_offset, one.last_offset)
    return tuple(found)


def below(end: Offset, batches: Iterable[RangeT]) -> tuple[RangeT, ...]:
    """Return the parts of ``batches`` below an offset."""
    return tuple(
        one if one.last_offset < end else one._replace(last_offset=Offset(end - 1))
        for one in batches
        if one.first_offset < end
    )


def may_be_pending(batch: PendingBatch, batches: Batches, pending: Pending, start: Offset) -> bool:
    """True if no offset of ``batch`` is finished, was delivered since, or is pending in another
    transaction with the same delivery. Dead letters must be kept as such.
    """
    first, last = batch.first_offset, batch.last_offset
    return (
        first >= start
        and (batch.before is not DeliveryState.ARCHIVING or _are_letters(batch, batches))
        and all(_rank(one) < _rank_of_pending(batch) for one in _overlapping(batches, first, last))
        and all(
            one.transaction == batch.transaction or one.delivery_count < batch.delivery_count
            for one in _overlapping(pending, first, last)
        )
    )


def ended(pending: Iterable[PendingBatch], *, commits: bool) -> Batches:
    """Return the states that the end of their transaction gives to pending offsets."""
    return tuple(
        StateBatch(
            one.first_offset,
            one.last_offset,
            one.outcome if commits else _AFTER_ABORT[one.before],
            one.delivery_count,
        )
        for one in pending
    )


def transactions_of(pending: Iterable[PendingBatch]) -> frozenset[TransactionKey]:
    """Return the transactions that hold offsets."""
    return frozenset(one.transaction for one in pending)


def check(pending: Pending, batches: Batches, start: Offset) -> None:
    """Assert the invariant."""
    before = max(start, 0) - 1
    for one in pending:
        assert before < one.first_offset <= one.last_offset, pending
        before = one.last_offset
        for batch in _overlapping(batches, one.first_offset, one.last_offset):
            assert _rank(batch) < _rank_of_pending(one), (one, batch)


def _cut_out(kept: list[RangeT], first: Offset, last: Offset) -> int:
    """Remove these offsets; return the place of a batch that has them."""
    low = bisect_left(kept, first, key=lambda one: one.last_offset)
    high = bisect_right(kept, last, key=lambda one: one.first_offset)
    overlapped = kept[low:high]
    before = [
        one._replace(last_offset=Offset(first - 1))
        for one in overlapped
        if one.first_offset < first
    ]
    after = [
        one._replace(first_offset=Offset(last + 1)) for one in overlapped if one.last_offset > last
    ]
    kept[low:high] = before + after
    return low + len(before)


def _overlapping(kept: Sequence[RangeT], first: Offset, last: Offset) -> Sequence[RangeT]:
    low = bisect_left(kept, first, key=lambda one: one.last_offset)
    high = bisect_right(kept, last, key=lambda one: one.first_offset)
    return kept[low:high]


def _are_letters(batch: PendingBatch, batches: Batches) -> bool:
    """True if every offset is kept as a dead letter of this delivery."""
    first, last = batch.first_offset, batch.last_offset
    letters = sum(
        min(last, one.last_offset) - max(first, one.first_offset) + 1
        for one in _overlapping(batches, first, last)
        if one[2:] == (DeliveryState.ARCHIVING, batch.delivery_count)
    )
    return letters == last - first + 1


def _rank(batch: StateBatch) -> tuple[int, int]:
    return batch.delivery_count, 2 * batch.delivery_state


def _rank_of_pending(batch: PendingBatch) -> tuple[int, int]:
    return batch.delivery_count, 2 * batch.before + 1
