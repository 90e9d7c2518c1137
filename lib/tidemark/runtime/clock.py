"""Clock: the only module that reads the machine's clocks.

Cores take the time as an argument; shells read it here.
"""

import time

from tidemark.model.ids import InstantMs, WallMs

_NS_PER_MS = 1_000_000


class Clock:
    """The machine's clocks. Milliseconds everywhere."""

    def now_ms(self) -> InstantMs:
        """Return monotonic time for deadlines; it stops while the machine is suspended."""
        return InstantMs(time.monotonic_ns() // _NS_PER_MS)

    def precise_s(self) -> float:
        """Return monotonic time in seconds, for durations that are shorter than a millisecond."""
        return time.perf_counter()

    def boot_ms(self) -> InstantMs:
        """Return monotonic time that includes suspension (CLOCK_BOOTTIME), which leases need."""
        return InstantMs(time.clock_gettime_ns(time.CLOCK_BOOTTIME) // _NS_PER_MS)

    def wall_ms(self) -> WallMs:
        """Return the time since 1970, UTC; it may jump. Only for timestamps of records and logs."""
        return WallMs(time.time_ns() // _NS_PER_MS)

    def seconds_until(self, deadline: InstantMs) -> float:
        """Return the seconds until an instant of ``now_ms``; 0 once it has passed."""
        return max(0, deadline - self.now_ms()) / 1_000
