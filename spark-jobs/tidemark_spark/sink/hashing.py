"""Kafka's partition of a key, for a whole Arrow column at once.

``tidemark.codec.murmur2`` computes the same for one key; tests compare the two.
"""

from typing import Any, Final

import numpy as np
import pyarrow as pa

_SEED: Final = 0x9747B28C
_MULTIPLIER: Final = np.uint32(0x5BD1E995)
_SHIFT: Final = np.uint32(24)
_POSITIVE: Final = np.uint32(0x7FFFFFFF)

Array = Any
"""A NumPy array: NumPy's types are not required for type checks of this package."""


def partitions_of_keys(keys: pa.Array, count: int) -> Array:
    """Return the partition (int64) of each key; the result for null keys is not meaningful.

    ``keys`` is a binary or string array with 32-bit offsets.
    """
    assert count > 0, count
    return ((murmur2(keys) & _POSITIVE) % np.uint32(count)).astype(np.int64)


def murmur2(keys: pa.Array) -> Array:
    """Return Kafka's hash of each key as uint32, with Java's bits; null hashes as an empty key."""
    starts, lengths, data = binary_parts(keys)
    hashes = np.uint32(_SEED) ^ lengths.astype(np.uint32)
    # Longest keys first: the rows with words left are a prefix, which shrinks with each turn.
    order = stable_order(lengths)[::-1]
    words = (lengths >> 2)[order]
    starts, sorted_hashes = starts[order], hashes[order]
    for turn in range(int(words[0]) if len(words) else 0):
        live = int(np.searchsorted(-words, -turn, side="left"))
        at = starts[:live] + 4 * turn
        word = _little_endian(data, at, 4)
        mixed = word * _MULTIPLIER
        mixed = (mixed ^ (mixed >> _SHIFT)) * _MULTIPLIER
        sorted_hashes[:live] = (sorted_hashes[:live] * _MULTIPLIER) ^ mixed
    _mix_tails(sorted_hashes, starts, lengths[order], data)
    sorted_hashes ^= sorted_hashes >> np.uint32(13)
    sorted_hashes *= _MULTIPLIER
    sorted_hashes ^= sorted_hashes >> np.uint32(15)
    hashes[order] = sorted_hashes
    return hashes


def _mix_tails(hashes: Array, starts: Array, lengths: Array, data: Array) -> None:
    """Mix in the one to three bytes after the last whole word."""
    for size in (1, 2, 3):
        rows = np.flatnonzero((lengths & 3) == size)
        at = starts[rows] + (lengths[rows] & ~3)
        hashes[rows] = (hashes[rows] ^ _little_endian(data, at, size)) * _MULTIPLIER


def _little_endian(data: Array, at: Array, size: int) -> Array:
    number = data[at].astype(np.uint32)
    for byte in range(1, size):
        number |= data[at + byte].astype(np.uint32) << np.uint32(8 * byte)
    return number


def stable_order(numbers: Array) -> Array:
    """Return the order that sorts non-negative numbers stably."""
    small = not len(numbers) or int(numbers.max()) < 1 << 16
    # NumPy uses radix sort for two-byte numbers, which is five times as fast.
    return np.argsort(numbers.astype(np.uint16) if small else numbers, kind="stable")


def binary_parts(column: pa.Array) -> tuple[Array, Array, Array]:
    """Return the start and length (int64) of each value, and the buffer, without copying.

    The length of null is 0.
    """
    column = column.cast(pa.binary()) if not pa.types.is_binary(column.type) else column
    _, offset_buffer, data_buffer = column.buffers()
    offsets = np.frombuffer(offset_buffer, np.int32)[
        column.offset : column.offset + len(column) + 1
    ].astype(np.int64)
    data = np.frombuffer(data_buffer, np.uint8) if data_buffer else np.zeros(0, np.uint8)
    lengths = np.diff(offsets)
    if column.null_count:
        lengths[np.asarray(column.is_null())] = 0
    return offsets[:-1], lengths, data
