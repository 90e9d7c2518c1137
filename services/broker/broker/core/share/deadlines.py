"""One deadline for each of many share-partitions."""

import heapq
from collections.abc import Hashable
from typing import Generic, TypeVar

from tidemark.model.ids import InstantMs

Key = TypeVar("Key", bound=Hashable)


def earlier(one: InstantMs | None, other: InstantMs | None) -> InstantMs | None:
    """Return the first of two deadlines; None is never."""
    if one is None or other is None:
        return other if one is None else one
    return min(one, other)


class Deadlines(Generic[Key]):
    """A heap with entries that may be out of date.

    Invariant: the deadline of every key has an entry.
    """

    def __init__(self) -> None:
        self._at: dict[Key, InstantMs] = {}
        self._heap: list[tuple[InstantMs, int, Key]] = []
        self._sequence = 0

    def __len__(self) -> int:
        return len(self._at)

    def set(self, key: Key, at: InstantMs | None) -> None:
        """Set or move a deadline; None removes it."""
        if at is None:
            self._at.pop(key, None)
        elif self._at.get(key) != at:
            self._at[key] = at
            self._sequence += 1
            heapq.heappush(self._heap, (at, self._sequence, key))
            if len(self._heap) > 64 + 4 * len(self._at):
                self._prune()

    def _prune(self) -> None:
        self._heap = [entry for entry in self._heap if self._at.get(entry[2]) == entry[0]]
        heapq.heapify(self._heap)

    def next(self) -> InstantMs | None:
        """Return the first deadline."""
        heap = self._heap
        while heap and self._at.get(heap[0][2]) != heap[0][0]:
            heapq.heappop(heap)
        return heap[0][0] if heap else None

    def take_due(self, now: InstantMs) -> list[Key]:
        """Remove and return the keys whose deadline has come, in order."""
        due: list[Key] = []
        while (at := self.next()) is not None and at <= now:
            key = heapq.heappop(self._heap)[2]
            del self._at[key]
            due.append(key)
        return due
