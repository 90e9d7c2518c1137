"""How fast a leader sends to followers that are being built up: leader.replication.throttled.rate,
for the replicas that leader.replication.throttled.replicas of their topic names (KIP-73).

A replica in the ISR is never held back: that would hold back producers.
"""

from typing import Final

from tidemark.model.ids import BrokerId, InstantMs
from tidemark.model.metadata import ClusterImage

from broker.config import BrokerConfig
from broker.core.quotas import Allowance
from broker.shell.hosted import HostedPartition

RATE_KEY: Final = "leader.replication.throttled.rate"
ALL_REPLICAS: Final = "*"


class LeaderThrottle:
    """One broker's. A fetch is served while there is allowance, and may overdraw it once."""

    def __init__(self, config: BrokerConfig) -> None:
        self._rate_at_start = config.leader_replication_throttled_rate
        self._broker_id = str(config.broker_id)
        self._allowance = Allowance(self._rate_at_start)

    def configure(self, image: ClusterImage) -> None:
        """The rate may have been changed: for this broker, or for all."""
        rate = self._rate_at_start
        for owner in ("", self._broker_id):
            told = image.broker_configs.get(owner, {}).get(RATE_KEY)
            if told is not None:
                rate = max(1, int(told))
        if rate != self._allowance.rate_per_s:
            self._allowance = Allowance(rate)

    def concerns(self, hosted: HostedPartition, replica: BrokerId) -> bool:
        """Whether what this follower fetches of this partition counts, and may have to wait."""
        named = hosted.log.config.leader_replication_throttled_replicas
        if not named or replica in hosted.partition.isr:
            return False
        return ALL_REPLICAS in named or f"{hosted.topic_partition.partition}:{replica}" in named

    def may_send(self, now: InstantMs) -> bool:
        """Whether there is allowance left."""
        return self._allowance.take(0, now) == 0

    def sent(self, size_bytes: int, now: InstantMs) -> None:
        """So much was sent to a throttled follower."""
        self._allowance.take(size_bytes, now)
