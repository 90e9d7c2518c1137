"""Writes of a share-partition's state to the share-coordinator, one at a time.

A write has every acknowledgement since the last one, which holds once the write does, and every
change that holds already (expired locks, released sessions), which is written again until it is.
"""

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from tidemark.model.ids import NO_OFFSET, InstantMs, LeaderEpoch, Offset
from tidemark.model.share_state import (
    TERMINAL_STATES,
    PendingBatch,
    SharePartitionKey,
    StateBatch,
    StateEpoch,
    TransactionKey,
    WriteState,
)

from broker.core.share.states import ACQUIRED, ARCHIVING, AVAILABLE
from broker.core.share.window import Range, Window

START_WRITTEN_MS: Final = 5_000
"""Time after which a start is written that moved without an acknowledgement."""

Span = tuple[Offset, Offset]
"""First and last offset."""


class StateOwner(NamedTuple):
    """The share-partition and the epochs that a write names."""

    key: SharePartitionKey
    state_epoch: StateEpoch
    leader_epoch: LeaderEpoch


class Waiting(NamedTuple):
    """A request, and the transaction that its acknowledgements belong to."""

    request: Hashable
    transaction: TransactionKey | None


@dataclass(slots=True)
class Pending:
    """Content of one write."""

    moved: list[Range] = field(default_factory=list)
    """Ranges with a transition."""
    unwritten: list[Span] = field(default_factory=list)
    """Offsets that changed and hold already."""
    waiting: list[Waiting] = field(default_factory=list)
    """Requests that are answered with the write's result."""
    archiving: list[Span] = field(default_factory=list)
    """Dead letters that it makes durable."""
    start: Offset | None = None
    """Start offset that was not written yet, although nothing else changed."""
    reached: Offset = NO_OFFSET
    """Start offset that the write makes durable."""

    @property
    def is_empty(self) -> bool:
        """True if there is nothing to write."""
        return not self.moved and not self.unwritten and self.start is None


class StateWrites:
    """Invariant: at most one write is under way; a range with a transition is part of it, or of
    the next one.
    """

    def __init__(self) -> None:
        self.next = Pending()
        self.under_way: Pending | None = None
        self.retry_at: InstantMs | None = None
        """After a failure: when what holds already is written again. What a member waits for is
        written at once.
        """
        self.start_at: InstantMs | None = None
        """Time at which a start that moved is written, although nothing else changed."""

    def start_moved(self, window: Window, now: InstantMs) -> None:
        """Note that the start passed offsets without a record, or was moved by the log. The next
        leader would find the same, but the lag is counted from the start that is written. What is
        acquired is written anyway once it is given back or finished.
        """
        if self.start_at is None and not window.counts[ACQUIRED]:
            self.start_at = InstantMs(now + START_WRITTEN_MS)

    @property
    def is_idle(self) -> bool:
        """True if nothing waits to be written."""
        return self.under_way is None and self.next.is_empty

    def is_due(self, now: InstantMs) -> bool:
        """Return True if a write may begin."""
        if self.under_way is not None:
            return False
        if self.next.moved:
            return True
        if self.next.is_empty:
            return self.start_at is not None and self.start_at <= now
        return self.retry_at is None or self.retry_at <= now

    def next_deadline(self) -> InstantMs | None:
        """Time of the next write that is not due yet; None if there is none."""
        if self.under_way is not None or self.next.moved:
            return None
        return self.start_at if self.next.is_empty else self.retry_at

    def begin(self, owner: StateOwner, window: Window) -> WriteState:
        """The next write; it is under way until ``end``."""
        assert self.under_way is None, "one write at a time"
        pending, self.next = self.next, Pending()
        self.under_way = pending
        start = pending.reached = start_after(window)
        if self.start_at is not None:
            pending.start, self.start_at = start, None
        moved, in_transactions, finishing = _content(pending.moved)
        if pending.unwritten:
            pending.unwritten = spans_joined(pending.unwritten, window)
            moved += _unwritten_batches(pending.unwritten, window)
        batches = state_batches(moved, start)
        for first, last, state, _ in batches:
            if state is ARCHIVING:
                pending.archiving.append((first, last))
        return WriteState(
            owner.key,
            owner.state_epoch,
            owner.leader_epoch,
            start,
            batches,
            window.finished_records - (start - window.start) + finishing,
            in_transactions,
        )

    def end(self, *, is_written: bool, retry_at: InstantMs) -> Pending:
        """The write that was under way. What holds already is written again after a failure."""
        assert self.under_way is not None, "an answer belongs to a write"
        ended, self.under_way = self.under_way, None
        if is_written:
            self.retry_at = None
            return ended
        self.retry_at = retry_at
        self.next.unwritten = ended.unwritten + self.next.unwritten
        self.next.start = ended.start if self.next.start is None else self.next.start
        return ended

    def abandon(self) -> list[Hashable]:
        """Drop all; requests that waited."""
        waiting = self.next.waiting
        if self.under_way is not None:
            waiting = self.under_way.waiting + waiting
        self.next, self.under_way, self.start_at = Pending(), None, None
        return [one.request for one in waiting]


def start_after(window: Window) -> Offset:
    """Start of the window once all its transitions hold: a write that makes them hold can say so
    at once, and need not name what is below.
    """
    for one in window:
        transition = one.transition
        state = one.state if transition is None else transition.state
        if state not in TERMINAL_STATES:
            return one.first
    return window.end


def spans_joined(spans: Iterable[Span], window: Window) -> list[Span]:
    """Spans in order, without overlap, and none below the window."""
    joined: list[Span] = []
    for first, last in sorted(spans):
        if last < window.start:
            continue
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(last, joined[-1][1]))
        else:
            joined.append((max(first, window.start), last))
    return joined


def state_batches(batches: Iterable[StateBatch], start: Offset) -> tuple[StateBatch, ...]:
    """Batches in order, neighbours of one state and count as one, and none below ``start``.

    start               S
    batch    [--A--]    |             below: dropped
    batch           [--B|--]          keeps [S, last]
    batch               |  [C][C]     joined
    """
    joined: list[StateBatch] = []
    for batch in sorted(batches):
        first, last, state, delivery_count = batch
        if last < start:
            continue
        if joined:
            before = joined[-1]
            assert before.last_offset < first, "an offset has one state"
            if (
                before.last_offset + 1 == first
                and before.delivery_state is state
                and before.delivery_count == delivery_count
            ):
                joined[-1] = before._replace(last_offset=last)
                continue
        joined.append(batch if first >= start else batch._replace(first_offset=start))
    return tuple(joined)


def _content(
    moved: Iterable[Range],
) -> tuple[list[StateBatch], tuple[PendingBatch, ...], int]:
    """Return what transitions write: batches, acknowledgements that belong to transactions, in
    order, and the number of records that are finished then.
    """
    batches: list[StateBatch] = []
    in_transactions: list[PendingBatch] = []
    finishing = 0
    for one in moved:
        if one.transition is None:
            continue
        state, delivery_count, _, pending, _ = one.transition
        if pending is not None:
            transaction, outcome = pending
            in_transactions.append(
                PendingBatch(one.first, one.last, outcome, delivery_count, transaction)
            )
            continue
        batches.append(StateBatch(one.first, one.last, state, delivery_count))
        if state in TERMINAL_STATES:
            finishing += one.last - one.first + 1
    return batches, tuple(sorted(in_transactions)), finishing


def _unwritten_batches(spans: Sequence[Span], window: Window) -> Iterable[StateBatch]:
    """State of what changed, as far as it holds. A record that was acquired since then is
    written as available, with one delivery less.
    """
    for first, last in spans:
        for one in window.over(first, last):
            if one.transition is not None:
                continue
            state, delivery_count = one.state, one.count
            if state is ACQUIRED:
                state, delivery_count = AVAILABLE, delivery_count - 1
            if delivery_count or state is not AVAILABLE:
                piece_first, piece_last = max(first, one.first), min(last, one.last)
                yield StateBatch(piece_first, piece_last, state, delivery_count)
