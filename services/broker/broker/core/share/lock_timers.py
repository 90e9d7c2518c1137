"""Timers of locks, and of delays of released records."""

import heapq
from typing import Final

from tidemark.model.ids import InstantMs, Offset

from broker.core.share.deadlines import earlier
from broker.core.share.window import Lock

_PRUNED_FROM: Final = 64


class LockTimers:
    """Invariant: every lock that holds records and is not over has an entry. Other entries stay
    until their time, or until they outnumber these.
    """

    def __init__(self) -> None:
        self._locks: list[tuple[InstantMs, int, Lock]] = []
        self._delays: list[tuple[InstantMs, Offset]] = []
        self._sequence = 0
        self._prune_at = _PRUNED_FROM

    def __len__(self) -> int:
        return len(self._locks)

    def start(self, lock: Lock) -> None:
        """Watch a lock until its deadline."""
        self._sequence += 1
        if len(self._locks) >= self._prune_at:
            self._prune()
        heapq.heappush(self._locks, (lock.deadline, self._sequence, lock))

    def _prune(self) -> None:
        self._locks = [entry for entry in self._locks if entry[2].records]
        heapq.heapify(self._locks)
        self._prune_at = max(_PRUNED_FROM, 2 * len(self._locks))

    def delay(self, offset: Offset, ready_at: InstantMs) -> None:
        """Watch a released record until it is to be delivered again."""
        heapq.heappush(self._delays, (ready_at, offset))

    def is_due(self, now: InstantMs) -> bool:
        """Return True if the time of an entry has come."""
        if self._locks and self._locks[0][0] <= now:
            return True
        return bool(self._delays) and self._delays[0][0] <= now

    def ended(self, now: InstantMs) -> list[Lock]:
        """Locks that end now, and hold something."""
        ended: list[Lock] = []
        while self._locks and self._locks[0][0] <= now:
            lock = heapq.heappop(self._locks)[2]
            if lock.records and not lock.is_over:
                ended.append(lock)
        return ended

    def ready(self, now: InstantMs) -> Offset | None:
        """Lowest offset whose delay is over now; None if there is none."""
        lowest: Offset | None = None
        while self._delays and self._delays[0][0] <= now:
            offset = heapq.heappop(self._delays)[1]
            lowest = offset if lowest is None else min(lowest, offset)
        return lowest

    def next_deadline(self) -> InstantMs | None:
        """Time of the first that ends."""
        locks = self._locks
        while locks:
            lock = locks[0][2]
            if lock.records and not lock.is_over:
                break
            heapq.heappop(locks)
        locks_due = locks[0][0] if locks else None
        return earlier(locks_due, self._delays[0][0]) if self._delays else locks_due
