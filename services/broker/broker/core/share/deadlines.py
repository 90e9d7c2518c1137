"""Deadlines of many share-partitions."""

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
    """Times at which keys are to be looked at. A deadline that moves back, as most do, is noticed
    only when its first time has come: to keep each exact would cost every request more.

    Invariant: each key that was given a time has an entry at that time, or at an earlier one.
    """

    def __init__(self) -> None:
        self._at: dict[Key, InstantMs] = {}
        self._heap: list[tuple[InstantMs, int, Key]] = []
        self._sequence = 0

    def __len__(self) -> int:
        return len(self._at)

    def look_by(self, key: Key, at: InstantMs) -> None:
        """Take a key by this time."""
        known = self._at.get(key)
        if known is not None and known <= at:
            return
        self._at[key] = at
        self._sequence += 1
        heapq.heappush(self._heap, (at, self._sequence, key))
        if len(self._heap) > 64 + 4 * len(self._at):
            self._prune()

    def forget(self, key: Key) -> None:
        """Drop a key with its deadline."""
        self._at.pop(key, None)

    def _prune(self) -> None:
        self._heap = [entry for entry in self._heap if self._at.get(entry[2]) == entry[0]]
        heapq.heapify(self._heap)

    def next(self) -> InstantMs | None:
        """Return the time of the first key."""
        heap = self._heap
        while heap and self._at.get(heap[0][2]) != heap[0][0]:
            heapq.heappop(heap)
        return heap[0][0] if heap else None

    def take_due(self, now: InstantMs) -> list[Key]:
        """Remove and return the keys whose time has come, in order."""
        due: list[Key] = []
        while (at := self.next()) is not None and at <= now:
            key = heapq.heappop(self._heap)[2]
            del self._at[key]
            due.append(key)
        return due
