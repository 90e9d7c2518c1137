"""Removals: what is due goes in rounds, which a thread runs while the loop goes on."""

import pytest
from broker.storage.removals import RemovalRound, Removals
from tidemark.storage.disk import DiskError, ExhaustedError
from tidemark.storage.mem_disk import MemDisk


def left(disk: MemDisk, **paths: int) -> Removals:
    """Files that are to be removed, by the time at which they are due."""
    removals = Removals(disk)
    for name, due_ms in paths.items():
        disk.replace_whole(name, b"x")
        removals.add(name, due_ms)
    return removals


def begun(removals: Removals, now_ms: int) -> RemovalRound:
    one = removals.begin(now_ms)
    assert one is not None
    return one


def remove(removals: Removals, now_ms: int) -> None:
    one = begun(removals, now_ms)
    one.run()
    removals.finish(one)


def test_what_is_due_is_removed_and_the_rest_waits() -> None:
    disk = MemDisk()
    removals = left(disk, a=10, b=20)
    assert removals.begin(9) is None
    remove(removals, 10)
    assert disk.list("") == ["b"]
    assert removals.begin(19) is None
    remove(removals, 20)
    assert disk.list("") == []
    assert removals.begin(10**9) is None


def test_a_directory_goes_with_its_content() -> None:
    disk = MemDisk()
    disk.make_directory("t-0-delete")
    removals = left(disk, **{"t-0-delete/0.log": 0, "t-0-delete/5.log": 0})
    removals.add("t-0-delete", 0)
    remove(removals, 0)
    assert disk.list("") == []


def test_one_round_at_a_time() -> None:
    removals = left(MemDisk(), a=0)
    one = begun(removals, 0)
    removals.add("b", 0)
    assert removals.begin(0) is None
    one.run()
    removals.finish(one)
    assert begun(removals, 0) is not one


def test_a_file_whose_directory_gets_another_name_meanwhile_stays_due() -> None:
    disk = MemDisk()
    disk.make_directory("future")
    removals = left(disk, **{"future/0.log.deleted": 0, "other": 0})
    one = begun(removals, 0)
    disk.rename("future", "t-0")
    removals.renamed("future", "t-0")
    one.run()
    removals.finish(one)
    assert disk.exists("t-0/0.log.deleted")
    remove(removals, 0)
    assert disk.list("t-0") == []


def test_what_could_not_be_removed_stays_due() -> None:
    disk = MemDisk()
    removals = left(disk, a=0)
    disk.exhausted = True
    with pytest.raises(ExhaustedError):
        remove(removals, 0)
    disk.exhausted = False
    disk.writes_fail = True
    with pytest.raises(DiskError):
        remove(removals, 0)
    disk.writes_fail = False
    remove(removals, 0)
    assert disk.list("") == []


def test_a_round_that_is_stopped_leaves_the_rest() -> None:
    disk = MemDisk()
    removals = left(disk, a=0)
    one = begun(removals, 0)
    one.stop()
    one.run()
    removals.finish(one)
    assert disk.list("") == ["a"]
    remove(removals, 0)
    assert disk.list("") == []
