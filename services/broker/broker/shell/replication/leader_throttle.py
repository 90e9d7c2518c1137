"""How fast a leader sends to followers that are being built up: leader.replication.throttled.rate,
where leader.replication.throttled.replicas of the topic names partition and leader (KIP-73): the
list has those who send, not those who are sent to.

A replica in the ISR is never held back: that would hold back producers.
"""

from typing import Final

from tidemark.model.ids import BrokerId, InstantMs
from tidemark.model.metadata import ClusterImage

from broker.config import BrokerConfig
from broker.core.replication_throttle import ReplicationThrottle, is_named, rate_in_force
from broker.shell.partitions.hosted import HostedPartition

RATE_KEY: Final = "leader.replication.throttled.rate"


class LeaderThrottle:
    """One broker's. A fetch is served while there is allowance, and may overdraw it once."""

    def __init__(self, config: BrokerConfig) -> None:
        self._rate_at_start = config.leader_replication_throttled_rate
        self._broker_id = BrokerId(config.broker_id)
        self._throttle = ReplicationThrottle(self._rate_at_start)

    def configure(self, image: ClusterImage) -> None:
        """The rate may have been changed: for this broker, or for all."""
        self._throttle.set_rate(
            rate_in_force(
                image.broker_configs, self._broker_id, RATE_KEY, at_start=self._rate_at_start
            )
        )

    def concerns(self, hosted: HostedPartition, replica: BrokerId) -> bool:
        """Whether what this follower fetches of this partition counts, and may have to wait."""
        named = hosted.log.config.leader_replication_throttled_replicas
        if not named or replica in hosted.partition.isr:
            return False
        return is_named(named, hosted.topic_partition.partition, self._broker_id)

    def may_send(self, now: InstantMs) -> bool:
        """Whether there is allowance left."""
        return self._throttle.may_transfer(now)

    def sent(self, size_bytes: int, now: InstantMs) -> None:
        """So much was sent to a throttled follower."""
        self._throttle.transferred(size_bytes, now)
