"""murmur2 as Kafka's Java client computes it, which maps keys to partitions.

Producers of all languages must agree on it; otherwise a key has records in two partitions.
"""

import struct
from typing import Final

_SEED: Final = 0x9747B28C
_MULTIPLIER: Final = 0x5BD1E995
_SHIFT: Final = 24
_MASK: Final = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """Return Kafka's 32-bit hash of a key, signed as in Java."""
    length = len(data)
    words = length >> 2
    h = _SEED ^ length
    for word in struct.unpack_from(f"<{words}I", data):
        k = word * _MULTIPLIER & _MASK
        h = (h * _MULTIPLIER & _MASK) ^ ((k ^ k >> _SHIFT) * _MULTIPLIER & _MASK)
    if length & 3:
        h = (h ^ int.from_bytes(data[words << 2 :], "little")) * _MULTIPLIER & _MASK
    h = (h ^ h >> 13) * _MULTIPLIER & _MASK
    h ^= h >> 15
    return h - 0x1_0000_0000 if h & 0x8000_0000 else h


def partition_for_key(key: bytes, count: int) -> int:
    """Return the partition, of ``count``, that Kafka's default partitioner assigns to the key."""
    return (murmur2(key) & 0x7FFFFFFF) % count
