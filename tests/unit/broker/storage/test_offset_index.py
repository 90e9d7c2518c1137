"""The offset index compared with a list of pairs; its file in Kafka's format; impossible entries
are cut off.
"""

from broker.storage.offset_index import OffsetIndex
from hypothesis import given
from hypothesis import strategies as st

ENTRIES = st.lists(st.tuples(st.integers(1, 50), st.integers(1, 5_000)), max_size=20)


def built(steps: list[tuple[int, int]]) -> tuple[OffsetIndex, list[tuple[int, int]]]:
    index, entries, offset, position = OffsetIndex(), [(0, 0)], 0, 0
    for offset_step, position_step in steps:
        offset, position = offset + offset_step, position + position_step
        index.add(offset, position)
        entries.append((offset, position))
    return index, entries


@given(ENTRIES, st.integers(0, 1_000), st.integers(0, 100_000))
def test_lookups_agree_with_a_list(
    steps: list[tuple[int, int]], offset: int, position: int
) -> None:
    index, entries = built(steps)
    assert index.floor(offset) == max(one for one in entries if one[0] <= offset)
    assert index.boundary(position) == max(one for one in entries if one[1] <= position)
    below = [one[0] for one in entries if one[0] < offset]
    assert index.before(offset) == max(below, default=0)


@given(ENTRIES, st.integers(0, 20))
def test_the_file_gives_the_index_back(steps: list[tuple[int, int]], written: int) -> None:
    index, entries = built(steps)
    whole = index.encode_unwritten()
    index.written_count = min(written, len(index))
    assert whole.endswith(index.encode_unwritten())
    read = OffsetIndex.decode(whole, log_bytes=10**6)
    assert list(zip(read.offsets, read.positions, strict=True)) == entries[1:]
    assert not read.stale_tail


def test_bytes_are_kafkas() -> None:
    index = OffsetIndex()
    index.add(3, 4096)
    assert index.encode_unwritten() == bytes([0, 0, 0, 3, 0, 0, 16, 0])


@given(ENTRIES, st.binary(max_size=40))
def test_garbage_never_makes_an_index_that_decreases(
    steps: list[tuple[int, int]], garbage: bytes
) -> None:
    index, _ = built(steps)
    read = OffsetIndex.decode(index.encode_unwritten() + garbage, log_bytes=3_000)
    assert list(read.offsets) == sorted(set(read.offsets))
    assert list(read.positions) == sorted(set(read.positions))
    assert all(position < 3_000 for position in read.positions)


@given(ENTRIES, st.integers(0, 100_000))
def test_truncation_keeps_what_is_below(steps: list[tuple[int, int]], position: int) -> None:
    index, entries = built(steps)
    index.written_count = len(index)
    index.truncate_to_position(position)
    assert list(index.positions) == [one[1] for one in entries[1:] if one[1] < position]
    assert index.stale_tail == (len(index) < len(entries) - 1)
