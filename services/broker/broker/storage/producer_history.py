"""ProducerHistory: producers and transactions of one log, as its batches have made them.

The table is in memory, its snapshots are files, and aborted transactions are indexed with the
segment that holds their marker.
"""

import contextlib
from collections.abc import Iterator

from tidemark.storage.disk import DiskFullError

from broker.core.producers import NO_OWNER, ProducerState, ProducerTable
from broker.storage.directory import LogDirectory
from broker.storage.index_repairs import IndexMissingError
from broker.storage.log_health import LogHealth
from broker.storage.producer_replay import Piece, ProducerReplay
from broker.storage.recovery import Recovered, replay_producers
from broker.storage.segment import LOG, Segment
from broker.storage.segment_map import LogRead, SegmentMap
from broker.storage.txn_index import AbortedTxn


class ProducerHistory:
    """Invariant: ``table`` is what the batches below the log's end make it."""

    __slots__ = ("_health", "_replayed", "_segments", "_shared", "_snapshots", "table")

    def __init__(
        self, shared: LogDirectory, segments: SegmentMap, health: LogHealth, recovered: Recovered
    ) -> None:
        self._shared = shared
        self._segments = segments
        self._health = health
        self._snapshots = recovered.snapshots
        self._replayed: ProducerReplay | None = None
        self.table = recovered.producers

    def moved_to(self, directory: str) -> None:
        """Note that the directory has another name."""
        self._snapshots.moved_to(directory)

    def index_aborted(self) -> None:
        """Index the transactions that markers have aborted since the last call. Raises
        DiskError.
        """
        self._segments.index_aborted(self.table.newly_aborted)

    def snapshot(self, log_end: int, recovery_point: int) -> None:
        """Keep the table in a file. ``recovery_point``: that of a start after a crash. Raises
        DiskError.
        """
        recoverable = max(recovery_point, self._segments.segments[0].base_offset)
        self._snapshots.write(self.table.state(), log_end, recoverable=recoverable)

    def outlive(self, base_offset: int, recovery_point: int) -> None:
        """Keep the producers of the segments before ``base_offset``, which are about to be removed,
        in a file that a start after a crash trusts. A full disk does not stop the removal, which
        makes room. Raises DiskError.
        """
        recoverable = max(recovery_point, base_offset)
        if not self._snapshots.has_within(base_offset, recoverable):
            state = self.table.state_below(base_offset)
            with contextlib.suppress(DiskFullError):
                self._snapshots.write(state, base_offset, recoverable=recoverable)

    def begin_with(self, state: ProducerState, offset: int) -> None:
        """Begin an empty log at ``offset`` with the producers of another one. Raises DiskError."""
        self._snapshots.remove_all()
        self.table.restore(state)
        self._snapshots.write(state, offset, recoverable=offset)

    @contextlib.contextmanager
    def emptied(self, offset: int) -> Iterator[None]:
        """Drop the table and its snapshots while the log loses all its records, to begin again at
        ``offset``: it may leave out batches that ended transactions or moved sequences on. Only the
        owner epoch stays, which never falls. Raises DiskError.
        """
        state = ProducerState((), self.table.owner_epoch)
        self._snapshots.remove_all()  # first: a start must not find them beside the new log
        yield
        self.table.restore(state)
        if state.owner_epoch != NO_OWNER:
            self.snapshot(offset, offset)

    def begin_replay(self, end: int, log_end: int) -> ProducerReplay:
        """Return the walk that a cut of the log at ``end`` needs, to be run before it in a thread.
        Raises DiskError, LogDamagedError.
        """
        table = ProducerTable()
        found = self._snapshots.load_latest(table, end)
        segments = self._segments.segments
        start = segments[0].base_offset if found is None else found
        pieces = []
        with self._health.guarded(start):
            for segment in segments[self._segments.index_of(start) :]:
                if segment.base_offset < end and segment.size_bytes:
                    pieces.append(self._piece(segment, start, end))
        return ProducerReplay(pieces, table, (start, end), log_end, self._shared.now_ms)

    def _piece(self, segment: Segment, start: int, end: int) -> Piece:
        """Return the part of a segment to walk: all of it while its index is made again."""
        try:
            file = self._shared.warm(segment)
        except IndexMissingError:
            return Piece(self._shared.disk.open(segment.stem + LOG), 0, segment.size_bytes)
        return Piece(file, segment.locate(start), segment.locate(end))

    @contextlib.contextmanager
    def replayed(self, replay: ProducerReplay | None, log_end: int) -> Iterator[None]:
        """Let a cut of the log, which ends at ``log_end``, use a walk that was made for it."""
        if replay is not None and replay.is_done and replay.log_end == log_end:
            self._replayed = replay
        try:
            yield
        finally:
            self._replayed = None

    def cut_to(self, end: int) -> None:
        """Make the table again from the latest snapshot and the batches behind it, now that the log
        ends at ``end``. Without a snapshot all batches on disk count, as at a start: the record of
        a shard's owner may be below the log start. Raises DiskError.
        """
        self._snapshots.cut_to(end)
        if self._replayed is not None:
            self._take(self._replayed.table)
            return
        start = self._snapshots.load_latest(self.table, end)
        span = (self._segments.segments[0].base_offset if start is None else start, end)
        with self._health.changing(begun=True):
            replay_producers(
                self._shared.disk, self._segments.segments, span, self.table, self._shared.now_ms
            )
            with self._health.unless_full():
                self.index_aborted()
        self._segments.note_warm()

    def _take(self, made: ProducerTable) -> None:
        """Take over what a walk has made; the partition refers to the table."""
        self.table.restore(made.state())
        self.table.newly_aborted += made.newly_aborted
        with self._health.changing(begun=True), self._health.unless_full():
            self.index_aborted()

    def aborted_in(self, start: int, read: LogRead, end: int) -> list[AbortedTxn]:
        """Return aborted transactions with a record in ``read``, which began at ``start`` and is
        below ``end``. Some with records only behind it may be among them.
        """
        return self.aborted_between(start, self._segments.offset_bound(read, end))

    def aborted_between(self, start: int, end: int) -> list[AbortedTxn]:
        """Return aborted transactions with a record in [start, end), in the order of markers."""
        with self._health.guarded(start):
            return self._segments.aborted_between(start, end)
