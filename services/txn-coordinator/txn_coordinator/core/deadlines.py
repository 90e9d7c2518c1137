"""Deadlines of keys, one for each key."""

import heapq
from collections.abc import Iterable
from typing import Final

from tidemark.model.ids import InstantMs

_STALE_KEPT: Final = 64


class Deadlines:
    """Heap of deadlines. Discarded ones stay in it until they surface, or become the majority.

    Invariant: ``_due`` has the deadlines in force; the heap has each of its pairs.
    """

    __slots__ = ("_due", "_heap")

    def __init__(self) -> None:
        self._due: dict[str, InstantMs] = {}
        self._heap: list[tuple[InstantMs, str]] = []

    def __len__(self) -> int:
        return len(self._due)

    def __contains__(self, key: str) -> bool:
        return key in self._due

    def keys(self) -> Iterable[str]:
        """Return all keys with a deadline."""
        return self._due

    def put(self, key: str, due: InstantMs) -> None:
        """Set or move the deadline of ``key``."""
        self._due[key] = due
        heapq.heappush(self._heap, (due, key))
        if len(self._heap) > 2 * len(self._due) + _STALE_KEPT:
            self._heap = [(due, key) for key, due in self._due.items()]
            heapq.heapify(self._heap)

    def discard(self, key: str) -> None:
        """Remove the deadline of ``key``, if it has one."""
        self._due.pop(key, None)

    def first(self) -> InstantMs | None:
        """Return the earliest deadline, if there is any."""
        heap = self._heap
        while heap and self._due.get(heap[0][1]) != heap[0][0]:
            heapq.heappop(heap)
        return heap[0][0] if heap else None

    def pop_due(self, now: InstantMs, count_max: int) -> list[str]:
        """Remove and return at most ``count_max`` keys that are due, earliest first."""
        keys: list[str] = []
        while len(keys) < count_max:
            first = self.first()
            if first is None or first > now:
                break
            _, key = heapq.heappop(self._heap)
            del self._due[key]
            keys.append(key)
        return keys
