"""How many bytes become readable when the high watermark moves: what long polls count by."""

from collections import deque
from typing import Final

ENTRIES_MAX: Final = 1_024
"""Beyond it the latest entries are taken together: while the watermark stands still, acks=1 writes
may go on for ever.
"""
UNKNOWN_BYTES: Final = 2**31
"""Of batches from before this leadership: more than any fetch waits for, so that it looks."""


class UnreadBytes:
    """(end, bytes) of the batches that the high watermark has not passed, oldest first."""

    __slots__ = ("_entries",)

    def __init__(self) -> None:
        self._entries: deque[tuple[int, int]] = deque()

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, end: int, size_bytes: int) -> None:
        """A batch was appended."""
        entries = self._entries
        if len(entries) >= ENTRIES_MAX:
            size_bytes += entries.pop()[1]
        entries.append((end, size_bytes))

    def passed(self, high_watermark: int) -> int:
        """The watermark moved: the bytes that it passed, at least 1 (of batches whose size is not
        known any more).
        """
        entries, gained_bytes = self._entries, 0
        while entries and entries[0][0] <= high_watermark:
            gained_bytes += entries.popleft()[1]
        return max(gained_bytes, 1)

    def clear(self) -> None:
        """Another leader's batches are not counted."""
        self._entries.clear()
