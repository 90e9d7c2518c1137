"""A look at a share-partition that changes nothing: ranges for browsing, counts for lag."""

from collections.abc import Iterator
from typing import NamedTuple

from tidemark.model.ids import InstantMs, Offset
from tidemark.model.share_state import DeliveryState, TransactionKey

from broker.core.share.states import ACKNOWLEDGED, ACQUIRED, ARCHIVED, ARCHIVING, AVAILABLE
from broker.core.share.window import READY, Window


class RangeView(NamedTuple):
    """Consecutive records of one state."""

    first_offset: Offset
    last_offset: Offset
    state: DeliveryState
    delivery_count: int
    member: str | None = None
    """Holder of the lock."""
    lock_ends_at: InstantMs | None = None
    next_state: DeliveryState | None = None
    """State once the acknowledgement that is being written holds."""
    ready_at: InstantMs | None = None
    """End of the delay of a released record."""
    transaction: TransactionKey | None = None
    """Open transaction that its acknowledgement belongs to."""


class ShareCounts(NamedTuple):
    """Records of a window by state, and what is behind it."""

    start: Offset
    end: Offset
    available: int
    acquired: int
    acknowledged: int
    archiving: int
    archived: int
    behind: int
    """Records from the window's end on: never delivered."""

    @property
    def lag(self) -> int:
        """Records whose delivery is not complete."""
        return self.available + self.acquired + self.archiving + self.behind


def view(window: Window, first: Offset, last: Offset) -> Iterator[RangeView]:
    """Ranges of [first, last], in order, cut at both ends. Offsets before the window are finished,
    those after it were never delivered.
    """
    first, last = max(first, window.start), min(last, Offset(window.end - 1))
    for one in window.over(first, last) if first <= last else ():
        pending = None if one.lock is None else one.lock.pending
        yield RangeView(
            max(first, one.first),
            min(last, one.last),
            one.state,
            one.count,
            None if one.lock is None or pending else one.lock.member,
            None if one.lock is None or pending else one.lock.deadline,
            None if one.transition is None else one.transition.state,
            None if one.ready_at == READY else one.ready_at,
            None if pending is None else pending[0],
        )


def counts(window: Window, log_end: Offset) -> ShareCounts:
    """Counts for lag. ``log_end`` is the end of what the group may read: the high watermark, or
    the last stable offset where it reads committed records.
    """
    by_state = window.counts
    return ShareCounts(
        window.start,
        window.end,
        by_state[AVAILABLE],
        by_state[ACQUIRED],
        by_state[ACKNOWLEDGED],
        by_state[ARCHIVING],
        by_state[ARCHIVED],
        max(0, log_end - window.end),
    )
