"""What becomes due when: one deadline a key, moved far more often than it is reached."""

import heapq
from enum import Enum
from typing import NamedTuple

from tidemark.model.ids import InstantMs


class Kind(Enum):
    """What is due."""

    SESSION = "session"
    """A member was not heard of for its session timeout; or never joined as it was told to."""
    JOIN = "join"
    """The members of the next generation must have joined."""
    SYNC = "sync"
    """They must have asked for their assignments."""
    CONSUMER = "consumer"
    """Something in a group of KIP-848, which knows what."""
    EXPIRY = "expiry"
    """Offsets must be looked through for old ones."""


class Key(NamedTuple):
    """Whose deadline; ``member_id`` only where it is a member's."""

    kind: Kind
    group_id: str
    member_id: str = ""


class Deadlines:
    """A heap with one entry a key, never later than the key's deadline.

    A heartbeat moves a deadline later: that touches only the table. The stale entry, once it is on
    top and due, goes back with the deadline of the day.
    """

    def __init__(self) -> None:
        self._due_at: dict[Key, InstantMs] = {}
        self._queued_at: dict[Key, InstantMs] = {}
        self._heap: list[tuple[InstantMs, int, Key]] = []
        self._pushed = 0

    def set(self, key: Key, at: InstantMs) -> None:
        """Make ``key`` due at ``at``, whenever it was due before."""
        self._due_at[key] = at
        queued = self._queued_at.get(key)
        if queued is None or at < queued:
            self._push(key, at)

    def cancel(self, key: Key) -> None:
        """``key`` is not due any more."""
        self._due_at.pop(key, None)

    def next(self) -> InstantMs | None:
        """When to look again: not after the first deadline, maybe before."""
        while self._heap and self._heap[0][2] not in self._due_at:
            self._pop()
        return self._heap[0][0] if self._heap else None

    def take_due(self, now: InstantMs) -> Key | None:
        """A key that is due, the earliest first; its deadline is gone. None: nothing is due."""
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
