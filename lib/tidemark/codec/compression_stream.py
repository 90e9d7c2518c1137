"""The four codecs piece by piece, with memory for one chunk, however large the output is.

For walks over a batch's records that need each byte once. A chunk has at most CHUNK_BYTES, with two
exceptions: uncompressed data is one chunk, and so is a block of snappy, whose library has no
streaming form. A block beyond the caller's bound is refused unread; the format expands a byte to at
most 22.
"""

import struct
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

import cramjam
import lz4.frame
import zstandard

from tidemark.codec.compression import (
    CODEC_NAMES,
    GZIP,
    LZ4,
    NONE,
    SNAPPY,
    XERIAL_BLOCK_BYTES,
    XERIAL_HEADER,
    XERIAL_LENGTH,
    XERIAL_MAGIC,
    ZSTD,
    ZSTD_LEVEL,
    Buffer,
    CompressionError,
    zstd_frames,
)

CHUNK_BYTES: Final = 256 * 1024
_PIECE_BYTES: Final = 16 * 1024
"""Size of the input of gzip and lz4 at a time: both copy the part that they have not read yet."""
_GZIP_WINDOW: Final = 16 + zlib.MAX_WBITS
_SNAPPY_RATIO_MAX: Final = 22
_SNAPPY_BLOCK_EXTRA_BYTES: Final = 64
"""Output of the longest copy of raw snappy, which takes three bytes."""


def decompress_stream(codec: int, data: Buffer, *, bytes_max: int) -> Iterator[bytes]:
    """Decompress in chunks, none empty. Raises CompressionError once the walk reaches invalid data
    or output beyond ``bytes_max``.
    """
    source = _DECOMPRESSORS.get(codec)
    if source is None:
        raise CompressionError(f"unknown compression codec {codec}")
    left = bytes_max
    try:
        for chunk in source(memoryview(data), bytes_max):
            left -= len(chunk)
            if left < 0:
                raise _too_long(bytes_max)
            if chunk:
                yield chunk
    except (
        zlib.error,
        zstandard.ZstdError,
        cramjam.DecompressionError,
        RuntimeError,
        struct.error,
    ) as problem:
        # python-lz4 has no error class of its own and raises RuntimeError.
        raise CompressionError(f"{CODEC_NAMES[codec]}: {problem}") from None


def _too_long(bytes_max: int) -> CompressionError:
    return CompressionError(f"decompresses to more than {bytes_max} bytes")


def _pieces(view: memoryview) -> Iterator[bytes]:
    for start in range(0, len(view), _PIECE_BYTES):
        yield bytes(view[start : start + _PIECE_BYTES])


def _whole(view: memoryview, bytes_max: int) -> Iterator[bytes]:
    if len(view) > bytes_max:
        raise _too_long(bytes_max)
    yield bytes(view)


def _ungzip(view: memoryview, bytes_max: int) -> Iterator[bytes]:
    del bytes_max
    member, begun = zlib.decompressobj(_GZIP_WINDOW), False
    for piece in _pieces(view):
        rest = piece
        while rest:
            begun = True
            chunk = member.decompress(rest, CHUNK_BYTES)
            yield chunk
            rest = member.unconsumed_tail
            while not rest and not member.eof and len(chunk) == CHUNK_BYTES:
                chunk = member.decompress(b"", CHUNK_BYTES)  # held back by the bound
                yield chunk
            if member.eof:
                rest = member.unused_data
                member, begun = zlib.decompressobj(_GZIP_WINDOW), False
    if begun:
        raise CompressionError("gzip: truncated")


def _unlz4(view: memoryview, bytes_max: int) -> Iterator[bytes]:
    del bytes_max
    frame, begun = lz4.frame.LZ4FrameDecompressor(), False
    for piece in _pieces(view):
        rest = piece
        while rest:
            begun = True
            yield frame.decompress(rest, CHUNK_BYTES)
            while not frame.eof and not frame.needs_input:
                yield frame.decompress(b"", CHUNK_BYTES)
            rest = b""
            if frame.eof:
                rest = frame.unused_data or b""
                frame, begun = lz4.frame.LZ4FrameDecompressor(), False
    if begun:
        raise CompressionError("lz4: truncated")


def _unzstd(view: memoryview, bytes_max: int) -> Iterator[bytes]:
    del bytes_max
    decompressor = zstandard.ZstdDecompressor()
    for frame in zstd_frames(view):
        with decompressor.stream_reader(frame) as reader:
            while chunk := reader.read(CHUNK_BYTES):
                yield chunk


def _unsnappy(view: memoryview, bytes_max: int) -> Iterator[bytes]:
    """Decompress Java's framing, or the one raw block of clients without that framing."""
    if bytes(view[: len(XERIAL_MAGIC)]) != XERIAL_MAGIC:
        yield _unsnappy_block(view, bytes_max)
        return
    position = len(XERIAL_HEADER)
    if len(view) < position:
        raise CompressionError("snappy: truncated header")
    while position < len(view):
        (length,) = XERIAL_LENGTH.unpack_from(view, position)
        position += XERIAL_LENGTH.size
        if length < 0 or position + length > len(view):
            raise CompressionError(f"snappy: block of {length} bytes does not fit")
        yield _unsnappy_block(view[position : position + length], bytes_max)
        position += length


def _unsnappy_block(block: memoryview, bytes_max: int) -> bytes:
    # A block starts with its decompressed length, which the library would reserve before reading.
    stated = cramjam.snappy.decompress_raw_len(block)
    if stated > _SNAPPY_RATIO_MAX * len(block) + _SNAPPY_BLOCK_EXTRA_BYTES:
        raise CompressionError(f"snappy: {len(block)} bytes cannot unfold to {stated}")
    if stated > bytes_max:
        raise _too_long(bytes_max)
    return bytes(cramjam.snappy.decompress_raw(block))


def compress_stream(
    codec: int, chunks: Iterable[bytes], size_bytes: int, level: int | None = None
) -> Iterator[bytes]:
    """Compress ``chunks``, of ``size_bytes`` in all, as ``compress`` does with the whole."""
    compressor = _COMPRESSORS.get(codec)
    if compressor is None:
        raise CompressionError(f"unknown compression codec {codec}")
    yield from compressor(chunks, size_bytes, level)


def _copied(chunks: Iterable[bytes], size_bytes: int, level: int | None) -> Iterator[bytes]:
    del size_bytes, level
    yield from chunks


def _gzip(chunks: Iterable[bytes], size_bytes: int, level: int | None) -> Iterator[bytes]:
    del size_bytes
    compressor = zlib.compressobj(-1 if level is None else level, zlib.DEFLATED, _GZIP_WINDOW)
    for chunk in chunks:
        yield compressor.compress(chunk)
    yield compressor.flush()


def _snappy(chunks: Iterable[bytes], size_bytes: int, level: int | None) -> Iterator[bytes]:
    del size_bytes, level
    yield XERIAL_HEADER
    for chunk in chunks:
        view = memoryview(chunk)
        for start in range(0, len(view), XERIAL_BLOCK_BYTES):
            block = bytes(cramjam.snappy.compress_raw(view[start : start + XERIAL_BLOCK_BYTES]))
            yield XERIAL_LENGTH.pack(len(block))
            yield block


def _lz4(chunks: Iterable[bytes], size_bytes: int, level: int | None) -> Iterator[bytes]:
    del size_bytes
    compressor = lz4.frame.LZ4FrameCompressor(
        compression_level=0 if level is None else level,
        block_size=lz4.frame.BLOCKSIZE_MAX64KB,
        block_linked=False,
    )
    yield compressor.begin()
    for chunk in chunks:
        yield compressor.compress(chunk)
    yield compressor.flush()


def _zstd(chunks: Iterable[bytes], size_bytes: int, level: int | None) -> Iterator[bytes]:
    compressor = zstandard.ZstdCompressor(level=ZSTD_LEVEL if level is None else level)
    stream = compressor.compressobj(size=size_bytes)
    for chunk in chunks:
        yield stream.compress(chunk)
    yield stream.flush()


_DECOMPRESSORS: Final[Mapping[int, Callable[[memoryview, int], Iterator[bytes]]]] = {
    NONE: _whole,
    GZIP: _ungzip,
    SNAPPY: _unsnappy,
    LZ4: _unlz4,
    ZSTD: _unzstd,
}
_COMPRESSORS: Final[Mapping[int, Callable[[Iterable[bytes], int, int | None], Iterator[bytes]]]] = {
    NONE: _copied,
    GZIP: _gzip,
    SNAPPY: _snappy,
    LZ4: _lz4,
    ZSTD: _zstd,
}
