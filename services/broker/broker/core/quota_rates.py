"""Rates of quotas, as Kafka measures them, and the throttle time that follows from an excess.

A rate is the sum over the last samples, divided by the time that they span (KIP-13). A sample is a
window of time that begins with the first amount in it. Mutations of the controller are paid from a
bucket instead, because one of them may be large (KIP-599).
"""

from collections import deque
from typing import Final, NamedTuple

from tidemark.model.ids import InstantMs

MS_PER_S: Final = 1_000
LONGEST_MS: Final = 2**31 - 1
"""Longest time that is computed: a tiny bound, which only a typing error sets, gives infinity."""


class QuotaWindow(NamedTuple):
    """``quota.window.num`` samples of ``quota.window.size.seconds``."""

    samples: int = 11
    sample_ms: int = 1_000

    @property
    def whole_ms(self) -> int:
        """Time after which nothing is left of an amount."""
        return self.samples * self.sample_ms

    @property
    def measured_ms(self) -> int:
        """Shortest time by which a sum is divided: all samples but the one that is filling."""
        return max(1, self.samples - 1) * self.sample_ms


class SampledRate:
    """Rate of amounts over the window."""

    __slots__ = ("_samples", "_window")

    def __init__(self, window: QuotaWindow) -> None:
        self._window = window
        self._samples: deque[list[float]] = deque()  # start in ms, sum; the oldest first

    def record(self, amount: float, now: InstantMs) -> None:
        """Add an amount."""
        samples = self._samples
        if samples and now - samples[-1][0] < self._window.sample_ms:
            samples[-1][1] += amount
            return
        self._forget(now)
        samples.append([now, amount])

    def _forget(self, now: InstantMs) -> None:
        samples, begun = self._samples, now - self._window.whole_ms
        while samples and samples[0][0] <= begun:
            samples.popleft()

    def measure(self, now: InstantMs) -> tuple[float, int]:
        """Return the sum of what is in the window, and the ms by which it is divided."""
        self._forget(now)
        samples, window = self._samples, self._window
        if not samples:
            return 0.0, window.measured_ms
        elapsed_ms = int(now - samples[0][0])
        full = elapsed_ms // window.sample_ms
        missing = max(0, max(1, window.samples - 1) - full)
        total = sum([one[1] for one in samples])
        return total, elapsed_ms + missing * window.sample_ms

    def throttle_ms(self, bound: float, now: InstantMs, extra: float = 0.0) -> int:
        """Return the time after which the rate is back at ``bound`` per second, in ms. ``extra`` is
        an amount that is not recorded yet.
        """
        total, elapsed_ms = self.measure(now)
        excess_ms = (total + extra) * MS_PER_S / bound - elapsed_ms
        return _whole_ms(excess_ms)

    def is_idle(self, now: InstantMs) -> bool:
        """True if nothing is left in the window: a new rate would do the same."""
        self._forget(now)
        return not self._samples


class MutationBucket:
    """Token bucket of KIP-599. It fills at the rate of the quota, up to what a whole window gives.
    A mutation is accepted while there is no debt, whatever it costs.
    """

    __slots__ = ("_filled_at", "_tokens", "_window")

    def __init__(self, window: QuotaWindow) -> None:
        self._window = window
        self._tokens: float | None = None  # full
        self._filled_at = InstantMs(0)

    def _fill(self, bound: float, now: InstantMs) -> float:
        burst = bound * self._window.whole_ms / MS_PER_S
        tokens = burst
        if self._tokens is not None:
            filled = self._tokens + (now - self._filled_at) * bound / MS_PER_S
            tokens = min(burst, filled)
        self._tokens, self._filled_at = tokens, now
        return tokens

    def take(self, permits: float, bound: float, now: InstantMs) -> None:
        """Take permits, into debt if there are too few."""
        self._tokens = self._fill(bound, now) - permits

    def throttle_ms(self, bound: float, now: InstantMs) -> int:
        """Return the time after which there is no debt, in ms."""
        tokens = self._fill(bound, now)
        return _whole_ms(-tokens * MS_PER_S / bound)

    def is_idle(self, bound: float, now: InstantMs) -> bool:
        """True if the bucket is full: a new one would do the same."""
        return self._fill(bound, now) >= bound * self._window.whole_ms / MS_PER_S


def _whole_ms(wait_ms: float) -> int:
    return round(min(wait_ms, LONGEST_MS)) if wait_ms > 0 else 0
