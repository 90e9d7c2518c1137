"""The segment map: reads over gaps and boundaries, the cache of recent batches, largest
timestamps.
"""

from dataclasses import replace

import pytest
from broker.storage.directory import LogDirectory
from broker.storage.segment import Segment
from broker.storage.segment_map import RECENT_BATCHES, LogSlice, SegmentMap
from tidemark.codec.record_batch import read_header
from tidemark.codec.records import assemble_batch
from tidemark.storage.batch_walk import FrameError
from tidemark.storage.disk import File
from tidemark.storage.mem_disk import MemDisk, MemFile
from unit.broker.storage.log_worlds import (
    TINY,
    append,
    bytes_of,
    completed,
    make_batch,
    new_log,
)


def mapped(*segments: list[bytes], bases: tuple[int, ...], compacted_below: int = 0) -> SegmentMap:
    disk = MemDisk()
    disk.make_directory("t-0")
    made = []
    for base, batches in zip(bases, segments, strict=True):
        content = b"".join(batches)
        disk.replace_whole(f"t-0/{base:020d}.log", content)
        made.append(Segment("t-0", base, len(content), 0))
    return SegmentMap(LogDirectory(disk, jitter=lambda _: 0, now_ms=0), made, compacted_below)


COMPACTED: tuple[list[bytes], ...] = (
    [make_batch(2, 1), make_batch(5, 3)],
    [],
    [make_batch(25, 2), make_batch(30, 1)],
)


@pytest.mark.feature("A19")
@pytest.mark.parametrize(
    ("offset", "first"), [(0, 2), (2, 2), (3, 5), (7, 5), (8, 25), (20, 25), (27, 30), (30, 30)]
)
def test_in_a_gap_the_next_batch_is_read(offset: int, first: int) -> None:
    found = mapped(*COMPACTED, bases=(0, 10, 20), compacted_below=20).read(offset, 1, 31, 31)
    assert int.from_bytes(bytes_of(found)[:8], "big") == first


def test_gaps_and_empty_segments_do_not_end_a_read() -> None:
    found = mapped(*COMPACTED, bases=(0, 10, 20), compacted_below=20).read(0, 10**6, 31, 31)
    assert bytes_of(found) == b"".join(batch for segment in COMPACTED for batch in segment)


def test_a_segment_that_was_not_compacted_has_no_gap_at_its_end() -> None:
    whole = mapped(*COMPACTED, bases=(0, 10, 20), compacted_below=10)
    assert bytes_of(whole.read(0, 10**6, 31, 31)) == b"".join(COMPACTED[0])
    with pytest.raises(FrameError, match="ends at offset 10, the next segment begins at 20"):
        whole.read(8, 10**6, 31, 31)


def test_neighbours_are_sealed_only_together_and_never_the_active_one() -> None:
    whole = mapped(*COMPACTED, bases=(0, 10, 20))
    assert [one.base_offset for one in whole.sealed([0, 10])] == [0, 10]
    assert whole.sealed([10, 20]) == whole.sealed([0, 20]) == whole.sealed([5]) == []


class NoReads:
    """A file that caught-up readers must not read."""

    disk, path, size_bytes, truncated_to = None, "f", 0, 2**63 - 1

    def read_at(self, position: int, length: int) -> bytes:
        raise AssertionError("looked at the file")


@pytest.mark.feature("B09")
def test_caught_up_readers_need_no_look_at_the_file() -> None:
    _, _, log = new_log()
    for _ in range(5):
        append(log, 3)
    active = log._segments.active
    kept: File | None = active.file
    active.file = NoReads()  # type: ignore[assignment]
    for offset in range(log.log_end):
        assert log.read(offset, 10**6, end=log.log_end).slices[0].position == offset // 3 * 81
    active.file = kept


def test_positions_too_old_to_be_remembered_are_looked_up() -> None:
    _, _, log = new_log()
    log.update_config(replace(TINY, segment_bytes=10**6))
    batches = [append(log) for _ in range(RECENT_BATCHES * 2)]
    for offset, batch in enumerate(batches):
        assert bytes_of(log.read(offset, 1, end=log.log_end)) == batch


def test_the_largest_timestamp_below_an_end() -> None:
    stamps = [5, 9, 7, 8]
    whole = mapped([make_batch(n, 1, timestamp=t) for n, t in enumerate(stamps)], bases=(0,))
    expected = {1: 0, 2: 1, 3: 1, 4: 1}
    for end, best in expected.items():
        found = completed(whole.max_timestamp_batch(0, end))
        assert found is not None
        assert found.position == best * 81
    later = completed(whole.max_timestamp_batch(2, 4))
    assert later is not None
    assert later.position == 3 * 81


def test_the_largest_timestamp_below_an_end_is_found_by_the_index(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _, _, log = new_log(replace(TINY, segment_bytes=10**6))
    for n in range(300):
        append(log, body_bytes=500, timestamp=1_000 + n - 5 * (n % 3))
    reads, read_at = list[int](), MemFile.read_at

    def counted(file: MemFile, position: int, length: int) -> bytes:
        reads.append(position)
        return read_at(file, position, length)

    monkeypatch.setattr(MemFile, "read_at", counted)
    size = log.size_bytes // 300
    for end in (299, 297, 150, 2, 1):
        reads.clear()
        found = completed(log.max_timestamp_batch(end=end))
        assert found is not None
        expected = max(range(end), key=lambda n: (n - 5 * (n % 3), -n))
        assert (found.position, len(reads) < 5) == (expected * size, True)


def test_the_log_may_be_cut_between_the_parts_of_a_search(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("broker.storage.time_search.HEADERS_AT_ONCE", 10)
    _, _, log = new_log(replace(TINY, segment_bytes=2_000))
    append(log, timestamp=900)
    for _ in range(60):
        append(log, timestamp=5)
    log.advance_log_start(1)
    search = log.max_timestamp_batch(end=log.log_end)
    next(search)
    log.truncate_to(15)
    assert completed(search) is not None
    for _ in range(60):
        append(log, timestamp=5)
    search = log.max_timestamp_batch(end=log.log_end)
    next(search)
    log.truncate_fully_and_start_at(200)
    completed(search)
    assert (log.damage, log.log_end) == (None, 200)


def emptied(offset: int, timestamp: int) -> bytes:
    """A producer's last batch, of which compaction keeps the header alone."""
    header = read_header(make_batch(offset, 1, timestamp=timestamp))
    return assemble_batch(header._replace(record_count=0), b"")


@pytest.mark.feature("A19")
def test_batches_without_records_have_no_timestamp_to_find() -> None:
    first = [emptied(offset, 500) for offset in range(20)]
    last = [make_batch(20, 1, timestamp=400), emptied(21, 500), make_batch(22, 1, timestamp=300)]
    whole = mapped(first, last, bases=(0, 20), compacted_below=20)
    for found in (whole.next_at_or_after(350, 0, 23), completed(whole.max_timestamp_batch(0, 23))):
        assert isinstance(found, LogSlice)
        assert read_header(found.file.read_at(found.position, found.length)).base_offset == 20
    assert whole.next_at_or_after(450, 0, 23) is None
