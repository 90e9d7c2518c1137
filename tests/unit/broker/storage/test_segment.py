"""One segment compared with a list of its batches: walking, locating, fitting, indexes."""

import pytest
from broker.storage.segment import (
    NO_TIMESTAMP,
    UNKNOWN_TIMESTAMP,
    Segment,
    frame_problem,
    walk_headers,
)
from broker.storage.time_search import SearchedTo, next_at_or_after
from hypothesis import given
from hypothesis import strategies as st
from tidemark.codec.record_batch import read_header
from tidemark.model.topic_configs import topic_config
from tidemark.storage.batch_walk import FrameError
from tidemark.storage.disk import File
from tidemark.storage.mem_disk import MemDisk, MemFile
from unit.broker.storage.log_worlds import make_batch

SHAPES = st.lists(
    st.tuples(st.integers(0, 3), st.integers(1, 4), st.integers(0, 300)), min_size=1, max_size=12
)
Batches = list[tuple[int, int, int, int]]
"""(position, first offset, last offset, size)."""


def built(shapes: list[tuple[int, int, int]], base: int = 100) -> tuple[Segment, File, Batches]:
    """A segment of (gap before it, records, body bytes) batches, indexed every 200 bytes."""
    disk = MemDisk()
    disk.make_directory("t-0")
    file = disk.open(f"t-0/{base:020d}.log", create=True)
    batches, offset, position = [], base, 0
    for gap, records, body in shapes:
        offset += gap
        size = file.write_at(position, [make_batch(offset, records, body, timestamp=offset)])
        batches.append((position, offset, offset + records - 1, size))
        offset, position = offset + records, position + size
    segment = Segment("t-0", base, position, 0)
    segment.warm(disk)
    segment.rebuild_indexes(200)
    return segment, file, batches


@given(SHAPES, st.integers(0, 60))
def test_an_offset_is_located_as_in_a_list(shapes: list[tuple[int, int, int]], ahead: int) -> None:
    segment, _, batches = built(shapes)
    expected = [position for position, _, last, _ in batches if last >= 100 + ahead]
    assert segment.locate(100 + ahead) == (expected[0] if expected else segment.size_bytes)


@given(SHAPES, st.integers(0, 11), st.integers(1, 2_000))
def test_what_fits_is_whole_batches(
    shapes: list[tuple[int, int, int]], start: int, bytes_max: int
) -> None:
    segment, _, batches = built(shapes)
    rest = batches[start % len(batches) :]
    length = segment.fit(rest[0][0], bytes_max, segment.size_bytes)
    ends = [position + size - rest[0][0] for position, _, _, size in rest]
    assert length in ends
    assert length == ends[0] or length <= bytes_max
    longer = [end for end in ends if length < end <= bytes_max]
    assert not longer or length > bytes_max // 2


@given(SHAPES, st.integers(90, 170), st.integers(90, 170), st.integers(90, 170))
def test_a_timestamp_is_found_as_in_a_list(
    shapes: list[tuple[int, int, int]], timestamp: int, start: int, end: int
) -> None:
    segment, _, batches = built(shapes)
    found = next_at_or_after(segment, timestamp, start, end)
    assert not isinstance(found, SearchedTo)
    expected = [
        position
        for position, first, last, _ in batches
        if first >= timestamp and last >= start and first < end
    ]
    assert (found[0] if found else None) == (expected[0] if expected else None)


STAMPS = st.lists(st.integers(-1, 9), min_size=1, max_size=60)


def stamped(stamps: list[int], *, kept: int) -> tuple[Segment, File, int]:
    """A segment of batches of one record, of whose file so many are kept, and where they end."""
    disk = MemDisk()
    disk.make_directory("t-0")
    file = disk.open(f"t-0/{0:020d}.log", create=True)
    ends = [0]
    for offset, stamp in enumerate(stamps):
        batch = make_batch(offset, 1, timestamp=stamp)
        ends.append(ends[-1] + file.write_at(ends[-1], [batch]))
    segment = Segment("t-0", 0, ends[-1], 0)
    segment.warm(disk)
    segment.rebuild_indexes(200)
    file.truncate(ends[kept])
    segment.size_bytes = ends[kept]
    return segment, segment.reopen(disk), ends[kept]


def entries(segment: Segment) -> object:
    index, times = segment.index, segment.times
    return (
        *(list(one) for one in (index.offsets, index.positions, times.timestamps, times.offsets)),
        (index.last_position, segment.max_timestamp, segment.max_timestamp_offset),
    )


@given(STAMPS, st.integers(0, 60))
def test_the_indexes_after_a_cut_are_those_of_the_rest(stamps: list[int], kept: int) -> None:
    kept = min(kept, len(stamps))
    segment, _, position = stamped(stamps, kept=kept)
    segment.cut_indexes(position, kept, 200)
    cut = entries(segment)
    segment.max_timestamp_offset = 0
    segment.rebuild_indexes(200)
    assert cut == entries(segment)


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Positions that were read."""
    positions: list[int] = []
    read_at = MemFile.read_at

    def noted(one: MemFile, at: int, length: int) -> bytes:
        positions.append(at)
        return read_at(one, at, length)

    monkeypatch.setattr(MemFile, "read_at", noted)
    return positions


@pytest.mark.parametrize("stamp", [1, -1])
def test_a_cut_does_not_read_what_stays(read: list[int], stamp: int) -> None:
    """An active segment has up to segment.bytes, and the event loop waits for the cut."""
    segment, _, position = stamped([stamp] * 60, kept=58)
    read.clear()
    segment.cut_indexes(position, 58, 200)
    assert read
    assert min(one for one in read if one) >= position - 400
    assert len([one for one in read if not one]) <= (stamp < 0)


@given(SHAPES)
def test_a_walk_meets_every_batch(shapes: list[tuple[int, int, int]]) -> None:
    segment, file, batches = built(shapes)
    walked = [
        (position, header.base_offset, header.last_offset, header.size_bytes)
        for position, header in walk_headers(file, 0, segment.size_bytes)
    ]
    assert walked == batches


def test_a_walk_stops_where_no_batch_can_be() -> None:
    segment, file, batches = built([(0, 1, 50)] * 3)
    file.write_at(batches[1][0] + 16, [b"\x01"])
    with pytest.raises(FrameError, match="magic 1 is not 2"):
        list(walk_headers(file, 0, segment.size_bytes))


def test_what_cannot_be_a_batch() -> None:
    header = read_header(make_batch(0, 1))
    assert frame_problem(header, header.size_bytes) is None
    for wrong in ({"batch_length": 48}, {"last_offset_delta": -1}, {"batch_length": 10**9}):
        assert frame_problem(header._replace(**wrong), header.size_bytes), wrong


def test_the_largest_timestamp_is_read_from_the_index_file() -> None:
    disk = MemDisk()
    disk.make_directory("t-0")
    batch = make_batch(0, 1, timestamp=77)
    disk.replace_whole("t-0/00000000000000000000.log", batch)
    first = Segment("t-0", 0, len(batch), 0)
    assert first.load_max_timestamp(disk) == UNKNOWN_TIMESTAMP, "there is no such file"
    first.rebuild_indexes(4096)
    first.cool(disk)
    again = Segment("t-0", 0, len(batch), 0)
    assert again.load_max_timestamp(disk) == 77
    assert again.file is None


def test_a_segment_without_timestamps_is_not_read_for_the_largest(read: list[int]) -> None:
    """It has no entry in a time index, at no start."""
    disk = MemDisk()
    disk.make_directory("t-0")
    batches = [make_batch(offset, 1, 1_000, timestamp=-1) for offset in range(100)]
    disk.replace_whole("t-0/00000000000000000000.log", b"".join(batches))
    segment = Segment("t-0", 0, sum(map(len, batches)), 0)
    assert segment.load_max_timestamp(disk) == NO_TIMESTAMP
    assert read == [0]


def test_arming_tells_when_to_roll() -> None:
    segment, _, _ = built([(0, 1, 50)] * 3)
    segment.arm(topic_config({"segment.bytes": str(2**20)}), roll_ms=50)
    assert (segment.bytes_max, segment.roll_after_timestamp) == (2**20, 150)
