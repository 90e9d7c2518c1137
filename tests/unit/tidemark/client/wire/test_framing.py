import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tidemark.client.wire.framing import FrameAssembler, FrameError


def feed(assembler: FrameAssembler, data: bytes) -> list[bytes]:
    """As a socket would: never more than the buffer takes."""
    frames = []
    while data:
        buffer = assembler.buffer()
        count = min(len(buffer), len(data))
        buffer[:count] = data[:count]
        frames += [bytes(frame) for frame in assembler.received(count)]
        data = data[count:]
    return frames


def framed(frames: list[bytes]) -> bytes:
    return b"".join(struct.pack(">i", len(frame)) + frame for frame in frames)


sizes = st.one_of(st.integers(4, 300), st.integers(65_500, 65_600), st.integers(100_000, 200_000))


@given(st.lists(sizes, max_size=6), st.lists(st.integers(500, 70_000), min_size=1, max_size=8))
def test_frames_come_out_however_the_bytes_are_cut(lengths: list[int], cuts: list[int]) -> None:
    frames = [bytes([number % 251]) * size for number, size in enumerate(lengths)]
    stream, out, turn = framed(frames), [], 0
    assembler = FrameAssembler(frame_bytes_max=1_000_000)
    while stream:
        cut = cuts[turn % len(cuts)]
        out += feed(assembler, stream[:cut])
        stream, turn = stream[cut:], turn + 1
    assert out == frames
    assert assembler.is_between_frames


@pytest.mark.parametrize("size", [-1, 0, 3, 1_001, 2**31 - 1])
def test_a_length_that_cannot_be_is_refused_before_memory_is_taken(size: int) -> None:
    assembler = FrameAssembler(frame_bytes_max=1_000)
    with pytest.raises(FrameError):
        feed(assembler, struct.pack(">i", size))


def test_frames_come_out_byte_by_byte() -> None:
    frames = [b"four", b"longer than that"]
    assembler = FrameAssembler(frame_bytes_max=1_000)
    assert [frame for byte in framed(frames) for frame in feed(assembler, bytes([byte]))] == frames


def test_a_frame_is_not_overwritten_by_the_next() -> None:
    assembler = FrameAssembler(frame_bytes_max=1_000)
    buffer = assembler.buffer()
    buffer[:9] = framed([b"first"])
    (first,) = assembler.received(9)
    feed(assembler, framed([b"other"]))
    assert bytes(first) == b"first"
