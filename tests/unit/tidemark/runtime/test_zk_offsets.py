import pytest
from tidemark.model.topics import TopicPartition
from tidemark.runtime.zk_offsets import (
    MalformedOffsetError,
    offset_path,
    read_offset,
    root_connect,
)


@pytest.mark.feature("F01")
def test_znodes_are_where_kafkas_consumers_kept_them() -> None:
    partition = TopicPartition("orders", 3)
    assert offset_path("billing", partition) == "/consumers/billing/offsets/orders/3"


@pytest.mark.parametrize(
    ("connect", "used"), [("a:1,b:1", "a:1,b:1/"), ("a:1/kafka", "a:1/kafka"), ("a:1/", "a:1/")]
)
def test_without_a_chroot_they_are_below_the_root(connect: str, used: str) -> None:
    assert root_connect(connect) == used


@pytest.mark.parametrize(("content", "offset"), [(b"0", 0), (b"42\n", 42), (b"9" * 18, 10**18 - 1)])
def test_an_offset_is_a_decimal_number(content: bytes, offset: int) -> None:
    assert read_offset("/x", content) == offset


@pytest.mark.parametrize("content", [b"-1", b"x", b"\xff", b"{}", b"1.5"])
def test_anything_else_is_refused_by_name(content: bytes) -> None:
    with pytest.raises(MalformedOffsetError, match="/x"):
        read_offset("/x", content)
