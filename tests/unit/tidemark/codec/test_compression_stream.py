"""Codecs piece by piece: the same bytes, in bounded memory."""

import os
import tracemalloc
import zlib
from collections.abc import Callable

import cramjam
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tidemark.codec.compression import (
    CODEC_NAMES,
    GZIP,
    LZ4,
    SNAPPY,
    ZSTD,
    CompressionError,
    compress,
    decompress,
)
from tidemark.codec.compression_stream import CHUNK_BYTES, compress_stream, decompress_stream
from tidemark.codec.varint import _encode_unsigned

COMPRESSING = (GZIP, SNAPPY, LZ4, ZSTD)
every_codec = pytest.mark.parametrize("codec", COMPRESSING, ids=CODEC_NAMES.get)


@settings(deadline=None)
@given(st.binary(max_size=2_000), st.sampled_from(list(CODEC_NAMES)), st.integers(0, 2_000))
def test_pieces_are_the_whole(seed: bytes, codec: int, times: int) -> None:
    data = seed * times
    pieces = list(decompress_stream(codec, compress(codec, data), bytes_max=len(data)))
    assert all(pieces)
    assert b"".join(pieces) == data
    packed = b"".join(compress_stream(codec, pieces, len(data)))
    assert decompress(codec, packed, bytes_max=len(data)) == data


@pytest.mark.parametrize("codec", [GZIP, LZ4, ZSTD], ids=CODEC_NAMES.get)
def test_what_cannot_be_compressed_and_frames_behind_one_another(codec: int) -> None:
    data = os.urandom(600_000)
    packed = compress(codec, data) + compress(codec, b"more") + compress(codec, data)
    pieces = decompress_stream(codec, packed, bytes_max=2_000_000)
    assert b"".join(pieces) == data + b"more" + data


@every_codec
def test_a_byte_over_the_bound_is_refused(codec: int) -> None:
    packed = compress(codec, b"0123456789")
    with pytest.raises(CompressionError, match="more than 9 bytes"):
        list(decompress_stream(codec, packed, bytes_max=9))


@every_codec
@pytest.mark.parametrize("garbage", [b"\x00" * 40, b"\xff" * 40, b"tidemark" * 5])
def test_garbage_is_refused(codec: int, garbage: bytes) -> None:
    with pytest.raises(CompressionError):
        list(decompress_stream(codec, garbage, bytes_max=1_000))


@every_codec
def test_truncated_data_is_refused(codec: int) -> None:
    packed = compress(codec, os.urandom(100_000))
    for end in (1, len(packed) // 2, len(packed) - 1):
        with pytest.raises(CompressionError):
            list(decompress_stream(codec, packed[:end], bytes_max=200_000))


@settings(deadline=None)
@given(st.binary(max_size=60), st.sampled_from(COMPRESSING), st.data())
def test_both_forms_take_and_refuse_the_same(seed: bytes, codec: int, draw: st.DataObject) -> None:
    packed = bytearray(
        compress(codec, seed) + draw.draw(st.sampled_from((b"", compress(codec, seed))))
    )
    packed[draw.draw(st.integers(0, len(packed) - 1))] ^= draw.draw(st.sampled_from((0, 1, 128)))
    del packed[draw.draw(st.integers(1, len(packed))) :]
    assert _read(lambda: decompress(codec, packed, bytes_max=100)) == _read(
        lambda: b"".join(decompress_stream(codec, packed, bytes_max=100))
    )


def _read(unfold: Callable[[], bytes]) -> bytes | None:
    """What comes out; None where it is refused."""
    try:
        return unfold()
    except CompressionError:
        return None


def test_an_unknown_codec_is_refused() -> None:
    with pytest.raises(CompressionError, match="unknown compression codec 7"):
        list(decompress_stream(7, b"", bytes_max=1))
    with pytest.raises(CompressionError, match="unknown compression codec 7"):
        list(compress_stream(7, [], 0))


@pytest.mark.parametrize("codec", [GZIP, LZ4, ZSTD], ids=CODEC_NAMES.get)
def test_a_bomb_is_held_by_the_piece(codec: int) -> None:
    bomb = compress(codec, bytes(50_000_000))
    tracemalloc.start()
    try:
        assert sum(map(len, decompress_stream(codec, bomb, bytes_max=50_000_000))) == 50_000_000
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 8 * CHUNK_BYTES + len(bomb)


def test_a_block_of_snappy_that_claims_more_than_it_can_hold_is_refused_unread() -> None:
    block = _encode_unsigned(200_000_000) + b"\x00a"
    with pytest.raises(CompressionError, match="cannot unfold to 200000000"):
        list(decompress_stream(SNAPPY, block, bytes_max=1_000_000_000))


def test_a_block_of_snappy_beyond_the_bound_is_refused_unread() -> None:
    block = bytes(cramjam.snappy.compress_raw(bytes(20_000_000)))
    tracemalloc.start()
    try:
        with pytest.raises(CompressionError, match="more than 1000 bytes"):
            list(decompress_stream(SNAPPY, block, bytes_max=1_000))
        assert tracemalloc.get_traced_memory()[1] < len(block)
    finally:
        tracemalloc.stop()


def test_output_that_gzip_holds_back_comes() -> None:
    packed = compress(GZIP, bytes(CHUNK_BYTES * 3))
    assert len(packed) < 1_000  # one piece of input unfolds to several of output
    pieces = list(decompress_stream(GZIP, packed + zlib.compress(b"", wbits=31), bytes_max=10**7))
    assert sum(map(len, pieces)) == CHUNK_BYTES * 3
