"""Deadlines of a shard's groups: one for each key, moved far more often than it is reached."""

import heapq
from enum import Enum
from typing import NamedTuple

from tidemark.model.ids import InstantMs


class Kind(Enum):
    """Kind of a deadline."""

    SESSION = "session"
    """End of a member's session, or of the time in which an id from KIP-394 must join."""
    JOIN = "join"
    """End of the time to join the next generation."""
    SYNC = "sync"
    """End of the time to send SyncGroup."""
    CONSUMER = "consumer"
    """Next deadline of a KIP-848 group, which keeps its own list."""
    EXPIRY = "expiry"
    """Next search for expired offsets."""


class Key(NamedTuple):
    """Key of a deadline; ``member_id`` is empty unless it belongs to a member."""

    kind: Kind
    group_id: str
    member_id: str = ""


class Deadlines:
    """A heap with at most one entry for each key, never later than the key's deadline.

    A heartbeat moves a deadline later, which changes only the table. When the outdated entry
    reaches the top and is due, it is pushed again with the current deadline.
    """

    def __init__(self) -> None:
        self._due_at: dict[Key, InstantMs] = {}
        self._queued_at: dict[Key, InstantMs] = {}
        self._heap: list[tuple[InstantMs, int, Key]] = []
        self._pushed = 0

    def set(self, key: Key, at: InstantMs) -> None:
        """Set or move the deadline of ``key``."""
        self._due_at[key] = at
        queued = self._queued_at.get(key)
        if queued is None or at < queued:
            self._push(key, at)

    def cancel(self, key: Key) -> None:
        """Remove the deadline of ``key``, if there is one."""
        self._due_at.pop(key, None)

    def next(self) -> InstantMs | None:
        """Return a time not later than the first deadline; it may be earlier."""
        while self._heap and self._heap[0][2] not in self._due_at:
            self._pop()
        return self._heap[0][0] if self._heap else None

    def take_due(self, now: InstantMs) -> Key | None:
        """Remove and return the key with the earliest deadline that is due, or None."""
        while self._heap and self._heap[0][0] <= now:
            key = self._pop()
            due_at = self._due_at.get(key)
            if due_at is None:
                continue
            if due_at > now:
                if key not in self._queued_at:
                    self._push(key, due_at)
                continue
            del self._due_at[key]
            return key
        return None

    def __len__(self) -> int:
        return len(self._due_at)

    def _push(self, key: Key, at: InstantMs) -> None:
        self._pushed += 1  # keys do not compare; first come, first served
        self._queued_at[key] = at
        heapq.heappush(self._heap, (at, self._pushed, key))

    def _pop(self) -> Key:
        at, _, key = heapq.heappop(self._heap)
        if self._queued_at.get(key) == at:
            del self._queued_at[key]
        return key
