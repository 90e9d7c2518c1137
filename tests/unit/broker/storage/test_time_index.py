"""The time index compared with a list of batches; its file in Kafka's format."""

from broker.storage.time_index import TimeIndex
from hypothesis import given
from hypothesis import strategies as st

STAMPS = st.lists(st.integers(0, 40), max_size=30)


def built(stamps: list[int]) -> TimeIndex:
    """Batch n has offset n; every third one gets an entry."""
    index, largest, holder = TimeIndex(), -1, 0
    for offset, stamp in enumerate(stamps):
        if stamp > largest:
            largest, holder = stamp, offset
        if offset % 3 == 2:
            index.maybe_add(largest, holder)
    return index


@given(STAMPS, st.integers(0, 41))
def test_the_first_batch_not_older_is_within_the_bracket(stamps: list[int], asked: int) -> None:
    low, high = built(stamps).bracket(asked)
    first = next((offset for offset, stamp in enumerate(stamps) if stamp >= asked), None)
    if first is not None:
        assert low <= first
        assert high is None or first <= high


@given(STAMPS)
def test_the_file_gives_the_index_back(stamps: list[int]) -> None:
    index = built(stamps)
    read = TimeIndex.decode(index.encode_unwritten(), offsets_end=100)
    assert read.timestamps == index.timestamps
    assert read.offsets == index.offsets
    assert read.last == index.last


def test_bytes_are_kafkas() -> None:
    index = TimeIndex()
    index.maybe_add(2**40 + 1, 7)
    assert index.encode_unwritten() == bytes([0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 7])


@given(STAMPS, st.binary(max_size=50))
def test_garbage_never_makes_an_index_that_decreases(stamps: list[int], garbage: bytes) -> None:
    read = TimeIndex.decode(built(stamps).encode_unwritten() + garbage, offsets_end=100)
    assert list(read.timestamps) == sorted(set(read.timestamps))
    assert list(read.offsets) == sorted(set(read.offsets))


def test_truncation_keeps_what_is_below() -> None:
    index = built(list(range(12)))
    index.written_count = len(index)
    index.truncate_to_offset(6)
    assert index.last == (5, 5)
    assert index.stale_tail


def test_a_file_is_read_up_to_the_first_entry_that_cannot_be() -> None:
    entries = [(5, 1), (6, 3), (9, 7), (9, 8)]
    for bad, kept in (((4, 9), 3), ((10, 100), 3), ((-1, 0), 0)):
        index = TimeIndex()
        listed = [bad, *entries] if kept == 0 else [*entries[:3], bad, (11, 12)]
        for timestamp, offset in listed:
            index.timestamps.append(timestamp)
            index.offsets.append(offset)
        read = TimeIndex.decode(index.encode_unwritten(), offsets_end=100)
        assert list(zip(read.timestamps, read.offsets, strict=True)) == entries[:kept]
        assert (read.written_count, read.stale_tail) == (kept, True)
