import asyncio

import pytest
from broker.shell.partitions.log_bytes import (
    DamagedBatchError,
    VoidSliceError,
    first_damage,
    read_checked,
)
from broker.storage.segment_map import LogRead, LogSlice
from tidemark.codec.records import build_batch
from tidemark.storage.mem_disk import MemDisk

FIRST = build_batch([(1, None, b"a", ()), (1, None, b"b", ())], base_offset=10)
SECOND = build_batch([(1, None, b"c" * 100, ())], base_offset=12)
BOTH = FIRST + SECOND


def flipped(content: bytes, position: int) -> bytes:
    return content[:position] + bytes([content[position] ^ 1]) + content[position + 1 :]


def slices(content: bytes, *cuts: tuple[int, int]) -> LogRead:
    file = MemDisk().open("log", create=True)
    file.write_at(0, [content])
    found = tuple(LogSlice(file, position, length) for position, length in cuts)
    return LogRead(found, sum(length for _, length in cuts))


def test_whole_undamaged_batches_pass() -> None:
    assert first_damage(BOTH, len(BOTH), 10) == (-1, 13)


@pytest.mark.parametrize("position", [16, 17, 21, 60, len(FIRST) - 1])
def test_a_flipped_bit_is_found_and_placed(position: int) -> None:
    assert first_damage(flipped(BOTH, position), len(BOTH), 10)[0] == 0
    at = len(FIRST) + position
    assert first_damage(flipped(BOTH, at), len(BOTH), 10) == (len(FIRST), 12)


def test_what_ends_inside_a_batch_is_damaged_from_there() -> None:
    assert first_damage(BOTH[:-1], len(BOTH), 10) == (len(FIRST), 12)


def test_slices_are_joined_in_order() -> None:
    found = slices(BOTH, (0, len(FIRST)), (len(FIRST), len(SECOND)))
    assert asyncio.run(read_checked(found, 10)) == BOTH


def test_damage_names_the_file_and_the_place() -> None:
    found = slices(flipped(BOTH, len(BOTH) - 1), (0, len(FIRST)), (len(FIRST), len(SECOND)))
    with pytest.raises(DamagedBatchError) as damage:
        asyncio.run(read_checked(found, 10))
    assert (damage.value.path, damage.value.position) == ("log", len(FIRST))


def test_a_slice_of_a_log_that_was_cut_is_void() -> None:
    found = slices(BOTH, (0, len(BOTH)))
    found.slices[0].file.truncate(len(FIRST))
    with pytest.raises(VoidSliceError):
        asyncio.run(read_checked(found, 10))
