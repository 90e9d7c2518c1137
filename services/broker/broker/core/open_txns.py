"""Open and aborted transactions of one partition, derived from its log (KIP-98).

    offsets       10 a   11 b   12 a   13 COMMIT a   14 b   15 ABORT b
    first unstable  10 ............... 11 .................. none

A transaction is open from its first record to its marker. One whose marker is not yet replicated
counts as open: another leader may end it otherwise.
"""

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple


class AbortedTxn(NamedTuple):
    """One aborted transaction of one producer: first and last offset, inclusive; the last one is
    the marker's. ``last_stable`` is the last stable offset after the marker.
    """

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable: int


class OpenTxns:
    """Transactions of one partition that limit the last stable offset."""

    __slots__ = ("_ended", "_first_offsets")

    def __init__(self) -> None:
        self._first_offsets: dict[int, int] = {}
        """First offsets by producer id, in offset order."""
        self._ended: deque[tuple[int, int]] = deque()
        """(first offset, marker's offset) of ended transactions that may not be replicated, in
        order.
        """

    def __bool__(self) -> bool:
        return bool(self._first_offsets or self._ended)

    def __len__(self) -> int:
        return len(self._first_offsets)

    def first_of(self, producer_id: int) -> int | None:
        """Return the first offset of the producer's open transaction, or None."""
        return self._first_offsets.get(producer_id)

    def begin(self, producer_id: int, first_offset: int) -> None:
        """Begin a transaction at the offset of its first record."""
        assert producer_id not in self._first_offsets, (producer_id, first_offset)
        self._first_offsets[producer_id] = first_offset

    def end(self, producer_id: int, marker_offset: int) -> int | None:
        """End a transaction by its marker; return its first offset, None without records here."""
        first = self._first_offsets.pop(producer_id, None)
        if first is not None:
            self._ended.append((first, marker_offset))
        return first

    def first_open(self) -> int | None:
        """Return the first offset of the oldest transaction without a marker."""
        return next(iter(self._first_offsets.values()), None)

    def last_stable(self, high_watermark: int) -> int:
        """Return the last stable offset: the first offset that is neither committed nor aborted
        yet, or the high watermark if all below it are decided (KIP-98).
        """
        stable = self.first_open()
        stable = high_watermark if stable is None else min(stable, high_watermark)
        self.replicated(high_watermark)
        return min(stable, min((first for first, _ in self._ended), default=stable))

    def replicated(self, high_watermark: int) -> None:
        """Forget the ended transactions whose marker is below the high watermark."""
        ended = self._ended
        while ended and ended[0][1] < high_watermark:
            ended.popleft()

    def ended(self) -> tuple[tuple[int, int], ...]:
        """Return (first offset, marker's offset) of ended transactions that may not be
        replicated
        """
        return tuple(self._ended)

    def restore(
        self, first_offsets: Iterable[tuple[int, int]], ended: Iterable[tuple[int, int]]
    ) -> None:
        """Replace all state: (producer id, first offset) of open transactions, and ``ended``."""
        self._first_offsets = dict(sorted(first_offsets, key=lambda txn: txn[1]))
        self._ended = deque(ended)
