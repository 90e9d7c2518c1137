"""Codecs: round trips, the forms that clients write, and bounds that hostile bytes run into."""

import contextlib
import struct
import zlib

import cramjam
import lz4.frame
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st
from tidemark.codec.compression import (
    CODEC_NAMES,
    CODECS_BY_NAME,
    GZIP,
    LZ4,
    SNAPPY,
    ZSTD,
    CompressionError,
    compress,
    decompress,
)

COMPRESSING = (GZIP, SNAPPY, LZ4, ZSTD)
every_codec = pytest.mark.parametrize("codec", COMPRESSING, ids=CODEC_NAMES.get)


@settings(deadline=None)
@given(st.binary(max_size=2_000), st.sampled_from(list(CODEC_NAMES)), st.integers(0, 200))
def test_what_was_compressed_comes_back(seed: bytes, codec: int, times: int) -> None:
    data = seed * times
    packed = compress(codec, data)
    assert decompress(codec, packed, bytes_max=len(data)) == data
    assert decompress(codec, memoryview(packed), bytes_max=len(data) + 1) == data


@every_codec
def test_a_bomb_is_refused(codec: int) -> None:
    bomb = compress(codec, bytes(20_000_000))
    with pytest.raises(CompressionError, match="more than 1000000 bytes"):
        decompress(codec, bomb, bytes_max=1_000_000)


@every_codec
def test_a_byte_over_the_bound_is_refused(codec: int) -> None:
    packed = compress(codec, b"0123456789")
    with pytest.raises(CompressionError, match="more than 9 bytes"):
        decompress(codec, packed, bytes_max=9)


@every_codec
@pytest.mark.parametrize("garbage", [b"\x00" * 40, b"\xff" * 40, b"tidemark" * 5])
def test_garbage_is_refused(codec: int, garbage: bytes) -> None:
    with pytest.raises(CompressionError):
        decompress(codec, garbage, bytes_max=1_000)


@every_codec
def test_truncated_data_is_refused(codec: int) -> None:
    packed = compress(codec, bytes(range(256)) * 400)
    for end in (1, len(packed) // 2, len(packed) - 1):
        with pytest.raises(CompressionError):
            decompress(codec, packed[:end], bytes_max=200_000)


@settings(deadline=None)
@given(st.binary(max_size=200), st.sampled_from(COMPRESSING))
def test_hostile_bytes_never_do_anything_else(data: bytes, codec: int) -> None:
    with contextlib.suppress(CompressionError):
        assert len(decompress(codec, data, bytes_max=10_000)) <= 10_000


def test_an_unknown_codec_is_refused() -> None:
    with pytest.raises(CompressionError, match="unknown compression codec 5"):
        compress(5, b"")
    with pytest.raises(CompressionError, match="unknown compression codec 7"):
        decompress(7, b"", bytes_max=1)


@pytest.mark.parametrize("level", [1, 9])
def test_levels_are_taken(level: int) -> None:
    for name in ("gzip", "lz4", "zstd"):
        codec = CODECS_BY_NAME[name]
        packed = compress(codec, b"tidemark" * 1_000, level)
        assert decompress(codec, packed, bytes_max=8_000) == b"tidemark" * 1_000


def test_snappy_has_javas_framing() -> None:
    packed = compress(SNAPPY, bytes(40_000))
    assert packed[:16] == b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01"
    (first,) = struct.unpack_from(">i", packed, 16)
    assert cramjam.snappy.decompress_raw_len(packed[20 : 20 + first]) == 32 * 1024


def test_snappy_without_framing_is_read() -> None:
    raw = bytes(cramjam.snappy.compress_raw(b"tidemark"))
    assert decompress(SNAPPY, raw, bytes_max=8) == b"tidemark"


@pytest.mark.parametrize("block", [b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\x00\x00"])
def test_snappy_block_that_does_not_fit_is_refused(block: bytes) -> None:
    with pytest.raises(CompressionError):
        decompress(SNAPPY, compress(SNAPPY, b"") + block, bytes_max=100)


def test_members_and_frames_in_a_row_are_read() -> None:
    for codec in (GZIP, LZ4, ZSTD):
        packed = compress(codec, b"tide") + compress(codec, b"mark")
        assert decompress(codec, packed, bytes_max=8) == b"tidemark"
        with pytest.raises(CompressionError):
            decompress(codec, packed, bytes_max=7)


def test_lz4_blocks_are_independent() -> None:
    """Java's reader takes no other."""
    info = lz4.frame.get_frame_info(compress(LZ4, bytes(200_000)))
    assert not info["block_linked"]
    assert info["block_size"] == 64 * 1024


def test_zstd_stream_of_unstated_length_is_read_within_the_bound() -> None:
    stream = zstandard.ZstdCompressor().compressobj()
    packed = stream.compress(bytes(5_000_000)) + stream.flush()
    assert zstandard.frame_content_size(packed) == -1
    assert decompress(ZSTD, packed, bytes_max=5_000_000) == bytes(5_000_000)
    with pytest.raises(CompressionError, match="more than"):
        decompress(ZSTD, packed, bytes_max=4_999_999)


def test_a_zstd_stream_of_unstated_length_that_lacks_its_end_is_refused() -> None:
    packed = zstandard.ZstdCompressor(write_checksum=True, write_content_size=False).compress(b"ti")
    for end in range(len(packed)):
        with pytest.raises(CompressionError):
            decompress(ZSTD, packed[: end or 1], bytes_max=100)
    assert decompress(ZSTD, packed * 2, bytes_max=100) == b"titi"


@pytest.mark.parametrize("stated", [0, 4, 6])
def test_a_zstd_frame_of_another_length_than_it_states_is_refused(stated: int) -> None:
    packed = bytearray(compress(ZSTD, b"tide\n"))
    packed[packed.index(5)] = stated
    with pytest.raises(CompressionError):
        decompress(ZSTD, packed, bytes_max=100)


def test_gzip_is_plain_gzip() -> None:
    assert zlib.decompress(compress(GZIP, b"tidemark"), 31) == b"tidemark"
