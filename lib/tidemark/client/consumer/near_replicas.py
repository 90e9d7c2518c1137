"""NearReplicas: the followers that leaders have named for a consumer with a rack (KIP-392). Pure.

A follower is used until the leader changes, it fails, or ``lease_ms`` have passed: the leader is
then asked again.
"""

from typing import NamedTuple

from tidemark.client.wire.metadata_cache import Leader
from tidemark.model.topics import TopicPartition


class _Near(NamedTuple):
    broker_id: int
    leader: Leader
    until_ms: float


class NearReplicas:
    """Followers to read from, by partition."""

    def __init__(self, lease_ms: int) -> None:
        self._lease_ms = lease_ms
        self._near: dict[TopicPartition, _Near] = {}

    def broker_for(self, partition: TopicPartition, leader: Leader, now: float) -> int:
        """Return the broker to read a partition from."""
        near = self._near.get(partition)
        if near is None:
            return leader.broker_id
        if near.leader != leader or now >= near.until_ms:
            del self._near[partition]
            return leader.broker_id
        return near.broker_id

    def use(self, partition: TopicPartition, broker_id: int, leader: Leader, now: float) -> None:
        """Read from the follower that the leader named."""
        self._near[partition] = _Near(broker_id, leader, now + self._lease_ms)

    def drop(self, partition: TopicPartition) -> None:
        """Read from the leader again."""
        self._near.pop(partition, None)
