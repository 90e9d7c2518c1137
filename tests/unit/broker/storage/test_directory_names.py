"""Names of partition directories, and their renaming."""

import pytest
from broker.storage.directory_names import (
    DELETE_SUFFIX,
    DIRECTORY_NAME_MAX,
    partition_of,
    rename_away,
)
from tidemark.model.topics import TopicPartition
from tidemark.storage.mem_disk import MemDisk


def test_a_name_that_is_taken_gets_a_number() -> None:
    disk = MemDisk()
    for expected in ("a-0.ff-delete", "a-0.ff.1-delete", "a-0.ff.2-delete"):
        disk.make_directory("a-0")
        assert rename_away(disk, "a-0", "ff", DELETE_SUFFIX) == expected
    assert len(disk.list("")) == 3


def test_the_longest_topic_name_is_cut_to_what_fits() -> None:
    disk, longest = MemDisk(), "t" * 249 + "-7"
    disk.make_directory(longest)
    name = rename_away(disk, longest, "f" * 32, DELETE_SUFFIX)
    assert len(name) == DIRECTORY_NAME_MAX
    assert name.endswith("t." + "f" * 32 + "-delete")


@pytest.mark.parametrize(
    ("name", "partition"),
    [
        ("orders-0", TopicPartition("orders", 0)),
        ("a-b-12", TopicPartition("a-b", 12)),
        ("orders", None),
        ("orders-", None),
        ("-1", None),
        ("orders-0.00ff-delete", None),
        ("orders-x", None),
    ],
)
def test_directory_names_tell_the_partition(name: str, partition: TopicPartition | None) -> None:
    assert partition_of(name) == partition
