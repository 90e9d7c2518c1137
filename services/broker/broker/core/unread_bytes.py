"""Bytes that become readable when the high watermark moves, counted for fetches that wait."""

from collections import deque
from typing import Final

ENTRIES_MAX: Final = 1_024
"""Most entries; the latest are merged beyond it. While the high watermark does not move, acks=1
writes may continue without limit.
"""
UNKNOWN_BYTES: Final = 2**31
"""Size of batches from before this leader epoch: more than any fetch waits for, so it reads."""


class UnreadBytes:
    """(end, bytes) of the batches above the high watermark, oldest first."""

    __slots__ = ("_entries",)

    def __init__(self) -> None:
        self._entries: deque[tuple[int, int]] = deque()

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, end: int, size_bytes: int) -> None:
        """Add an appended batch."""
        entries = self._entries
        if len(entries) >= ENTRIES_MAX:
            size_bytes += entries.pop()[1]
        entries.append((end, size_bytes))

    def passed(self, high_watermark: int) -> int:
        """Move the high watermark; return the bytes that it passed, at least 1, since some batches
        have no known size.
        """
        entries, gained_bytes = self._entries, 0
        while entries and entries[0][0] <= high_watermark:
            gained_bytes += entries.popleft()[1]
        return max(gained_bytes, 1)

    def clear(self) -> None:
        """Remove all entries: another leader's batches are not counted."""
        self._entries.clear()
