"""Small files: what was written is read back; newer versions are refused by name."""

import pytest
from broker.storage import checkpoint
from broker.storage.checkpoint import CheckpointError, NewerVersionError
from hypothesis import given
from hypothesis import strategies as st
from tidemark.model.ids import TopicId
from tidemark.model.topics import TopicPartition
from tidemark.storage.mem_disk import MemDisk

NAMES = st.text("abc.-_", min_size=1, max_size=9)
OFFSETS = st.dictionaries(
    st.builds(TopicPartition, NAMES, st.integers(0, 99)), st.integers(0, 2**63 - 1)
)


@given(OFFSETS)
def test_offsets_are_read_back(offsets: dict[TopicPartition, int]) -> None:
    disk = MemDisk()
    checkpoint.write_offsets(disk, checkpoint.HIGH_WATERMARKS, offsets, sync=True)
    disk.crash()
    assert checkpoint.read_offsets(disk, checkpoint.HIGH_WATERMARKS) == offsets


def test_offsets_are_in_kafkas_format() -> None:
    disk = MemDisk()
    checkpoint.write_offsets(disk, "x", {TopicPartition("orders", 3): 42}, sync=False)
    assert disk.read_whole("x") == b"0\n1\norders 3 42\n"


@pytest.mark.parametrize("content", [b"", b"x\n", b"0\n2\na 1 2\n", b"0\n1\na b c\n", b"0"])
def test_half_a_checkpoint_is_no_checkpoint(content: bytes) -> None:
    disk = MemDisk()
    disk.replace_whole("x", content)
    with pytest.raises(CheckpointError):
        checkpoint.read_offsets(disk, "x")


def test_a_newer_version_is_refused_by_name() -> None:
    disk = MemDisk()
    disk.replace_whole("x", b"1\n0\n")
    with pytest.raises(NewerVersionError, match="x: version 1 is newer"):
        checkpoint.read_offsets(disk, "x")


def test_epochs_out_of_order_are_refused() -> None:
    disk = MemDisk()
    checkpoint.write_epochs(disk, "e", [(1, 0), (4, 10)])
    assert checkpoint.read_epochs(disk, "e") == [(1, 0), (4, 10)]
    checkpoint.write_epochs(disk, "e", [(4, 0), (1, 10)])
    with pytest.raises(CheckpointError, match="out of order"):
        checkpoint.read_epochs(disk, "e")


@given(st.binary(min_size=16, max_size=16).map(TopicId))
def test_a_topic_id_is_read_back(topic_id: TopicId) -> None:
    disk = MemDisk()
    assert checkpoint.read_topic_id(disk, "orders-0") is None
    checkpoint.write_topic_id(disk, "orders-0", topic_id)
    assert checkpoint.read_topic_id(disk, "orders-0") == topic_id


def test_the_clean_shutdown_marker_counts_once() -> None:
    disk = MemDisk()
    checkpoint.write_clean_shutdown(disk, 77)
    marker = checkpoint.take_clean_shutdown(disk)
    disk.crash()
    assert marker is not None
    assert marker.broker_epoch == 77
    assert checkpoint.take_clean_shutdown(disk) is None
