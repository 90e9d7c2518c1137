"""Java's String.hashCode, which maps names to shards of a coordinator.

Kafka's coordinators place groups and transactional ids by this hash, and tools compute it to find
a coordinator: all must agree.
"""

import struct
from functools import lru_cache
from typing import Final

_FACTOR: Final = 31
_MASK: Final = 0xFFFFFFFF
HASHES_MAX: Final = 4_096
"""Names whose hash is kept: most calls are about a group or an id that was just asked about."""
_INT_MIN: Final = -(2**31)


@lru_cache(HASHES_MAX)
def java_hash(text: str) -> int:
    """Return ``text.hashCode()``: int32, over UTF-16 code units, so that a character beyond the
    basic plane counts as two.
    """
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for unit in struct.unpack(f">{len(units) // 2}H", units):
        value = (value * _FACTOR + unit) & _MASK
    return value - 2**32 if value >= 2**31 else value


def shard_for_name(name: str, count: int) -> int:
    """Return the shard, of ``count``, of a group or a transactional id.

    This is Kafka's ``Utils.abs(hashCode) % count``, in which the absolute value of -2**31 is 0.
    """
    assert count > 0, f"no shard of {count}"
    value = java_hash(name)
    return 0 if value == _INT_MIN else abs(value) % count
