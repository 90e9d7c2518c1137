"""Replication quotas (KIP-73): one rate for all that a broker sends as a leader, and one for all
that it fetches as a follower, for the replicas that their topics list as throttled.

A replica in sync is never throttled: it would leave the ISR, or delay producers.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from tidemark.model.config_values import ALL_REPLICAS
from tidemark.model.ids import BrokerId, InstantMs

CLUSTER_WIDE: Final = ""
REST_MS_MAX: Final = 1_000
"""Longest wait of a throttled replica, since the rate may be raised meanwhile."""


@dataclass(slots=True)
class Allowance:
    """Token bucket that fills at a rate up to one second's worth. It may go below zero; that debt
    is the time to wait.
    """

    rate_per_s: int
    tokens: float = field(init=False)
    filled_at: InstantMs | None = None

    def __post_init__(self) -> None:
        assert self.rate_per_s > 0
        self.tokens = float(self.rate_per_s)

    def take(self, amount: int, now: InstantMs) -> int:
        """Take ``amount`` tokens; return the time to wait in ms, at most REST_MS_MAX."""
        if self.filled_at is not None:
            self.tokens += (now - self.filled_at) * self.rate_per_s / 1_000
            self.tokens = min(self.tokens, float(self.rate_per_s))
        self.filled_at = now
        self.tokens -= amount
        if self.tokens >= 0:
            return 0
        return min(int(-self.tokens * 1_000 / self.rate_per_s) + 1, REST_MS_MAX)


def rate_in_force(
    configs: Mapping[str, Mapping[str, str]], broker_id: BrokerId, key: str, *, at_start: int
) -> int:
    """Return the rate in bytes per second: this broker's dynamic setting, else the cluster-wide
    one, else the one at start.

    ``configs`` are dynamic settings by broker id and name, as in the cluster's image.
    """
    rate = at_start
    for owner in (CLUSTER_WIDE, str(broker_id)):
        setting = configs.get(owner, {}).get(key)
        if setting is not None:
            rate = max(1, int(setting))
    return rate


def is_named(throttled: Sequence[str], partition: int, replica: BrokerId) -> bool:
    """True if a topic's ``...throttled.replicas`` (``partition:broker`` each, or ``*``) contains
    the replica.
    """
    if not throttled:
        return False
    return ALL_REPLICAS in throttled or f"{partition}:{replica}" in throttled


class ReplicationThrottle:
    """One direction of one broker. A transfer may overdraw the quota once, as a whole reply does;
    throttled replicas then wait until the debt is paid.
    """

    def __init__(self, rate_per_s: int) -> None:
        self._allowance = Allowance(rate_per_s)

    @property
    def rate_per_s(self) -> int:
        """Rate in bytes per second."""
        return self._allowance.rate_per_s

    def set_rate(self, rate_per_s: int) -> None:
        """Set the rate. A new rate begins without debt; the same rate changes nothing."""
        if rate_per_s != self._allowance.rate_per_s:
            self._allowance = Allowance(rate_per_s)

    def transferred(self, size_bytes: int, now: InstantMs) -> None:
        """Charge bytes sent to, or fetched by, throttled replicas."""
        self._allowance.take(size_bytes, now)

    def may_transfer(self, now: InstantMs) -> bool:
        """True if there is no debt."""
        return self.rest_ms(now) == 0

    def rest_ms(self, now: InstantMs) -> int:
        """Return the time in ms for which throttled replicas must wait; 0: none."""
        if self._allowance.tokens >= 0:
            return 0  # tokens only grow with time: without debt no clock is read
        return self._allowance.take(0, now)
