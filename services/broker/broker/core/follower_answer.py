"""Rule for the time at which a leader answers a follower's fetch. Pure.

Each answer costs a round: the leader wakes for the follower's fetch, and the follower for the
answer. A round for records is needed: the next fetch acknowledges them. A round for the high
watermark alone is not. The follower learns of it with the next records, which come soon while
there is load, or after ``HIGH_WATERMARK_WAIT_MS``.
"""

from typing import Final, NamedTuple

HIGH_WATERMARK_WAIT_MS: Final = 100
"""Time for which a fetch waits for records when the leader has only a new high watermark for it.
Otherwise a fetch waits for its own maximum.
"""


class Found(NamedTuple):
    """A follower's fetch at its leader, as it arrives."""

    bytes_ready: int
    """Bytes of records."""
    has_error: bool
    """True if a partition has an error, or the point where the logs diverge."""
    has_high_watermark: bool
    """True if the follower does not know the high watermark of a partition."""


def wait_ms(found: Found, *, bytes_min: int, wait_ms_max: int, serves_consumers: bool) -> int:
    """Return for how long the fetch waits, unless it gains enough bytes earlier; 0: not at all.

    ``bytes_min`` and ``wait_ms_max`` are those of the fetch. ``serves_consumers``: followers serve
    consumers up to the high watermark that they know, so that it does not wait.
    """
    if found.has_error or found.bytes_ready >= bytes_min:
        return 0
    if not found.has_high_watermark:
        return wait_ms_max
    return 0 if serves_consumers else min(wait_ms_max, HIGH_WATERMARK_WAIT_MS)
