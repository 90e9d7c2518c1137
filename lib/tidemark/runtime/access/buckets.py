"""Buckets: bounds of the rates of client addresses. Pure."""

from collections import OrderedDict
from typing import Final

_CLIENTS_MAX: Final = 10_000


class Buckets:
    """Token buckets of client addresses: ``rate`` requests per second, and as many at once. Pure.

    The addresses that were idle the longest are forgotten first.
    """

    def __init__(self, rate: int, *, clients_max: int = _CLIENTS_MAX) -> None:
        self._rate = rate
        self._clients_max = clients_max
        self._buckets: OrderedDict[str, tuple[float, int]] = OrderedDict()

    def take(self, client: str, now_ms: int) -> bool:
        """True if a request of this client is within its rate."""
        left, at_ms = self._buckets.pop(client, (float(self._rate), now_ms))
        left = min(float(self._rate), left + (now_ms - at_ms) * self._rate / 1_000)
        allowed = left >= 1
        self._buckets[client] = (left - 1 if allowed else left, now_ms)
        if len(self._buckets) > self._clients_max:
            self._buckets.popitem(last=False)
        return allowed
