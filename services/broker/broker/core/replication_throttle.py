"""How fast replicas are built up (KIP-73): one allowance for all that a broker sends as a leader,
one for all that it fetches as a follower, of those replicas that their topic names.

A replica that is in sync is never held back: it would leave the ISR, or hold producers back.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from tidemark.model.ids import BrokerId, InstantMs

from broker.core.quotas import Allowance

ALL_REPLICAS: Final = "*"
CLUSTER_WIDE: Final = ""
REST_MS_MAX: Final = 1_000
"""Who rests looks again after so long at the latest: the rate may have been raised meanwhile."""


def rate_in_force(
    configs: Mapping[str, Mapping[str, str]], broker_id: BrokerId, key: str, *, at_start: int
) -> int:
    """Bytes a second: this broker's own setting, else that of all brokers, else what it was started
    with. ``configs`` are dynamic settings by broker id and name, as the cluster's image has them.
    """
    rate = at_start
    for owner in (CLUSTER_WIDE, str(broker_id)):
        told = configs.get(owner, {}).get(key)
        if told is not None:
            rate = max(1, int(told))
    return rate


def is_named(throttled: Sequence[str], partition: int, replica: BrokerId) -> bool:
    """Whether a topic's ``...throttled.replicas`` (``partition:broker`` each, or ``*``) has it."""
    if not throttled:
        return False
    return ALL_REPLICAS in throttled or f"{partition}:{replica}" in throttled


class ReplicationThrottle:
    """One direction of one broker. What is transferred may overdraw the allowance once, as a whole
    answer does; then those who are throttled rest until the debt is paid.
    """

    def __init__(self, rate_per_s: int) -> None:
        self._allowance = Allowance(rate_per_s)

    @property
    def rate_per_s(self) -> int:
        """Bytes a second."""
        return self._allowance.rate_per_s

    def set_rate(self, rate_per_s: int) -> None:
        """A new rate begins without debt; the same rate changes nothing."""
        if rate_per_s != self._allowance.rate_per_s:
            self._allowance = Allowance(rate_per_s)

    def transferred(self, size_bytes: int, now: InstantMs) -> None:
        """So much of throttled replicas was sent, or was fetched."""
        self._allowance.take(size_bytes, now)

    def may_transfer(self, now: InstantMs) -> bool:
        """Whether there is allowance left."""
        return self.rest_ms(now) == 0

    def rest_ms(self, now: InstantMs) -> int:
        """For how long throttled replicas are to be left alone; 0: not at all."""
        if self._allowance.tokens >= 0:
            return 0  # it only grows with time: without debt no clock need be asked
        return min(self._allowance.take(0, now), REST_MS_MAX)
