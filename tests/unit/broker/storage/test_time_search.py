"""Search for a timestamp in parts, compared with a list of batches."""

from itertools import pairwise

import pytest
from broker.storage.segment import Segment
from broker.storage.time_search import SearchedTo, largest_from, next_at_or_after
from hypothesis import given
from hypothesis import strategies as st
from tidemark.storage.mem_disk import MemDisk
from unit.broker.storage.log_worlds import make_batch


def built(stamps: list[int]) -> tuple[Segment, list[int]]:
    """A segment of batches of one record, indexed every 200 bytes, and their positions."""
    disk = MemDisk()
    disk.make_directory("t-0")
    file = disk.open(f"t-0/{0:020d}.log", create=True)
    positions, position = [], 0
    for offset, stamp in enumerate(stamps):
        positions.append(position)
        position += file.write_at(position, [make_batch(offset, 1, timestamp=stamp)])
    segment = Segment("t-0", 0, position, 0)
    segment.warm(disk)
    segment.rebuild_indexes(200)
    return segment, positions


@given(
    st.lists(st.integers(0, 9), min_size=1, max_size=60),
    st.integers(0, 10),
    st.integers(0, 60),
    st.integers(0, 60),
)
def test_the_parts_together_find_what_a_list_does(
    stamps: list[int], timestamp: int, start: int, end: int
) -> None:
    segment, positions = built(stamps)
    expected = next(
        (at for at in range(start, min(end, len(stamps))) if stamps[at] >= timestamp), None
    )
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("broker.storage.time_search.HEADERS_AT_ONCE", 3)
        found = next_at_or_after(segment, timestamp, start, end)
        while isinstance(found, SearchedTo):
            found = next_at_or_after(segment, timestamp, found.offset, end)
    assert (found and found[0]) == (None if expected is None else positions[expected])


def test_each_part_reads_a_bounded_number_of_headers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("broker.storage.time_search.HEADERS_AT_ONCE", 10)
    segment, positions = built([9] + [1] * 100 + [5])
    parts, found = [1], next_at_or_after(segment, 5, 1, 200)
    while isinstance(found, SearchedTo):
        parts.append(found.offset)
        found = next_at_or_after(segment, 5, found.offset, 200)
    assert found is not None
    assert found[0] == positions[-1]
    steps = [after - before for before, after in pairwise(parts)]
    assert len(steps) >= 9
    assert max(steps) <= 11


@given(
    st.lists(st.integers(-1, 9), min_size=1, max_size=60), st.integers(0, 60), st.integers(0, 60)
)
def test_the_largest_of_the_parts_is_that_of_a_list(
    stamps: list[int], start: int, end: int
) -> None:
    segment, positions = built(stamps)
    largest = max(stamps[start:end], default=-1)
    expected = positions[stamps.index(largest, start)] if largest >= 0 else None
    found, parts = list[tuple[int, int]](), 0
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("broker.storage.time_search.HEADERS_AT_ONCE", 3)
        rest: int | None = start
        while rest is not None:
            best, rest = largest_from(segment, rest, end)
            parts += 1
            if best is not None:
                found.append((-best[1].max_timestamp, best[0]))
    assert (min(found)[1] if found else None) == expected
    assert parts >= (min(end, len(stamps)) - start) / 3
