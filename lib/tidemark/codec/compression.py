"""The four codecs of a record batch: gzip, snappy (in Java's framing), lz4 frames and zstd.

Every decompression has a bound, set by the caller, against hostile data that expands enormously.
The libraries release the GIL, so both directions may run in a thread.
"""

import functools
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Final

import cramjam
import lz4.frame
import zstandard

Buffer = bytes | bytearray | memoryview

NONE: Final = 0
GZIP: Final = 1
SNAPPY: Final = 2
LZ4: Final = 3
ZSTD: Final = 4
CODEC_NAMES: Final[Mapping[int, str]] = {
    NONE: "none",
    GZIP: "gzip",
    SNAPPY: "snappy",
    LZ4: "lz4",
    ZSTD: "zstd",
}
CODECS_BY_NAME: Final[Mapping[str, int]] = {name: codec for codec, name in CODEC_NAMES.items()}

_GZIP_WINDOW: Final = 16 + zlib.MAX_WBITS
ZSTD_LEVEL: Final = 3
_ZSTD_CHUNK_BYTES_MIN: Final = 64 * 1024
_ZSTD_BLOCK_HEADER_BYTES: Final = 3
_ZSTD_BLOCK_OF_ONE_BYTE: Final = 1
"""Type of the block of one byte, repeated as often as the block's size."""
_ZSTD_CHECKSUM_BYTES: Final = 4
# xerial's SnappyOutputStream, which Kafka uses: this magic, version 1, compatible with 1, then
# blocks of (int32 length, raw snappy), each of at most 32 KB before compression.
XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
XERIAL_HEADER: Final = XERIAL_MAGIC + struct.pack(">ii", 1, 1)
XERIAL_BLOCK_BYTES: Final = 32 * 1024
XERIAL_LENGTH: Final = struct.Struct(">i")


class CompressionError(ValueError):
    """The data is invalid for its codec or exceeds the bound, or the codec is unknown."""


class DecompressedTooLargeError(CompressionError):
    """The data decompresses to more than the bound."""


class _TooLongError(Exception):
    """The output of a part of the data exceeds its bound."""


def compress(codec: int, data: Buffer, level: int | None = None) -> bytes:
    """Compress the records of one batch. ``level`` is on the codec's own scale, None for its
    default; snappy has no levels.
    """
    if codec == NONE:
        return bytes(data)
    compressor = _COMPRESSORS.get(codec)
    if compressor is None:
        raise CompressionError(f"unknown compression codec {codec}")
    return compressor(data, level)


def decompress(codec: int, data: Buffer, *, bytes_max: int) -> bytes:
    """Decompress the records of one batch, from any client. Raises CompressionError, also for
    output beyond ``bytes_max``.
    """
    decompressor = _DECOMPRESSORS.get(codec)
    if decompressor is None:
        raise CompressionError(f"unknown compression codec {codec}")
    try:
        return decompressor(data, bytes_max)
    except _TooLongError:
        words = f"decompresses to more than {bytes_max} bytes"
        raise DecompressedTooLargeError(words) from None
    except (zlib.error, zstandard.ZstdError, cramjam.DecompressionError, RuntimeError) as problem:
        # python-lz4 has no error class of its own and raises RuntimeError.
        raise CompressionError(f"{CODEC_NAMES[codec]}: {problem}") from None


def _within(data: bytes, bytes_max: int) -> bytes:
    if len(data) > bytes_max:
        raise _TooLongError
    return data


def _uncompressed(data: Buffer, bytes_max: int) -> bytes:
    return _within(bytes(data), bytes_max)


def _gzip(data: Buffer, level: int | None) -> bytes:
    compressor = zlib.compressobj(-1 if level is None else level, zlib.DEFLATED, _GZIP_WINDOW)
    return compressor.compress(data) + compressor.flush()


def _ungzip(data: Buffer, bytes_max: int) -> bytes:
    """Decompress all members in turn, as Java's GZIPInputStream does."""
    pieces: list[bytes] = []
    left, rest = bytes_max, bytes(data)
    while rest:
        member = zlib.decompressobj(_GZIP_WINDOW)
        pieces.append(_within(member.decompress(rest, left + 1), left))
        if not member.eof:
            raise CompressionError("gzip: truncated")
        left -= len(pieces[-1])
        rest = member.unused_data
    return b"".join(pieces)


def _snappy(data: Buffer, level: int | None) -> bytes:
    del level
    view = memoryview(data)
    pieces = [XERIAL_HEADER]
    for start in range(0, len(view), XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + XERIAL_BLOCK_BYTES]))
        pieces += (XERIAL_LENGTH.pack(len(block)), block)
    return b"".join(pieces)


def _unsnappy(data: Buffer, bytes_max: int) -> bytes:
    """Decompress Java's framing, or the one raw block of clients without that framing."""
    view = memoryview(data)
    if bytes(view[: len(XERIAL_MAGIC)]) != XERIAL_MAGIC:
        return _unsnappy_block(view, bytes_max)
    pieces: list[bytes] = []
    position, left = len(XERIAL_HEADER), bytes_max
    if len(view) < position:
        raise CompressionError("snappy: truncated header")
    while position < len(view):
        if position + XERIAL_LENGTH.size > len(view):
            raise CompressionError("snappy: truncated block length")
        (length,) = XERIAL_LENGTH.unpack_from(view, position)
        position += XERIAL_LENGTH.size
        if length < 0 or position + length > len(view):
            raise CompressionError(f"snappy: block of {length} bytes does not fit")
        pieces.append(_unsnappy_block(view[position : position + length], left))
        position += length
        left -= len(pieces[-1])
    return b"".join(pieces)


def _unsnappy_block(block: memoryview, bytes_max: int) -> bytes:
    # A block starts with its decompressed length, which the library would reserve before it reads
    # further.
    if cramjam.snappy.decompress_raw_len(block) > bytes_max:
        raise _TooLongError
    return bytes(cramjam.snappy.decompress_raw(block))


def _lz4(data: Buffer, level: int | None) -> bytes:
    # Independent blocks of 64 KB are the only kind that Java's reader accepts.
    framed: bytes = lz4.frame.compress(
        data,
        compression_level=0 if level is None else level,
        block_size=lz4.frame.BLOCKSIZE_MAX64KB,
        block_linked=False,
        store_size=False,
    )
    return framed


def _unlz4(data: Buffer, bytes_max: int) -> bytes:
    pieces: list[bytes] = []
    left, rest = bytes_max, bytes(data)
    while rest:
        frame = lz4.frame.LZ4FrameDecompressor()
        pieces.append(_within(frame.decompress(rest, left + 1), left))
        if not frame.eof:
            raise CompressionError("lz4: truncated")
        left -= len(pieces[-1])
        rest = frame.unused_data or b""
    return b"".join(pieces)


@functools.lru_cache(maxsize=32)
def _zstd_compressor(level: int) -> zstandard.ZstdCompressor:
    return zstandard.ZstdCompressor(level=level)


def _zstd(data: Buffer, level: int | None) -> bytes:
    return _zstd_compressor(ZSTD_LEVEL if level is None else level).compress(data)


def _unzstd(data: Buffer, bytes_max: int) -> bytes:
    """Decompress all frames in turn, as Java's ZstdInputStream does."""
    decompressor = zstandard.ZstdDecompressor()
    pieces: list[bytes] = []
    left = bytes_max
    for frame in zstd_frames(memoryview(data)):
        pieces.append(_unzstd_frame(decompressor, frame, left))
        left -= len(pieces[-1])
    return b"".join(pieces)


def _unzstd_frame(
    decompressor: zstandard.ZstdDecompressor, frame: memoryview, bytes_max: int
) -> bytes:
    size_bytes = zstandard.frame_content_size(frame)
    if size_bytes > bytes_max:
        raise _TooLongError
    if size_bytes > 0:
        return decompressor.decompress(frame, allow_extra_data=False)
    # The frame has no length, or 0, for which the library would not read it.
    chunk_bytes = min(bytes_max + 1, max(_ZSTD_CHUNK_BYTES_MIN, 8 * len(frame)))
    pieces: list[bytes] = []
    left = bytes_max
    with decompressor.stream_reader(frame) as reader:
        while piece := reader.read(min(chunk_bytes, left + 1)):
            pieces.append(_within(piece, left))
            left -= len(piece)
    return b"".join(pieces)


def zstd_frames(data: memoryview) -> Iterator[memoryview]:
    """Yield the frames of zstd data. Raises CompressionError or ZstdError for an incomplete frame,
    at which the library's streams end without an error.
    """
    while data:
        end = _zstd_frame_end(data)
        yield data[:end]
        data = data[end:]


def _zstd_frame_end(data: memoryview) -> int:
    """Return the length of the first frame, from the headers of it and its blocks (RFC 8878)."""
    if bytes(data[: len(zstandard.FRAME_HEADER)]) != zstandard.FRAME_HEADER:
        raise CompressionError("zstd: no frame begins here")
    parameters = zstandard.get_frame_parameters(data)
    end = zstandard.frame_header_size(data)
    is_last = False
    while not is_last:
        header = int.from_bytes(data[end : end + _ZSTD_BLOCK_HEADER_BYTES], "little")
        is_last, kind, size = bool(header & 1), header >> 1 & 3, header >> 3
        end += _ZSTD_BLOCK_HEADER_BYTES + (1 if kind == _ZSTD_BLOCK_OF_ONE_BYTE else size)
        if end > len(data):
            raise CompressionError("zstd: truncated")
    if parameters.has_checksum:
        end += _ZSTD_CHECKSUM_BYTES
    if end > len(data):
        raise CompressionError("zstd: truncated")
    return end


_COMPRESSORS: Final[Mapping[int, Callable[[Buffer, int | None], bytes]]] = {
    GZIP: _gzip,
    SNAPPY: _snappy,
    LZ4: _lz4,
    ZSTD: _zstd,
}
_DECOMPRESSORS: Final[Mapping[int, Callable[[Buffer, int], bytes]]] = {
    NONE: _uncompressed,
    GZIP: _ungzip,
    SNAPPY: _unsnappy,
    LZ4: _unlz4,
    ZSTD: _unzstd,
}
