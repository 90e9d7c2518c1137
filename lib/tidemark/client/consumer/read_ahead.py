"""Records beyond the last stable offset, held back until their transaction's marker. Pure.

    offset      6     7      8      9     10      11
                X     A      B      Y    commit   abort      X, Y: no transaction
                                          of A    of B
    delivered   X     |                                      at once: nothing undecided before it
                      A      -      Y                        once 10 (A) and 11 (B) were read

The next marker of a batch's producer id in the partition decides the outcome, because a producer
has one transaction at a time. Order is preserved: an undecided batch holds back those behind it.
"""

from collections import deque
from typing import NamedTuple

from tidemark.codec.control_record import EndTxnMarker, read_control
from tidemark.codec.record_batch import BatchHeader


class HeldBatch:
    """Batch held back; ``visible`` is None until its transaction's outcome is known."""

    __slots__ = ("header", "view", "visible")

    def __init__(self, view: memoryview, header: BatchHeader, *, visible: bool | None) -> None:
        self.view = view
        self.header = header
        self.visible = visible


class Ready(NamedTuple):
    """Batch that may be delivered."""

    view: memoryview
    header: BatchHeader
    visible: bool


class ReadAhead:
    """Batches of one partition in offset order.

    Invariant: ``size_bytes`` is the sum over held batches; only transactional ones are undecided.
    """

    def __init__(self) -> None:
        self.size_bytes = 0
        self._held: deque[HeldBatch] = deque()
        self._undecided: dict[int, list[HeldBatch]] = {}

    def __bool__(self) -> bool:
        return bool(self._held)

    @property
    def is_ready(self) -> bool:
        """True if ``take`` would return a batch."""
        return bool(self._held) and self._held[0].visible is not None

    @property
    def is_blocked(self) -> bool:
        """True if a batch is held and its outcome unknown."""
        return bool(self._held) and self._held[0].visible is None

    def add(self, view: memoryview, header: BatchHeader) -> None:
        """Add a batch behind those added before. Raises RecordsError for a damaged marker."""
        held = HeldBatch(view, header, visible=self._fate(view, header))
        if held.visible is None:
            self._undecided.setdefault(header.producer_id, []).append(held)
        self._held.append(held)
        self.size_bytes += header.size_bytes

    def first(self) -> Ready | None:
        """Return the next batch if its outcome is known, and keep it."""
        held = self._held[0] if self._held else None
        if held is None or held.visible is None:
            return None
        return Ready(held.view, held.header, held.visible)

    def take(self) -> Ready | None:
        """Return the next batch if its outcome is known."""
        ready = self.first()
        if ready is not None:
            self._held.popleft()
            self.size_bytes -= ready.header.size_bytes
        return ready

    def clear(self) -> None:
        """Drop all batches; they are fetched again."""
        self._held.clear()
        self._undecided.clear()
        self.size_bytes = 0

    def check(self) -> None:
        """Assert the invariants."""
        assert self.size_bytes == sum(held.header.size_bytes for held in self._held)
        undecided = [held for held in self._held if held.visible is None]
        assert all(held.header.is_transactional for held in undecided)
        assert len(undecided) == sum(len(each) for each in self._undecided.values())

    def _fate(self, view: memoryview, header: BatchHeader) -> bool | None:
        if header.is_control:
            marker = read_control(view, header)
            if isinstance(marker, EndTxnMarker):
                for held in self._undecided.pop(header.producer_id, ()):
                    held.visible = marker.commits
            return False
        return None if header.is_transactional else True
