"""MemDisk against the obvious: synced bytes survive, the rest may, and only as a prefix."""

import contextlib

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


def failed_sync(before: bytes, after: bytes, *, drops: bool = True) -> MemDisk:
    """``before`` is on the device; a sync of ``after``, behind it, failed."""
    disk = file_with(before, after)
    disk.syncs_fail, disk.drops_pages = True, drops
    with pytest.raises(DiskError):
        disk.open("f").sync()
    disk.repair()
    return disk


def test_what_a_failed_sync_drops_is_readable_until_the_file_system_is_mounted_again() -> None:
    disk = failed_sync(b"ab", b"cd")
    disk.open("f").sync()
    assert disk.read_whole("f") == b"abcd"
    disk.remount()
    assert disk.read_whole("f") == b"ab"


def test_what_a_failed_sync_drops_reads_as_zeros_once_its_pages_are_evicted() -> None:
    disk = failed_sync(b"ab", b"cd")
    disk.open("f").write_at(4, [b"e"])
    disk.evict()
    assert disk.read_whole("f") == b"ab\0\0e"


def test_what_is_written_again_after_a_failed_sync_is_synced() -> None:
    disk = failed_sync(b"ab", b"cdef")
    file = disk.open("f")
    file.write_at(3, [file.read_at(3, 2)])
    file.sync()
    disk.crash()
    assert disk.read_whole("f") == b"ab\0de"


def test_a_failed_sync_that_keeps_its_pages_is_made_up_for_by_the_next() -> None:
    disk = failed_sync(b"ab", b"cd", drops=False)
    disk.open("f").sync()
    disk.crash()
    assert disk.read_whole("f") == b"abcd"


def test_a_remount_keeps_all_but_what_was_dropped() -> None:
    disk = file_with(b"ab", b"cd")
    disk.open("new", create=True)
    disk.remount()
    disk.crash()
    assert (disk.read_whole("f"), disk.list("")) == (b"abcd", ["f", "new"])


@given(st.lists(st.tuples(st.integers(0, 12), st.binary(max_size=4), st.booleans()), max_size=8))
def test_dropped_bytes_are_those_that_no_later_write_covers(
    writes: list[tuple[int, bytes, bool]],
) -> None:
    disk = file_with(b"", b"")
    stored: dict[int, int] = {}
    disk.drops_pages, file = True, disk.open("f")
    for at, content, fails in writes:
        file.write_at(at, [content])
        new = {at + number: byte for number, byte in enumerate(content)}
        stored = stored if fails else {**stored, **new}
        disk.syncs_fail = fails
        with contextlib.suppress(DiskError):
            file.sync()
    disk.crash()
    left = disk.read_whole("f")
    assert all(left[at] == byte for at, byte in stored.items())


@pytest.mark.parametrize("call", ["write", "read", "sync"])
def test_calls_fail_under_a_path(call: str) -> None:
    disk = MemDisk()
    good, bad = (disk.open(name, create=True) for name in ("good", "bad"))
    setattr(disk, f"{call}s_fail", True)
    disk.fails_under = "bad"
    arguments = {"write": (0, [b"xy"]), "read": (0, 1), "sync": ()}[call]
    method = {"write": "write_at", "read": "read_at", "sync": "sync"}[call]
    getattr(good, method)(*arguments)
    with pytest.raises(DiskError, match="bad: Input/output error"):
        getattr(bad, method)(*arguments)
    assert disk.is_failing


def test_a_write_that_fails_leaves_half() -> None:
    disk = file_with(b"a", b"")
    disk.writes_fail = True
    with pytest.raises(DiskError):
        disk.open("f").write_at(1, [b"bcde"])
    assert disk.read_whole("f") == b"abc"


def test_names_do_not_change_while_writes_fail() -> None:
    disk = file_with(b"a", b"")
    disk.writes_fail = True
    for change in (
        lambda: disk.rename("f", "g"),
        lambda: disk.remove("f"),
        lambda: disk.make_directory("d"),
        lambda: disk.open("g", create=True),
        lambda: disk.replace_whole("f", b"b"),
    ):
        with pytest.raises(DiskError):
            change()
    assert (disk.list(""), disk.read_whole("f")) == (["f"], b"a")


def test_a_file_that_was_cut_in_half_stays_so() -> None:
    disk = file_with(b"abcd", b"ef")
    disk.cut_file("f", 2)
    disk.crash()
    assert disk.read_whole("f") == b"ab"
