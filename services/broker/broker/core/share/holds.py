"""Ranges of a window that a member or a transaction holds."""

from collections.abc import Collection

from tidemark.model.share_state import TransactionKey

from broker.core.share.window import Lock, Range, Window


def held_by(window: Window, lock: Lock) -> list[Range]:
    """Return the ranges of a lock, without those whose acknowledgement is being written."""
    if not lock.records or lock.span is None:
        return []
    first, last = max(lock.span[0], window.start), lock.span[1]
    over = window.over(first, last)
    return [one for one in over if one.lock is lock and one.transition is None]


def end_locks_of(window: Window, member: str) -> list[Range]:
    """End the locks of a member; return the ranges to give back. Those whose acknowledgement is
    being written are given back if the write fails.
    """
    held: list[Range] = []
    for one in window:
        if one.lock is not None and one.lock.member == member:
            one.lock.is_over = True
            if one.transition is None:
                held.append(one)
    return held


def check_locks(window: Window) -> None:
    """Assert that locks count what they hold."""
    held: dict[int, int] = {}
    for one in window:
        if one.lock is not None:
            held[id(one.lock)] = held.get(id(one.lock), 0) + one.records
            assert one.lock.records > 0, "a lock counts what it holds"
    for one in window:
        assert one.lock is None or held[id(one.lock)] == one.lock.records, str(one)


def belongs_to(one: Range, transactions: Collection[TransactionKey]) -> bool:
    """Return True if the acknowledgement that is being written is part of one of these
    transactions.
    """
    pending = None if one.transition is None else one.transition.pending
    return pending is not None and pending[0] in transactions
