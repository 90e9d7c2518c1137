"""Instants by which something is due, one for each key."""

import heapq
from collections.abc import Iterable
from typing import Final

from tidemark.model.ids import InstantMs

_STALE_KEPT: Final = 64


class Deadlines:
    """A heap in which what was discarded stays until it surfaces, or until it is the larger part.

    Invariant: ``_due`` says what counts; the heap has each of its pairs.
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
        """All that have one."""
        return self._due

    def put(self, key: str, due: InstantMs) -> None:
        """Set or move the deadline of ``key``."""
        self._due[key] = due
        heapq.heappush(self._heap, (due, key))
        if len(self._heap) > 2 * len(self._due) + _STALE_KEPT:
            self._heap = [(due, key) for key, due in self._due.items()]
            heapq.heapify(self._heap)

    def discard(self, key: str) -> None:
        """Nothing is due for ``key`` any more."""
        self._due.pop(key, None)

    def first(self) -> InstantMs | None:
        """The earliest deadline."""
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
