"""Exponential back-off with jitter (KIP-580). Randomness is an argument."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

Dice = Callable[[], float]
"""Draws a number in [0, 1)."""

JITTER: Final = 0.2
"""Share by which a delay is spread either way: processes that failed together do not retry
together.
"""
EVEN: Final = 0.5
"""The draw that leaves a delay as it is."""
_DOUBLINGS_MAX: Final = 30


def spread(delay: float, dice: float) -> float:
    """Return a delay spread by JITTER either way. ``dice`` is a number in [0, 1)."""
    return delay * (1 - JITTER + 2 * JITTER * dice)


@dataclass(frozen=True, slots=True)
class Backoff:
    """Delays that double from ``first_ms`` up to ``max_ms``, before jitter."""

    first_ms: float
    max_ms: float

    def delay_ms(self, failures: int, dice: float) -> float:
        """Return the delay after ``failures`` failed attempts in a row (at least 1).

        ``dice`` is a number in [0, 1).
        """
        assert failures >= 1, failures
        doubled = self.first_ms * (1 << min(failures - 1, _DOUBLINGS_MAX))
        return spread(min(doubled, max(self.max_ms, self.first_ms)), dice)

    def is_longest(self, failures: int) -> bool:
        """True if further failures do not lengthen the delay."""
        return self.delay_ms(failures, EVEN) >= self.max_ms


class RetryDelays:
    """Delays between the attempts of one task, each longer than the one before."""

    __slots__ = ("_backoff", "_dice", "_failures")

    def __init__(self, backoff: Backoff, dice: Dice) -> None:
        self._backoff = backoff
        self._dice = dice
        self._failures = 0

    def next_ms(self) -> float:
        """Count a failure and return the delay before the next attempt."""
        self._failures += 1
        return self._backoff.delay_ms(self._failures, self._dice())

    def next_s(self) -> float:
        """Return ``next_ms`` in seconds."""
        return self.next_ms() / 1_000

    def reset(self) -> None:
        """Start again from the first delay, after a success."""
        self._failures = 0
