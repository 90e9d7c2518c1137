"""How long to wait before a further try, and until when to try at all. No clock, no dice: both are
arguments.
"""

from dataclasses import dataclass
from typing import Final

JITTER: Final = 0.2
_DOUBLINGS_MAX: Final = 30


@dataclass(frozen=True, slots=True)
class Backoff:
    """Exponential back-off between ``first_ms`` and ``max_ms`` with jitter (KIP-580)."""

    first_ms: int
    max_ms: int

    def delay_ms(self, failures: int, dice: float) -> float:
        """Wait after ``failures`` (from 1) failed tries; ``dice`` in [0, 1) spreads clients by 20 %
        either way.
        """
        assert failures >= 1, failures
        doubled = self.first_ms << min(failures - 1, _DOUBLINGS_MAX)
        spread = 1 - JITTER + 2 * JITTER * dice
        return min(doubled, max(self.max_ms, self.first_ms)) * spread


@dataclass(frozen=True, slots=True)
class Deadline:
    """The instant until which a call may go on, and what the caller allowed in all."""

    at_ms: float
    allowed_ms: int

    @classmethod
    def after(cls, allowed_ms: int, now_ms: float) -> "Deadline":
        """``allowed_ms`` from now."""
        return cls(now_ms + allowed_ms, allowed_ms)

    def left_ms(self, now_ms: float) -> float:
        """Never below 0."""
        return max(0.0, self.at_ms - now_ms)

    def passed(self, now_ms: float) -> bool:
        """Whether the time is up."""
        return now_ms >= self.at_ms
