"""Choice of a record's partition: murmur2 for keys, sticky without key, or the user's function."""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Final

from tidemark.codec import murmur2

Partitioner = Callable[[str, bytes | None, bytes | None, int], int]
"""``(topic, key, value, partition_count) -> partition``: replaces Kafka's rule."""

_KEYS_REMEMBERED: Final = 16_384


@lru_cache(maxsize=_KEYS_REMEMBERED)
def partition_for_key(key: bytes, partition_count: int) -> int:
    """Return Kafka's partition of a key. Cached: hashing in Python takes ten times a lookup."""
    return murmur2.partition_for_key(key, partition_count)


class StickyChoice:
    """Partition of records without key: it changes when a batch is full (KIP-480, KIP-794).

    ``dice`` returns numbers in [0, 1). Switching by bytes rather than by batches balances the load
    even when partitions differ in speed.
    """

    __slots__ = ("_bytes_each", "_bytes_here", "_dice", "partition")

    def __init__(self, bytes_each: int, dice: Callable[[], float]) -> None:
        self._bytes_each = bytes_each
        self._bytes_here = 0
        self._dice = dice
        self.partition = -1

    def choose(self, size_bytes: int, candidates: Sequence[int]) -> int:
        """Return the partition of a record of ``size_bytes``, one of ``candidates`` (not empty)."""
        if self.partition < 0 or self._bytes_here >= self._bytes_each:
            self._move(candidates)
        self._bytes_here += size_bytes
        return self.partition

    def forget(self) -> None:
        """Choose another partition next time: the partition lost its leader, or the topic grew."""
        self.partition = -1

    def _move(self, candidates: Sequence[int]) -> None:
        others = [partition for partition in candidates if partition != self.partition]
        pool = others or candidates
        self.partition = pool[int(self._dice() * len(pool))]
        self._bytes_here = 0
