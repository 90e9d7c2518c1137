"""Sparse index of one segment: offset to byte position.

File (Kafka's format): entries of 8 bytes, big-endian, in order: int32 offset relative to the
segment's base offset, int32 position of a batch. Kafka stores the last offset of that batch, this
release its first, so that a reader that continues at a batch boundary need not read the log. In
both cases no batch before the position contains the offset, which is all that a lookup needs.

An index is a hint. Missing entries cost time; wrong ones are detected by reading the batch.
"""

import operator
import sys
from array import array
from bisect import bisect_left, bisect_right
from typing import Final

ENTRY_BYTES: Final = 8
_UINT32: Final = "I"
assert array(_UINT32).itemsize == 4


class OffsetIndex:
    """The entries of one segment in memory. Invariant: offsets and positions strictly increase."""

    __slots__ = ("last_position", "loaded", "offsets", "positions", "stale_tail", "written_count")

    def __init__(self) -> None:
        self.offsets = array(_UINT32)
        self.positions = array(_UINT32)
        self.last_position = 0
        """Position of the last entry; 0 without entries, since the first batch needs none."""
        self.written_count = 0
        """Number of entries, from the first, that are in the file."""
        self.stale_tail = False
        """True if the file may have other entries after those."""
        self.loaded = False
        """True if some entries come from the file: check the batch before using one."""

    def __len__(self) -> int:
        return len(self.offsets)

    def add(self, relative_offset: int, position: int) -> None:
        """Add a batch after all indexed ones."""
        self.offsets.append(relative_offset)
        self.positions.append(position)
        self.last_position = position

    def floor(self, relative_offset: int) -> tuple[int, int]:
        """Return (offset, position) of the last entry not above ``relative_offset``, or (0, 0)."""
        above = bisect_right(self.offsets, relative_offset)
        return (self.offsets[above - 1], self.positions[above - 1]) if above else (0, 0)

    def before(self, relative_offset: int) -> int:
        """Return the offset of the last entry below ``relative_offset``, else 0."""
        at = bisect_left(self.offsets, relative_offset)
        return self.offsets[at - 1] if at else 0

    def boundary(self, position: int) -> tuple[int, int]:
        """Return (offset, position) of the last entry not beyond ``position``, else (0, 0)."""
        above = bisect_right(self.positions, position)
        return (self.offsets[above - 1], self.positions[above - 1]) if above else (0, 0)

    def truncate_to_position(self, position: int) -> None:
        """Remove entries at or beyond ``position``; the file is cut when it is next written."""
        keep = bisect_left(self.positions, position)
        self._keep(keep)

    def truncate_to_offset(self, relative_offset: int) -> None:
        """Remove entries at or beyond ``relative_offset``."""
        keep = bisect_left(self.offsets, relative_offset)
        self._keep(keep)

    def _keep(self, count: int) -> None:
        del self.offsets[count:], self.positions[count:]
        self.last_position = self.positions[-1] if count else 0
        if count < self.written_count:
            self.written_count, self.stale_tail = count, True

    def encode_unwritten(self) -> bytes:
        """Return the entries that the file lacks, in its format."""
        count = len(self.offsets) - self.written_count
        pairs = array(_UINT32, bytes(count * ENTRY_BYTES))
        pairs[0::2] = self.offsets[self.written_count :]
        pairs[1::2] = self.positions[self.written_count :]
        if sys.byteorder == "little":
            pairs.byteswap()
        return pairs.tobytes()

    @classmethod
    def decode(cls, content: bytes, log_bytes: int) -> "OffsetIndex":
        """Read an index from a file's content, for a segment of ``log_bytes``.

        Stops before the first impossible entry (out of order, or beyond the log); the rest must be
        found in the log again.
        """
        index = cls()
        pairs = array(_UINT32)
        pairs.frombytes(content[: len(content) // ENTRY_BYTES * ENTRY_BYTES])
        if sys.byteorder == "little":
            pairs.byteswap()
        offsets, positions = pairs[0::2], pairs[1::2]
        keep = min(increasing(offsets), increasing(positions))
        while keep and positions[keep - 1] >= log_bytes:
            keep -= 1
        index.offsets, index.positions = offsets[:keep], positions[:keep]
        index.last_position = index.positions[-1] if keep else 0
        index.written_count = keep
        index.loaded = keep > 0
        index.stale_tail = keep * ENTRY_BYTES != len(content)
        return index


def increasing(numbers: "array[int]") -> int:
    """Return how many numbers, from the first, strictly increase."""
    listed = numbers.tolist()  # an array would make a number anew for each comparison
    if all(map(operator.lt, listed, listed[1:])):
        return len(listed)
    return next(i for i in range(1, len(numbers)) if numbers[i - 1] >= numbers[i])
