"""Gate of a group's writes of state, so that one call has many acknowledgements.

One call of a group is under way at a time. Its shard appends one batch at a time too, so that a
second call would only wait there. What changes meanwhile is gathered for the next call. That begins
at once where one request at a time arrives. Where several do, it waits for those that took part in
the last one, as long as they keep coming: their members have just been answered, and acknowledge
again once they have received what they were answered with. On a busy machine that takes longer, as
the call does, too: the wait is bounded by the duration of the last call.
"""

from typing import Final

from tidemark.model.ids import InstantMs

LINGER_MS: Final = 5
"""Bound on the wait for the next request, or twice the duration of the last call if that is longer.
Kafka's share.coordinator.append.linger.ms has the same value.
"""
LINGER_MS_MAX: Final = 20
"""Bound on it however long the last call took."""
GATHERING_MS_MAX: Final = 40
"""Bound on the wait of a request for others, once no call is under way."""


class WriteGate:
    """Calls of one group. ``may_begin``, then ``began`` and ``ended``."""

    def __init__(self) -> None:
        self._is_under_way = False
        self._last: object = None
        self._waiting = 0
        """Requests that wait for the next call."""
        self._expected = 0
        """Requests that the next call waits for."""
        self._began_at = InstantMs(0)
        self._linger_ms = LINGER_MS
        self._linger_until = InstantMs(0)
        self._gather_until = InstantMs(0)

    def acknowledged(self, request: object, now: InstantMs) -> None:
        """Count a request that waits for a write, once for all of its share-partitions."""
        if request is self._last:
            return
        self._last = request
        if now < self._linger_until:
            if not self._waiting:
                self._gather_until = InstantMs(now + GATHERING_MS_MAX)
            self._linger_until = InstantMs(min(now + self._linger_ms, self._gather_until))
        self._waiting += 1

    def may_begin(self, now: InstantMs) -> bool:
        """Return True if a call may begin."""
        if self._is_under_way:
            return False
        return self._waiting >= self._expected or self._linger_until <= now

    def next_deadline(self) -> InstantMs | None:
        """Time from which a call may begin; None if that follows the end of the one under way."""
        return None if self._is_under_way else self._linger_until

    def began(self, now: InstantMs) -> None:
        """Note that a call has begun, for all that waited."""
        assert not self._is_under_way, "one call at a time"
        self._is_under_way = True
        self._began_at = now
        self._last = None
        self._expected, self._waiting = self._waiting, 0

    def ended(self, now: InstantMs) -> None:
        """Note that the call has ended. One request at a time has nobody to wait for."""
        assert self._is_under_way, "it began"
        self._is_under_way = False
        together = self._expected + self._waiting
        self._expected = together if together > 1 else 0
        twice_ms = 2 * (now - self._began_at)
        self._linger_ms = min(max(LINGER_MS, twice_ms), LINGER_MS_MAX)
        self._linger_until = InstantMs(now + self._linger_ms)
        self._gather_until = InstantMs(now + GATHERING_MS_MAX)

    def is_idle(self, now: InstantMs) -> bool:
        """Return True if a new gate would do the same."""
        return not self._waiting and not self._is_under_way and self._linger_until <= now
