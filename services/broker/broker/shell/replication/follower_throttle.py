"""How fast a follower fetches what is being built up here: follower.replication.throttled.rate, for
the replicas that follower.replication.throttled.replicas of their topic names (KIP-73).
"""

from typing import Final

from tidemark.model.ids import BrokerId, InstantMs
from tidemark.model.metadata import ClusterImage

from broker.config import BrokerConfig
from broker.core.replication_throttle import ReplicationThrottle, is_named, rate_in_force
from broker.shell.partitions.hosted import HostedPartition

RATE_KEY: Final = "follower.replication.throttled.rate"


class FollowerThrottle:
    """One broker's, over all leaders that it follows."""

    def __init__(self, config: BrokerConfig) -> None:
        self._rate_at_start = config.follower_replication_throttled_rate
        self._broker_id = BrokerId(config.broker_id)
        self._throttle = ReplicationThrottle(self._rate_at_start)

    def configure(self, image: ClusterImage) -> None:
        """The rate may have been changed: for this broker, or for all."""
        self._throttle.set_rate(
            rate_in_force(
                image.broker_configs, self._broker_id, RATE_KEY, at_start=self._rate_at_start
            )
        )

    def names(self, hosted: HostedPartition) -> bool:
        """Whether what is fetched of this partition counts, and may have to wait."""
        named = hosted.log.config.follower_replication_throttled_replicas
        return is_named(named, hosted.topic_partition.partition, self._broker_id)

    def fetched(self, hosted: HostedPartition, size_bytes: int, now: InstantMs) -> None:
        """Count what came; in sync or not, as Kafka does."""
        if self.names(hosted):
            self._throttle.transferred(size_bytes, now)

    def rest_ms(self, now: InstantMs) -> int:
        """For how long partitions that are named and behind are not to be asked for."""
        return self._throttle.rest_ms(now)
