"""Deadlines of a group's members: one each, moved by every heartbeat and rarely reached."""

import heapq

from tidemark.model.ids import InstantMs


class MemberTimers:
    """At most one deadline for each member. Moving one later changes only the table: the queue has
    each member at a time not after its deadline, and is corrected when that time comes.

    Invariant: a member with a deadline is queued, at or before it.
    """

    __slots__ = ("_due", "_queue", "_queued")

    def __init__(self) -> None:
        self._due: dict[str, InstantMs] = {}
        self._queue: list[tuple[InstantMs, str]] = []
        self._queued: dict[str, InstantMs] = {}

    def start(self, member_id: str, due: InstantMs) -> None:
        """Set or move a member's deadline."""
        self._due[member_id] = due
        queued = self._queued.get(member_id)
        if queued is None or due < queued:
            self._queued[member_id] = due
            heapq.heappush(self._queue, (due, member_id))

    def stop(self, member_id: str) -> None:
        """Remove a member's deadline."""
        self._due.pop(member_id, None)

    def due_of(self, member_id: str) -> InstantMs | None:
        """Return the member's deadline, or None."""
        return self._due.get(member_id)

    def next(self) -> InstantMs | None:
        """Return the first deadline."""
        while self._queue:
            at, member_id = self._queue[0]
            due = self._due.get(member_id)
            if self._queued.get(member_id) == at:
                if due == at:
                    return at
                del self._queued[member_id]
            heapq.heappop(self._queue)
            if due is not None:
                self.start(member_id, due)
        return None

    def expired(self, now: InstantMs) -> list[str]:
        """Return the members whose deadline has passed, in that order; their deadlines stay."""
        first = self.next()
        if first is None or first > now:
            return []
        expired = [(due, member_id) for member_id, due in self._due.items() if due <= now]
        return [member_id for _, member_id in sorted(expired)]

    def first_expired(self, now: InstantMs) -> str | None:
        """Return the member whose deadline was reached first, which it keeps; None: none was."""
        first = self.next()
        return self._queue[0][1] if first is not None and first <= now else None

    def check(self) -> None:
        """Assert the invariant."""
        for member_id, due in self._due.items():
            assert self._queued[member_id] <= due, member_id
