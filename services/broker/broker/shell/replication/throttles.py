"""Throttles of replication: rates for replicas that are being built up (KIP-73).

``leader.replication.throttled.rate`` limits what a leader sends, for the partitions and leaders
that ``leader.replication.throttled.replicas`` of the topic names: the list has the sending brokers.
``follower.replication.throttled.rate`` limits what a follower fetches, for the replicas that
``follower.replication.throttled.replicas`` of the topic names.
"""

from typing import Final

from tidemark.model.ids import BrokerId, InstantMs
from tidemark.model.metadata import ClusterImage
from tidemark.model.metadata_change import Kind, MetadataChange
from tidemark.runtime.metadata_cache import MetadataCache

from broker.config import BrokerConfig
from broker.core.replication_throttle import ReplicationThrottle, is_named, rate_in_force
from broker.shell.partitions.hosted import HostedPartition
from broker.shell.subscribers import THROTTLES

LEADER_RATE_KEY: Final = "leader.replication.throttled.rate"
FOLLOWER_RATE_KEY: Final = "follower.replication.throttled.rate"


class _BrokerThrottle:
    """Throttle of one direction, whose rate follows the broker's dynamic configuration."""

    def __init__(self, broker_id: BrokerId, rate_key: str, *, rate_at_start: int) -> None:
        self._broker_id = broker_id
        self._rate_key = rate_key
        self._rate_at_start = rate_at_start
        self._throttle = ReplicationThrottle(rate_at_start)

    def configure(self, image: ClusterImage) -> None:
        """Take the rate of this broker, or of all brokers, from the metadata."""
        self._throttle.set_rate(
            rate_in_force(
                image.broker_configs,
                self._broker_id,
                self._rate_key,
                at_start=self._rate_at_start,
            )
        )


class LeaderThrottle(_BrokerThrottle):
    """Throttle of a leader. A fetch is served while there is allowance, and may overdraw it once.

    Replicas in the ISR are exempt: to hold them back would hold back producers.
    """

    def __init__(self, config: BrokerConfig) -> None:
        rate = config.leader_replication_throttled_rate
        super().__init__(BrokerId(config.broker_id), LEADER_RATE_KEY, rate_at_start=rate)

    def concerns(self, hosted: HostedPartition, replica: BrokerId) -> bool:
        """True if this follower's fetches of the partition count, and may have to wait."""
        named = hosted.log.config.leader_replication_throttled_replicas
        if not named or replica in hosted.partition.isr:
            return False
        return is_named(named, hosted.topic_partition.partition, self._broker_id)

    def may_send(self, now: InstantMs) -> bool:
        """True if there is allowance left."""
        return self._throttle.may_transfer(now)

    def sent(self, size_bytes: int, now: InstantMs) -> None:
        """Count bytes sent to a throttled follower."""
        self._throttle.transferred(size_bytes, now)


class FollowerThrottle(_BrokerThrottle):
    """Throttle of a follower, over all leaders that the broker follows."""

    def __init__(self, config: BrokerConfig) -> None:
        rate = config.follower_replication_throttled_rate
        super().__init__(BrokerId(config.broker_id), FOLLOWER_RATE_KEY, rate_at_start=rate)

    def names(self, hosted: HostedPartition) -> bool:
        """True if fetches of the partition count, and may have to wait."""
        named = hosted.log.config.follower_replication_throttled_replicas
        if not named:
            return False
        return is_named(named, hosted.topic_partition.partition, self._broker_id)

    def fetched(self, hosted: HostedPartition, size_bytes: int, now: InstantMs) -> None:
        """Count fetched bytes of a partition, in the ISR or not, as Kafka does."""
        if self.names(hosted):
            self._throttle.transferred(size_bytes, now)

    def rest_ms(self, now: InstantMs) -> int:
        """Return for how long named partitions that are behind are not to be fetched."""
        return self._throttle.rest_ms(now)


class Throttles:
    """Throttles of one broker, for both directions."""

    def __init__(self, config: BrokerConfig, metadata: MetadataCache) -> None:
        self.leader = LeaderThrottle(config)
        self.follower = FollowerThrottle(config)
        metadata.subscribe(THROTTLES, Kind.BROKER_CONFIGS, self._configure)

    def _configure(self, change: MetadataChange) -> None:
        self.leader.configure(change.image)
        self.follower.configure(change.image)
