"""Rule for the time at which a leader answers a follower's fetch. Pure.

Each answer costs a round: the leader wakes for the follower's fetch, and the follower for the
answer. A round for records is needed: the next fetch acknowledges them. A round for the high
watermark alone is not. The follower learns of it with the next records, which come soon while
there is load, or after ``HIGH_WATERMARK_WAIT_MS``.

A round for records that nobody waits for is not urgent either: their producer has its answer
(acks=1 or 0), and no consumer has asked for them. Such records gather for ``GATHER_MS``, or until
there are ``GATHER_BYTES``. A write with acks=all, or one that a consumer waits for, ends that.
"""

from typing import Final, NamedTuple

HIGH_WATERMARK_WAIT_MS: Final = 100
"""Time for which a fetch waits for records when the leader has only a new high watermark for it.
Otherwise a fetch waits for its own maximum.
"""
GATHER_MS: Final = 5
"""Time for which a fetch waits when nobody waits for the records that it would get."""
GATHER_BYTES: Final = 64 * 1024
"""Bytes of records at which a fetch no longer waits for more."""


class Found(NamedTuple):
    """A follower's fetch at its leader, as it arrives."""

    bytes_ready: int
    """Bytes of records."""
    has_error: bool
    """True if a partition has an error, or the point where the logs diverge."""
    has_high_watermark: bool
    """True if the follower does not know the high watermark of a partition."""
    is_awaited: bool
    """True if a producer or a consumer waits until followers have records of these."""


def is_urgent(*, must_wait: bool, is_awaited: bool, serves_consumers: bool) -> bool:
    """Return True if followers get records at once. ``must_wait``: their producer waits for
    followers; ``is_awaited``: another producer or a consumer does; ``serves_consumers``: consumers
    read from followers.
    """
    return must_wait or is_awaited or serves_consumers


def wait_ms(found: Found, *, bytes_min: int, wait_ms_max: int, serves_consumers: bool) -> int:
    """Return for how long the fetch waits, unless it gains enough bytes earlier; 0: not at all.

    ``bytes_min`` and ``wait_ms_max`` are those of the fetch. ``serves_consumers``: followers serve
    consumers up to the high watermark that they know, so that it does not wait.
    """
    if found.has_error:
        return 0
    if found.bytes_ready >= bytes_min:
        urgent = is_urgent(
            must_wait=False, is_awaited=found.is_awaited, serves_consumers=serves_consumers
        )
        gathers = not urgent and found.bytes_ready < GATHER_BYTES
        return min(wait_ms_max, GATHER_MS) if gathers else 0
    if not found.has_high_watermark:
        return wait_ms_max
    return 0 if serves_consumers else min(wait_ms_max, HIGH_WATERMARK_WAIT_MS)
