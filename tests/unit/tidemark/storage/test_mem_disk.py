"""MemDisk against the obvious: synced bytes survive, the rest may, and only as a prefix."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tidemark.storage.disk import DiskError, DiskFullError
from tidemark.storage.mem_disk import MemDisk

DICE = st.lists(st.integers(0, 10**6), max_size=6)


def file_with(synced: bytes, unsynced: bytes) -> MemDisk:
    disk = MemDisk()
    file = disk.open("f", create=True)
    file.write_at(0, [synced])
    file.sync()
    disk.sync_directory("")
    file.write_at(len(synced), [unsynced])
    return disk


@given(st.binary(max_size=20), st.binary(max_size=20), DICE)
def test_a_crash_keeps_what_was_synced(synced: bytes, unsynced: bytes, dice: list[int]) -> None:
    disk = file_with(synced, unsynced)
    disk.crash(dice)
    left = disk.read_whole("f")
    assert left.startswith(synced)
    tail = left[len(synced) :]
    assert tail.rstrip(b"\0") == unsynced[: len(tail)].rstrip(b"\0")[: len(tail.rstrip(b"\0"))]
    assert len(tail) <= len(unsynced)


def test_a_kill_loses_nothing_but_handles() -> None:
    disk = file_with(b"a", b"b")
    handle = disk.open("f")
    disk.kill()
    assert disk.read_whole("f") == b"ab"
    with pytest.raises(DiskError, match="before the crash"):
        handle.read_at(0, 1)


@given(DICE)
def test_names_survive_as_a_prefix_of_what_happened(dice: list[int]) -> None:
    disk = MemDisk()
    disk.make_directory("d")
    disk.sync_directory("")
    disk.open("d/1", create=True)
    disk.rename("d/1", "d/2")
    disk.rename("d", "e")
    disk.remove("e/2")
    disk.crash(dice)
    trees = [["d"], ["d", "d/1"], ["d", "d/2"], ["e", "e/2"], ["e"]]
    found = [*disk.list(""), *(f"{top}/{name}" for top in "de" for name in disk.list(top))]
    assert found in trees


def test_replacing_whole_is_all_or_nothing() -> None:
    disk = MemDisk()
    disk.replace_whole("f", b"old")
    disk.replace_whole("f", b"new", sync=False)
    disk.crash([0])
    assert disk.read_whole("f") == b"old"
    disk.replace_whole("f", b"new")
    disk.crash([0])
    assert disk.read_whole("f") == b"new"


def test_a_full_disk_takes_what_fits() -> None:
    disk = MemDisk(capacity_bytes=5)
    file = disk.open("f", create=True)
    with pytest.raises(DiskFullError, match="f: No space left"):
        file.write_at(0, [b"1234", b"5678"])
    assert disk.read_whole("f") == b"12345"
    file.truncate(2)
    assert (disk.free_bytes(), file.truncated_to) == (3, 2)
    assert file.write_at(0, [b"ab"]) == 2, "overwriting needs no space"


def test_syncs_fail_when_told_to() -> None:
    disk = file_with(b"a", b"b")
    disk.syncs_fail = True
    with pytest.raises(DiskError, match="Input/output error"):
        disk.open("f").sync()
    disk.crash()
    assert disk.read_whole("f") == b"a"


def test_a_flipped_bit_stays_flipped() -> None:
    disk = file_with(b"ab", b"c")
    disk.flip_bit("f", 1, bit=1)
    disk.crash()
    assert disk.read_whole("f") == b"a`"


def test_missing_files_are_not_made_unasked() -> None:
    disk = MemDisk()
    for path in ("f", "no/f"):
        with pytest.raises(FileNotFoundError):
            disk.open(path, create=path != "f")
    assert not disk.exists("f")
    assert disk.list("no") == []
    disk.remove("f")
