"""Open and aborted transactions of one partition, as its log tells them (KIP-98).

    offsets       10 a   11 b   12 a   13 COMMIT a   14 b   15 ABORT b
    first unstable  10 ............... 11 .................. none

A transaction is open from its first record to its marker. One whose marker is not yet replicated
counts as open: another leader may end it otherwise.
"""

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple


class AbortedTxn(NamedTuple):
    """One aborted transaction of one producer: its records, first to last offset inclusive, where
    the last one is the marker's. ``last_stable`` as the marker left it.
    """

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable: int


class OpenTxns:
    """The transactions of one partition that readers of committed records must wait for."""

    __slots__ = ("_ended", "_first_offsets")

    def __init__(self) -> None:
        self._first_offsets: dict[int, int] = {}
        """By producer id, in the order of the offsets."""
        self._ended: deque[tuple[int, int]] = deque()
        """(first offset, marker's offset) of those that may not be replicated yet, by marker."""

    def __bool__(self) -> bool:
        return bool(self._first_offsets or self._ended)

    def __len__(self) -> int:
        return len(self._first_offsets)

    def first_of(self, producer_id: int) -> int | None:
        """Where this producer's open transaction began; None without one."""
        return self._first_offsets.get(producer_id)

    def begin(self, producer_id: int, first_offset: int) -> None:
        """The first record of a transaction is in the log."""
        assert producer_id not in self._first_offsets, (producer_id, first_offset)
        self._first_offsets[producer_id] = first_offset

    def end(self, producer_id: int, marker_offset: int) -> int | None:
        """Its marker is in the log. Where it began; None when it had written nothing here."""
        first = self._first_offsets.pop(producer_id, None)
        if first is not None:
            self._ended.append((first, marker_offset))
        return first

    def first_open(self) -> int | None:
        """Of the oldest transaction without a marker."""
        return next(iter(self._first_offsets.values()), None)

    def last_stable(self, high_watermark: int) -> int:
        """The first offset that may yet turn out committed or aborted; the high watermark when all
        below it is decided (KIP-98).
        """
        stable = self.first_open()
        stable = high_watermark if stable is None else min(stable, high_watermark)
        ended = self._ended
        while ended and ended[0][1] < high_watermark:
            ended.popleft()
        return min(stable, min((first for first, _ in ended), default=stable))

    def ended(self) -> tuple[tuple[int, int], ...]:
        """(first offset, marker's offset) of those that may not be replicated: for a snapshot."""
        return tuple(self._ended)

    def restore(
        self, first_offsets: Iterable[tuple[int, int]], ended: Iterable[tuple[int, int]]
    ) -> None:
        """Replace everything: (producer id, first offset) of the open ones, and ``ended``."""
        self._first_offsets = dict(sorted(first_offsets, key=lambda one: one[1]))
        self._ended = deque(ended)
