"""Walking batches: every chunk size sees the same, and what cannot be a batch ends the walk."""

import pytest
from tidemark.codec.records import build_batch
from tidemark.model.topics import TopicPartition
from tidemark.storage.batch_walk import Damage, FrameError, walk_batches


class Bytes:
    def __init__(self, content: bytes) -> None:
        self.content = content

    def read_at(self, position: int, length: int) -> bytes:
        return self.content[position : position + length]


def log(count: int = 5) -> bytes:
    return b"".join(
        build_batch([(0, b"k", b"v" * number, ())], base_offset=number) for number in range(count)
    )


@pytest.mark.parametrize("chunk_bytes", [1, 61, 64, 100, 1 << 20])
def test_every_batch_is_seen_in_order(chunk_bytes: int) -> None:
    content = log()
    walked = list(walk_batches(Bytes(content), 0, len(content), chunk_bytes=chunk_bytes))
    assert [one.header.base_offset for one in walked] == [0, 1, 2, 3, 4]
    assert b"".join(one.batch for one in walked) == content
    assert all(one.crc_ok for one in walked)
    rest = walk_batches(Bytes(content), walked[3].position, len(content), chunk_bytes=chunk_bytes)
    assert [one.header.base_offset for one in rest] == [3, 4]


def test_a_bad_crc_is_told_and_walked_over() -> None:
    content = bytearray(log())
    content[-1] ^= 1
    walked = walk_batches(Bytes(bytes(content)), 0, len(content))
    assert [one.crc_ok for one in walked] == [True] * 4 + [False]


@pytest.mark.parametrize(
    ("position", "patch", "what"),
    [
        (16, b"\x01", "magic 1"),
        (8, b"\x00\x00\x00\x05", "batch length 5"),
        (8, b"\xff\xff\xff\xff", "batch length -1"),
        (8, b"\x7f\xff\xff\xff", "does not fit"),
    ],
)
def test_a_broken_frame_ends_the_walk(position: int, patch: bytes, what: str) -> None:
    good = log(2)
    bad = bytearray(log(1))
    bad[position : position + len(patch)] = patch
    walk = walk_batches(Bytes(good + bytes(bad)), 0, len(good) + len(bad))
    assert [next(walk).header.base_offset, next(walk).header.base_offset] == [0, 1]
    with pytest.raises(FrameError, match=what) as raised:
        next(walk)
    assert raised.value.position == len(good)


def test_a_torn_end_is_noticed() -> None:
    content = log(1)
    with pytest.raises(FrameError, match="10 bytes are not a batch"):
        list(walk_batches(Bytes(content + bytes(10)), 0, len(content) + 10))
    with pytest.raises(FrameError, match="too early"):
        list(walk_batches(Bytes(content[:-3]), 0, len(content)))


def test_damage_is_told_in_one_line() -> None:
    damage = Damage(TopicPartition("orders", 3), "orders-3/0.log", 61, 7, "CRC does not match")
    assert str(damage) == "orders-3: orders-3/0.log at byte 61 (offset 7): CRC does not match"
