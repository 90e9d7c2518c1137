"""Quotas: every produce, fetch and request is charged, and returns the time for which its
connection is muted.

No quota is configured by default, which costs one attribute test. A quota is a rate over a window
(KIP-13's token form): an excess becomes throttle time, so that the average returns to the rate.
"""

from dataclasses import dataclass, field
from typing import Final

from tidemark.model.ids import InstantMs

THROTTLE_MS_MAX: Final = 30_000
PRINCIPALS_MAX: Final = 10_000


@dataclass(frozen=True, slots=True)
class QuotaLimits:
    """Bytes per second and principal; None: no quota."""

    produce_bytes_per_s: int | None = None
    fetch_bytes_per_s: int | None = None


@dataclass(slots=True)
class Allowance:
    """Token bucket that fills at a rate up to one second's worth. It may go below zero; that debt
    is the throttle time.
    """

    rate_per_s: int
    tokens: float = field(init=False)
    filled_at: InstantMs | None = None

    def __post_init__(self) -> None:
        assert self.rate_per_s > 0
        self.tokens = float(self.rate_per_s)

    def take(self, amount: int, now: InstantMs) -> int:
        """Take ``amount`` tokens; return the throttle time in ms."""
        if self.filled_at is not None:
            self.tokens += (now - self.filled_at) * self.rate_per_s / 1_000
            self.tokens = min(self.tokens, float(self.rate_per_s))
        self.filled_at = now
        self.tokens -= amount
        if self.tokens >= 0:
            return 0
        return min(int(-self.tokens * 1_000 / self.rate_per_s) + 1, THROTTLE_MS_MAX)


class Quotas:
    """Throttle times by principal. ``enabled`` is False while no quota is configured."""

    def __init__(self, limits: QuotaLimits | None = None) -> None:
        self.limits = limits or QuotaLimits()
        self.enabled = self.limits != QuotaLimits()
        self._allowances: dict[tuple[str, str], Allowance] = {}

    def produced(self, principal: str, size_bytes: int, now: InstantMs) -> int:
        """Charge a produce of ``size_bytes``; return the throttle time in ms."""
        return self._take("produce", principal, self.limits.produce_bytes_per_s, size_bytes, now)

    def fetched(self, principal: str, size_bytes: int, now: InstantMs) -> int:
        """Charge a fetch of ``size_bytes``; return the throttle time in ms."""
        return self._take("fetch", principal, self.limits.fetch_bytes_per_s, size_bytes, now)

    def _take(
        self, kind: str, principal: str, rate: int | None, amount: int, now: InstantMs
    ) -> int:
        if rate is None:
            return 0
        allowance = self._allowances.get((kind, principal))
        if allowance is None:
            if len(self._allowances) >= PRINCIPALS_MAX:
                # Dropping the oldest entry loses at most one second of its debt.
                del self._allowances[next(iter(self._allowances))]
            allowance = self._allowances[kind, principal] = Allowance(rate)
        return allowance.take(amount, now)
