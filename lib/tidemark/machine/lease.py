"""Lease: how long a broker may take itself for the only leader of what it leads.

Pure; instants are milliseconds of a clock that counts suspended time (CLOCK_BOOTTIME). A renewal
counts from before it was submitted, so that however long it took on its way, the one who waits a
whole lease before replacing a leader waits longer than that leader believes.
"""

from typing import Final

from tidemark.model.ids import InstantMs

RENEWALS_PER_LEASE: Final = 6
HELD_TENTHS: Final = 8
"""Of the lease: the rest is for clocks that run at different rates (within 10 %)."""
_NEVER: Final = InstantMs(-1)


class Lease:
    """One broker's lease; at most one renewal is under way.

    Invariant: ``holds`` is true only before (begin of the last confirmed renewal) + 0.8 lease.
    """

    __slots__ = ("_begun_at", "_held_until", "_next_at", "lease_ms")

    def __init__(self, lease_ms: int) -> None:
        assert lease_ms >= RENEWALS_PER_LEASE, lease_ms
        self.lease_ms = lease_ms
        self._begun_at = _NEVER
        self._held_until = _NEVER
        self._next_at = _NEVER

    def next_renewal(self, now: InstantMs) -> InstantMs:
        """When the next renewal should begin; now, when there has been none."""
        return max(self._next_at, now) if self._next_at != _NEVER else now

    def begin(self, now: InstantMs) -> None:
        """A renewal is about to be submitted."""
        assert self._begun_at == _NEVER, "one renewal at a time"
        self._begun_at = now
        self._next_at = InstantMs(now + self.lease_ms // RENEWALS_PER_LEASE)

    def confirmed(self) -> None:
        """The renewal under way is in ZooKeeper."""
        assert self._begun_at != _NEVER, "nothing was begun"
        held_until = InstantMs(self._begun_at + self.lease_ms * HELD_TENTHS // 10)
        self._held_until = max(self._held_until, held_until)
        self._begun_at = _NEVER

    def failed(self) -> None:
        """The renewal under way did not happen, or nobody knows: it extends nothing."""
        self._begun_at = _NEVER

    def lost(self) -> None:
        """The session is over: nothing is held, and nothing under way will count."""
        self._begun_at = self._held_until = self._next_at = _NEVER

    def holds(self, now: InstantMs) -> bool:
        """Whether nobody else can lead yet."""
        return now < self._held_until
