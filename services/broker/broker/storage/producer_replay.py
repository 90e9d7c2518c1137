"""ProducerReplay: the producers of a log as of an earlier end, from a snapshot and the batches
behind it, for a log that is about to be cut.

A snapshot is written when a segment is rolled, so that a cut of the active segment walks most of
it: seconds for small batches. The walk is made before the cut, in a thread.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from tidemark.storage.batch_walk import FrameError
from tidemark.storage.disk import DiskError, File

from broker.core.producers import ProducerTable
from broker.storage.recovery import control_at
from broker.storage.segment import walk_headers

WALKED_AT_ONCE_BYTES: Final = 256 * 1024
"""Bytes of batches that a cut walks on the event loop: some milliseconds."""


class Piece(NamedTuple):
    """Batches of one segment, from position ``start`` to ``end``."""

    file: File
    start: int
    end: int


class ProducerReplay:
    """One walk. It holds its files open, and ``run`` touches nothing else."""

    __slots__ = ("_now_ms", "_pieces", "_start", "end", "is_done", "log_end", "table")

    def __init__(
        self,
        pieces: Sequence[Piece],
        table: ProducerTable,
        span: tuple[int, int],
        log_end: int,
        now_ms: int,
    ) -> None:
        """``span``: the offset of the snapshot, or of the first segment, and the new end."""
        self._pieces = pieces
        self._now_ms = now_ms
        self._start, self.end = span
        self.table = table
        """Producers: of the snapshot, then as of ``end``."""
        self.log_end = log_end
        """End of the log when the walk began. Another one shows that it is void."""
        self.is_done = False

    @property
    def is_long(self) -> bool:
        """True if the event loop must not wait for the walk."""
        return sum(piece.end - piece.start for piece in self._pieces) > WALKED_AT_ONCE_BYTES

    def run(self) -> None:
        """Walk. What fails is met again by the cut, on the loop, which handles it."""
        try:
            for file, start, end in self._pieces:
                for position, header in walk_headers(file, start, end):
                    if self._start <= header.base_offset < self.end:
                        control = control_at(file, position, header)
                        self.table.replay(header, self._now_ms, control)
        except (DiskError, FrameError):
            return
        self.is_done = True
