"""Keys of records, for groups that order records by key, and producers that do not run far ahead
of their group.
"""

from bisect import bisect_right
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from tidemark.model.share_state import SharePartitionKey

from sim.cluster.client import Producer
from sim.cluster.parts import SimTopic

if TYPE_CHECKING:
    from sim.cluster.share_world import ShareWorld

KEYS: Final = 4


def key_of(value: bytes) -> bytes | None:
    """Return the key of a value; None for one in five."""
    number = int(value.rpartition(b"-")[2]) % (KEYS + 1)
    return b"k%d" % number if number < KEYS else None


class KeyedProducer(Producer):
    """Producer whose records have keys."""

    def __init__(self, world: "ShareWorld", topic: SimTopic, number: int) -> None:
        super().__init__(world, topic, number)
        self._group = world

    def _key_of(self, value: bytes) -> bytes | None:
        return key_of(value)

    def _may_send(self) -> bool:
        return self._group.unfinished() < self._group.unfinished_max


class Keys:
    """Keys of committed records, by share-partition and offset."""

    def __init__(self, topics: Mapping[SharePartitionKey, SimTopic]) -> None:
        self._topics = topics

    def of(self, key: SharePartitionKey, offset: int) -> bytes | None:
        """Return the key of a record, which is committed."""
        committed = self._topics[key].ledger.committed
        batch = committed[bisect_right(committed, offset, key=lambda one: one.first) - 1]
        return key_of(batch.values[offset - batch.first])
