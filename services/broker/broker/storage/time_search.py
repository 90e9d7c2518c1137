"""Search of one segment for the first batch with a timestamp, by its time index and then by the
headers from there on.

The time index leads to the first batch whose timestamp is as high. Behind that one it does not
help: a batch with a timestamp far ahead leaves all headers of the segment to be read. So a search
comes in parts, and its caller may do other work between them.
"""

from typing import Final, NamedTuple

from tidemark.codec.record_batch import BatchHeader

from broker.storage.segment import NO_TIMESTAMP, Segment, walk_headers

HEADERS_AT_ONCE: Final = 1_000
"""Headers read in one part: some milliseconds."""


class SearchedTo(NamedTuple):
    """No batch below this offset matches; the batches from there on were not looked at."""

    offset: int


def next_at_or_after(
    segment: Segment, timestamp: int, start_offset: int, end_offset: int
) -> tuple[int, BatchHeader] | SearchedTo | None:
    """Return position and header of the first batch with a timestamp >= ``timestamp`` and offsets
    in [start, end), or how far one part of the search got. None: there is no such batch.

    Batches that compaction left without records are passed by.
    """
    low, high = segment.times.bracket(timestamp)
    low = max(low, start_offset - segment.base_offset)
    if high is not None and high > low:
        # Between two entries the largest timestamp rose only in the last interval.
        low = max(low, segment.index.before(high))
    assert segment.file is not None
    walk = walk_headers(segment.file, segment.trusted_floor(low), segment.size_bytes)
    for count, (position, header) in enumerate(walk):
        if header.base_offset >= end_offset:
            return None
        if header.last_offset < start_offset:
            continue
        if header.max_timestamp >= timestamp and header.record_count:
            return position, header
        if count >= HEADERS_AT_ONCE:
            return SearchedTo(header.last_offset + 1)
    return None


def largest_from(
    segment: Segment, start_offset: int, end_offset: int
) -> tuple[tuple[int, BatchHeader] | None, int | None]:
    """Return the first batch with the largest timestamp of one part of a segment, which begins at
    ``start_offset``, and where the next part begins; None: there is none.
    """
    best: tuple[int, BatchHeader] | None = None
    timestamp = NO_TIMESTAMP
    assert segment.file is not None
    walk = walk_headers(segment.file, segment.locate(start_offset), segment.size_bytes)
    for count, (position, header) in enumerate(walk):
        if header.base_offset >= end_offset:
            break
        if count >= HEADERS_AT_ONCE:
            return best, header.base_offset
        if header.max_timestamp > timestamp and header.record_count:
            timestamp, best = header.max_timestamp, (position, header)
    return best, None
