"""When a follower's fetch is answered, by what its leader has for it."""

import pytest
from broker.core.follower_answer import (
    GATHER_BYTES,
    GATHER_MS,
    HIGH_WATERMARK_WAIT_MS,
    Found,
    wait_ms,
)
from hypothesis import given
from hypothesis import strategies as st

NOTHING = Found(0, has_error=False, has_high_watermark=False, is_awaited=False)
NEWS = NOTHING._replace(has_high_watermark=True)
RECORD = NOTHING._replace(bytes_ready=1)
LONG_MS, SHORT_MS = 500, 30


@pytest.mark.feature("G11")
@pytest.mark.parametrize(
    ("found", "bytes_min", "wait_ms_max", "serves_consumers", "waits_ms"),
    [
        (NOTHING, 1, LONG_MS, False, LONG_MS),
        (NOTHING, 1, LONG_MS, True, LONG_MS),
        (NOTHING, 1, 0, False, 0),
        # Records: the follower's next fetch acknowledges them.
        (RECORD._replace(is_awaited=True), 1, LONG_MS, False, 0),
        # Nobody waits for that.
        (RECORD, 1, LONG_MS, False, GATHER_MS),
        (RECORD, 1, GATHER_MS - 1, False, GATHER_MS - 1),
        (RECORD, 1, LONG_MS, True, 0),
        (RECORD._replace(bytes_ready=GATHER_BYTES - 1), 1, LONG_MS, False, GATHER_MS),
        (RECORD._replace(bytes_ready=GATHER_BYTES), 1, LONG_MS, False, 0),
        (NEWS._replace(bytes_ready=9), 10, LONG_MS, False, HIGH_WATERMARK_WAIT_MS),
        (NOTHING._replace(bytes_ready=9), 10, LONG_MS, False, LONG_MS),
        # An error, or where the follower has to truncate.
        (NOTHING._replace(has_error=True), 1, LONG_MS, False, 0),
        (NEWS._replace(has_error=True), 1, LONG_MS, True, 0),
        # The high watermark alone.
        (NEWS, 1, LONG_MS, False, HIGH_WATERMARK_WAIT_MS),
        (NEWS, 1, SHORT_MS, False, SHORT_MS),
        (NEWS, 1, 0, False, 0),
        (NEWS, 1, LONG_MS, True, 0),
    ],
)
def test_what_a_fetch_waits_for(
    found: Found, bytes_min: int, wait_ms_max: int, serves_consumers: bool, waits_ms: int
) -> None:
    assert (
        wait_ms(
            found,
            bytes_min=bytes_min,
            wait_ms_max=wait_ms_max,
            serves_consumers=serves_consumers,
        )
        == waits_ms
    )


FOUND = st.builds(
    Found,
    bytes_ready=st.integers(0, 1 << 21),
    has_error=st.booleans(),
    has_high_watermark=st.booleans(),
    is_awaited=st.booleans(),
)


@given(FOUND, st.integers(1, 1 << 21), st.integers(0, 60_000), st.booleans())
def test_a_fetch_waits_no_longer_than_it_asks_and_never_with_what_it_asks_for(
    found: Found, bytes_min: int, wait_ms_max: int, serves_consumers: bool
) -> None:
    def waits(one: Found) -> int:
        return wait_ms(
            one, bytes_min=bytes_min, wait_ms_max=wait_ms_max, serves_consumers=serves_consumers
        )

    assert 0 <= waits(found) <= wait_ms_max
    if found.has_error or found.bytes_ready >= bytes_min:
        is_urgent = found.has_error or found.is_awaited or serves_consumers
        assert waits(found) <= (0 if is_urgent or found.bytes_ready >= GATHER_BYTES else GATHER_MS)
    # More to say never makes it later.
    assert waits(found._replace(bytes_ready=found.bytes_ready + 1)) <= waits(found)
    assert waits(found._replace(has_error=True)) <= waits(found)
    assert waits(found._replace(has_high_watermark=True)) <= waits(found)
    assert waits(found._replace(is_awaited=True)) <= waits(found)
