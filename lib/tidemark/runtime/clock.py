"""Clock: the only module that reads a clock.

Cores get the time as an argument; shells get it from here.
"""

import time

from tidemark.model.ids import InstantMs, WallMs

_NS_PER_MS = 1_000_000


class Clock:
    """The machine's clocks. Milliseconds everywhere."""

    def now_ms(self) -> InstantMs:
        """Monotonic, for intervals and deadlines; stands still while the machine is suspended."""
        return InstantMs(time.monotonic_ns() // _NS_PER_MS)

    def boot_ms(self) -> InstantMs:
        """Monotonic, counting suspension too (CLOCK_BOOTTIME).

        What a lease must be measured with.
        """
        return InstantMs(time.clock_gettime_ns(time.CLOCK_BOOTTIME) // _NS_PER_MS)

    def wall_ms(self) -> WallMs:
        """Since 1970, UTC; may jump. Only for the timestamps of records and for people."""
        return WallMs(time.time_ns() // _NS_PER_MS)

    def seconds_until(self, deadline: InstantMs) -> float:
        """Seconds until an instant of ``now_ms``; 0 when it has passed."""
        return max(0, deadline - self.now_ms()) / 1_000
