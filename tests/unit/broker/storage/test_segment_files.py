"""Whole files of segments: listed, tidied after a crash, renamed for removal, replaced."""

import pytest
from broker.storage.directory import LogDirectory
from broker.storage.segment import SUFFIXES, Segment
from broker.storage.segment_files import new_segment, retire, swap_in, tidy_files
from tidemark.storage.mem_disk import MemDisk
from unit.broker.storage.log_worlds import make_batch

STEMS = [f"{base:020d}" for base in (0, 2, 4)]


def three_segments() -> MemDisk:
    """Two records each, from 0, 2 and 4 on."""
    disk = MemDisk()
    for base, stem in zip((0, 2, 4), STEMS, strict=True):
        disk.make_directory("t-0")
        disk.replace_whole(f"t-0/{stem}.log", make_batch(base, 2))
        disk.replace_whole(f"t-0/{stem}.index", b"")
    disk.replace_whole(f"t-0/{STEMS[2]}.snapshot", b"")
    return disk


def test_files_are_listed_by_offset() -> None:
    disk = three_segments()
    disk.replace_whole("t-0/12.log", b"not one of ours")
    files = tidy_files(disk, "t-0")
    assert (files.bases, files.snapshots) == ([0, 2, 4], [4])


@pytest.mark.parametrize("suffix", [".deleted", ".cleaned", ".log.tmp"])
def test_what_was_on_its_way_out_or_in_goes(suffix: str) -> None:
    disk = three_segments()
    disk.replace_whole(f"t-0/{STEMS[0]}.log{suffix}", b"x")
    assert tidy_files(disk, "t-0").bases == [0, 2, 4]
    assert not disk.exists(f"t-0/{STEMS[0]}.log{suffix}")


def test_a_replacement_takes_the_place_of_all_it_covers() -> None:
    disk = three_segments()
    new = make_batch(0, 1, 5) + make_batch(3, 1, 5)
    disk.replace_whole(f"t-0/{STEMS[0]}.log.swap", new)
    assert tidy_files(disk, "t-0").bases == [0, 4]
    assert disk.read_whole(f"t-0/{STEMS[0]}.log") == new
    assert not disk.exists(f"t-0/{STEMS[0]}.index")


def test_a_damaged_replacement_does_not_replace() -> None:
    disk = three_segments()
    disk.replace_whole(f"t-0/{STEMS[0]}.log.swap", b"nonsense")
    assert tidy_files(disk, "t-0").bases == [0, 2, 4]
    assert disk.read_whole(f"t-0/{STEMS[0]}.log") == make_batch(0, 2)


@pytest.mark.parametrize("stale", [0, 2, 4])
def test_a_replacement_is_finished_whatever_another_round_left_behind(stale: int) -> None:
    disk = three_segments()
    disk.replace_whole(f"t-0/{stale:020d}.log.cleaned", b"")
    disk.replace_whole(f"t-0/{STEMS[1]}.log.swap", make_batch(2, 2, 5))
    for stem in STEMS[1:]:
        disk.rename(f"t-0/{stem}.log", f"t-0/{stem}.log.deleted")
    disk.replace_whole("t-0/00000000000000000012.log", make_batch(12, 2))
    assert tidy_files(disk, "t-0").bases == [0, 2, 12]
    assert disk.read_whole(f"t-0/{STEMS[1]}.log") == make_batch(2, 2, 5)
    assert not [name for name in disk.list("t-0") if name.endswith((".cleaned", ".deleted"))]


def test_retired_files_wait_for_their_readers() -> None:
    disk = three_segments()
    shared = LogDirectory(disk, jitter=lambda _: 0, now_ms=0)
    segment = Segment("t-0", 0, 100, 0)
    held = shared.warm(segment)
    retire(shared, [segment], due_ms=50)
    assert disk.read_whole(f"t-0/{STEMS[0]}.log.deleted") == held.read_at(0, 1_000)
    begun = shared.removals.begin(50)
    assert begun is not None
    begun.run()
    shared.removals.finish(begun)
    assert tidy_files(disk, "t-0").bases == [2, 4]


def test_swapping_in_gives_the_new_segments() -> None:
    disk = three_segments()
    shared = LogDirectory(disk, jitter=lambda _: 0, now_ms=0)
    old = [Segment("t-0", base, 100, 0) for base in (0, 2)]
    disk.replace_whole(f"t-0/{STEMS[0]}.log.cleaned", make_batch(0, 4))
    disk.replace_whole(f"t-0/{STEMS[0]}.timeindex.cleaned", b"")
    new = swap_in(shared, old, f"t-0/{STEMS[0]}.log.cleaned", due_ms=0)
    assert (new.base_offset, new.size_bytes) == (0, len(make_batch(0, 4)))
    assert disk.exists(f"t-0/{STEMS[0]}.timeindex")
    assert not disk.exists(f"t-0/{STEMS[1]}.log")


def test_a_new_segment_has_nothing_of_a_failed_attempt() -> None:
    disk = three_segments()
    assert new_segment(disk, "t-0", 4, 0).size_bytes == 0
    assert [disk.exists(f"t-0/{STEMS[2]}{suffix}") for suffix in SUFFIXES[:2]] == [True, False]
    assert disk.size_of(f"t-0/{STEMS[2]}.log") == 0
