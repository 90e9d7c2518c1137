"""Sparse index of one segment: offset to byte position.

File (Kafka's format): entries of 8 bytes, big-endian, in order: int32 offset relative to the
segment's base offset, int32 position of a batch. Kafka puts the last offset of that batch there, we
its first, so that a reader who goes on where a batch begins needs no look at the log. Both obey the
rule by which an entry is used: no batch before the position holds the offset.

An index is a hint. Missing entries cost time, wrong ones are found by looking at the batch.
"""

import sys
from array import array
from bisect import bisect_left, bisect_right
from typing import Final

ENTRY_BYTES: Final = 8
_UINT32: Final = "I"
assert array(_UINT32).itemsize == 4


class OffsetIndex:
    """The entries of one segment in memory. Invariant: offsets and positions strictly increase."""

    __slots__ = ("loaded", "offsets", "positions", "stale_tail", "written_count")

    def __init__(self) -> None:
        self.offsets = array(_UINT32)
        self.positions = array(_UINT32)
        self.written_count = 0
        """So many entries, from the first, are in the file."""
        self.stale_tail = False
        """The file may hold other entries behind those."""
        self.loaded = False
        """Some entries come from the file: look at the batch before trusting one."""

    def __len__(self) -> int:
        return len(self.offsets)

    def add(self, relative_offset: int, position: int) -> None:
        """A batch that lies behind all indexed ones."""
        self.offsets.append(relative_offset)
        self.positions.append(position)

    def floor(self, relative_offset: int) -> tuple[int, int]:
        """(offset, position) of the last entry not above ``relative_offset``, else (0, 0)."""
        above = bisect_right(self.offsets, relative_offset)
        return (self.offsets[above - 1], self.positions[above - 1]) if above else (0, 0)

    def before(self, relative_offset: int) -> int:
        """Offset of the last entry below ``relative_offset``, else 0."""
        at = bisect_left(self.offsets, relative_offset)
        return self.offsets[at - 1] if at else 0

    def boundary(self, position: int) -> tuple[int, int]:
        """(offset, position) of the last entry not beyond ``position``, else (0, 0)."""
        above = bisect_right(self.positions, position)
        return (self.offsets[above - 1], self.positions[above - 1]) if above else (0, 0)

    @property
    def last_position(self) -> int:
        """0 when there is no entry: the first batch needs none."""
        return self.positions[-1] if self.positions else 0

    def truncate_to_position(self, position: int) -> None:
        """Forget entries at or beyond ``position``; the file is cut when it is next written."""
        keep = bisect_left(self.positions, position)
        self._keep(keep)

    def truncate_to_offset(self, relative_offset: int) -> None:
        """Forget entries at or beyond ``relative_offset``."""
        keep = bisect_left(self.offsets, relative_offset)
        self._keep(keep)

    def _keep(self, count: int) -> None:
        del self.offsets[count:], self.positions[count:]
        if count < self.written_count:
            self.written_count, self.stale_tail = count, True

    def encode_unwritten(self) -> bytes:
        """The entries that the file lacks, as it wants them."""
        count = len(self.offsets) - self.written_count
        pairs = array(_UINT32, bytes(count * ENTRY_BYTES))
        pairs[0::2] = self.offsets[self.written_count :]
        pairs[1::2] = self.positions[self.written_count :]
        if sys.byteorder == "little":
            pairs.byteswap()
        return pairs.tobytes()

    @classmethod
    def decode(cls, content: bytes, log_bytes: int) -> "OffsetIndex":
        """From a file's content, for a segment of ``log_bytes``.

        Ends before the first entry that cannot be (out of order, beyond the log): what follows has
        to be found in the log again.
        """
        index = cls()
        pairs = array(_UINT32)
        pairs.frombytes(content[: len(content) // ENTRY_BYTES * ENTRY_BYTES])
        if sys.byteorder == "little":
            pairs.byteswap()
        offsets, positions = pairs[0::2], pairs[1::2]
        keep = min(_increasing(offsets), _increasing(positions))
        while keep and positions[keep - 1] >= log_bytes:
            keep -= 1
        index.offsets, index.positions = offsets[:keep], positions[:keep]
        index.written_count = keep
        index.loaded = keep > 0
        index.stale_tail = keep * ENTRY_BYTES != len(content)
        return index


def _increasing(numbers: "array[int]") -> int:
    """How many numbers, from the first, strictly increase."""
    if all(map(int.__lt__, numbers, numbers[1:])):
        return len(numbers)
    return next(i for i in range(1, len(numbers)) if numbers[i - 1] >= numbers[i])
