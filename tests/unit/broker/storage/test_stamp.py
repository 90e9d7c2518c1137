"""Stamps: foreign, newer and unstamped directories are refused."""

from typing import Any

import pytest
from broker.storage.log_manager import LogManager
from broker.storage.stamp import META_PROPERTIES, DiskStamp, StampError, read_stamp, settle_stamp
from tidemark.storage.mem_disk import MemDisk
from unit.broker.storage.log_worlds import opened


def stamped() -> MemDisk:
    disk = MemDisk()
    opened(disk).close()
    return disk


def test_an_empty_directory_is_stamped() -> None:
    assert read_stamp(stamped()) == DiskStamp("c", 1, "d", "boot-1")


def test_another_directory_id_does_not_rename_a_stamped_one() -> None:
    assert opened(stamped(), directory_id="other").stamp.directory_id == "d"


@pytest.mark.parametrize("change", [{"cluster_id": "x"}, {"broker_id": 2}])
def test_a_foreign_directory_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(StampError, match="belongs to"):
        opened(stamped(), **change)


def test_files_without_a_stamp_are_refused() -> None:
    disk = MemDisk()
    disk.make_directory("orders-0")
    with pytest.raises(StampError, match="not empty"):
        opened(disk)


@pytest.mark.parametrize("content", [b"", b"version=1\nbroker.id=1\n", b"version=x\n"])
def test_half_a_stamp_is_refused(content: bytes) -> None:
    disk = stamped()
    disk.replace_whole(META_PROPERTIES, content)
    with pytest.raises(StampError, match="missing"):
        opened(disk)


def test_a_newer_format_is_refused_by_name() -> None:
    disk = stamped()
    newer = disk.read_whole(META_PROPERTIES).replace(b"version=1", b"version=2")
    disk.replace_whole(META_PROPERTIES, newer)
    with pytest.raises(StampError, match=r"meta.properties: format version 2 is newer"):
        opened(disk)
    assert disk.read_whole(META_PROPERTIES) == newer


def test_a_cluster_is_joined_once() -> None:
    manager = opened(MemDisk(), cluster_id=None)
    manager.join_cluster("c")
    assert manager.stamp.cluster_id == "c"
    with pytest.raises(StampError, match="belongs to cluster c"):
        manager.join_cluster("x")


def test_the_boot_id_tells_whether_the_page_cache_survived() -> None:
    disk = stamped()
    same: LogManager = opened(disk)
    assert same.same_boot
    assert not opened(disk, boot_id="boot-2").same_boot
    assert settle_stamp(disk, cluster_id=None, broker_id=1, directory_id="").boot_id == "boot-2"
