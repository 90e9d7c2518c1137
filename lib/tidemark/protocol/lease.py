"""Lease: the time for which a broker may act as the only leader of its partitions.

Pure; instants are milliseconds of a clock that includes suspended time (CLOCK_BOOTTIME). A renewal
counts from before its submission. So the controller, which waits a whole lease before it replaces a
leader, waits longer than that leader counts on, however long the renewal took to arrive.
"""

from typing import Final

from tidemark.model.ids import InstantMs

RENEWALS_PER_LEASE: Final = 6
HELD_TENTHS: Final = 8
"""Tenths of the lease for which it is held. The rest allows for clocks whose rates differ (by up to
10 %).
"""
_NEVER: Final = InstantMs(-1)


class Lease:
    """Lease of one broker; at most one renewal is in flight.

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
        """Return the time of the next renewal; ``now`` if there has been none."""
        return max(self._next_at, now) if self._next_at != _NEVER else now

    def begin(self, now: InstantMs) -> None:
        """Start a renewal, before it is submitted."""
        assert self._begun_at == _NEVER, "one renewal at a time"
        self._begun_at = now
        self._next_at = InstantMs(now + self.lease_ms // RENEWALS_PER_LEASE)

    def confirmed(self) -> None:
        """Extend the lease: the renewal in flight is in ZooKeeper."""
        assert self._begun_at != _NEVER, "nothing was begun"
        held_until = InstantMs(self._begun_at + self.lease_ms * HELD_TENTHS // 10)
        self._held_until = max(self._held_until, held_until)
        self._begun_at = _NEVER

    def failed(self) -> None:
        """Drop the renewal in flight, which failed or has an unknown outcome."""
        self._begun_at = _NEVER

    def lost(self) -> None:
        """Drop the lease and any renewal in flight: the session has ended."""
        self._begun_at = self._held_until = self._next_at = _NEVER

    def holds(self, now: InstantMs) -> bool:
        """True if no other broker can lead yet."""
        return now < self._held_until
