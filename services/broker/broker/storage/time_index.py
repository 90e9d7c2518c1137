"""Sparse index of one segment: largest timestamp so far, with the batch that has it.

File (Kafka's format): entries of 12 bytes, big-endian, in order: int64 timestamp in ms, int32
offset relative to the segment's base offset. An entry (t, o) means that t is the largest timestamp
of all batches up to the one that contains o. Timestamps and offsets strictly increase.
"""

import sys
from array import array
from bisect import bisect_left
from typing import Final

from broker.storage.offset_index import increasing

ENTRY_BYTES: Final = 12
_TIMESTAMP_WORDS: Final = 3
_UINT32: Final = "I"
_INT64: Final = "q"


class TimeIndex:
    """The entries of one segment in memory."""

    __slots__ = ("offsets", "stale_tail", "timestamps", "written_count")

    def __init__(self) -> None:
        self.timestamps = array(_INT64)
        self.offsets = array(_UINT32)
        self.written_count = 0
        """Number of entries, from the first, that are in the file."""
        self.stale_tail = False
        """True if the file may have other entries after those."""

    def __len__(self) -> int:
        return len(self.timestamps)

    def maybe_add(self, timestamp: int, relative_offset: int) -> None:
        """Add an entry, unless the last one has an equal or larger timestamp or offset."""
        if not self.timestamps or (
            timestamp > self.timestamps[-1] and relative_offset > self.offsets[-1]
        ):
            self.timestamps.append(timestamp)
            self.offsets.append(relative_offset)

    def bracket(self, timestamp: int) -> tuple[int, int | None]:
        """Return two relative offsets between which the first batch with a timestamp >=
        ``timestamp`` is.

        The first offset may be too low, never too high; the second is None beyond the last entry.
        """
        at = bisect_left(self.timestamps, timestamp)
        low = self.offsets[at - 1] if at else 0
        return low, self.offsets[at] if at < len(self.offsets) else None

    @property
    def last(self) -> tuple[int, int]:
        """(timestamp, relative offset) of the last entry; (-1, 0) if there is none."""
        return (self.timestamps[-1], self.offsets[-1]) if self.timestamps else (-1, 0)

    def truncate_to_offset(self, relative_offset: int) -> None:
        """Remove entries at or beyond ``relative_offset``."""
        keep = bisect_left(self.offsets, relative_offset)
        del self.timestamps[keep:], self.offsets[keep:]
        if keep < self.written_count:
            self.written_count, self.stale_tail = keep, True

    def encode_unwritten(self) -> bytes:
        """Return the entries that the file lacks, in its format."""
        start = self.written_count
        timestamps = self.timestamps[start:]
        offsets = self.offsets[start:]
        words = array(_UINT32, bytes(len(offsets) * ENTRY_BYTES))
        if sys.byteorder == "little":
            timestamps.byteswap()
            offsets.byteswap()
        halves = array(_UINT32, timestamps.tobytes())
        words[0::_TIMESTAMP_WORDS] = halves[0::2]
        words[1::_TIMESTAMP_WORDS] = halves[1::2]
        words[2::_TIMESTAMP_WORDS] = offsets
        return words.tobytes()

    @classmethod
    def decode(cls, content: bytes, offsets_end: int) -> "TimeIndex":
        """Read an index from a file's content; stops before the first impossible entry.

        ``offsets_end``: the segment has only relative offsets below it.
        """
        index = cls()
        words = array(_UINT32)
        words.frombytes(content[: len(content) // ENTRY_BYTES * ENTRY_BYTES])
        halves = array(_UINT32, bytes(len(words) // _TIMESTAMP_WORDS * 8))
        halves[0::2] = words[0::_TIMESTAMP_WORDS]
        halves[1::2] = words[1::_TIMESTAMP_WORDS]
        timestamps = array(_INT64, halves.tobytes())
        offsets = words[2::_TIMESTAMP_WORDS]
        if sys.byteorder == "little":
            timestamps.byteswap()
            offsets.byteswap()
        keep = min(increasing(timestamps), increasing(offsets))
        keep = bisect_left(offsets, offsets_end, 0, keep)
        if keep and timestamps[0] < 0:
            keep = 0
        index.timestamps, index.offsets = timestamps[:keep], offsets[:keep]
        index.written_count = keep
        index.stale_tail = len(index) * ENTRY_BYTES != len(content)
        return index
