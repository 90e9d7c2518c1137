"""Deadline of a call. Time is an argument."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Deadline:
    """Instant at which a call gives up, and the time that its caller allowed."""

    at_ms: float
    allowed_ms: int

    @classmethod
    def after(cls, allowed_ms: int, now_ms: float) -> "Deadline":
        """Return the deadline ``allowed_ms`` from ``now_ms``."""
        return cls(now_ms + allowed_ms, allowed_ms)

    def left_ms(self, now_ms: float) -> float:
        """Return the time left, at least 0."""
        return max(0.0, self.at_ms - now_ms)

    def passed(self, now_ms: float) -> bool:
        """True once the deadline is reached."""
        return now_ms >= self.at_ms
