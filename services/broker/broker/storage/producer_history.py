"""ProducerHistory: producers and transactions of one log, as its batches have made them.

The table is in memory, its snapshots are files, and aborted transactions are indexed with the
segment that holds their marker.
"""

import contextlib
from collections.abc import Iterator

from tidemark.storage.disk import DiskFullError

from broker.core.producers import NO_OWNER, ProducerState
from broker.storage.directory import LogDirectory
from broker.storage.log_health import LogHealth
from broker.storage.recovery import Recovered, replay_producers
from broker.storage.segment_map import LogRead, SegmentMap
from broker.storage.txn_index import AbortedTxn


class ProducerHistory:
    """Invariant: ``table`` is what the batches below the log's end make it."""

    __slots__ = ("_health", "_segments", "_shared", "_snapshots", "table")

    def __init__(
        self, shared: LogDirectory, segments: SegmentMap, health: LogHealth, recovered: Recovered
    ) -> None:
        self._shared = shared
        self._segments = segments
        self._health = health
        self._snapshots = recovered.snapshots
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

    def cut_to(self, end: int) -> None:
        """Make the table again from the latest snapshot and the batches behind it, now that the log
        ends at ``end``. Without a snapshot all batches on disk count, as at a start: the record of
        a shard's owner may be below the log start. Raises DiskError.
        """
        self._snapshots.cut_to(end)
        start = self._snapshots.load_latest(self.table, end)
        span = (self._segments.segments[0].base_offset if start is None else start, end)
        with self._health.changing(begun=True):
            replay_producers(
                self._shared.disk, self._segments.segments, span, self.table, self._shared.now_ms
            )
            self.index_aborted()
        self._segments.note_warm()

    def aborted_in(self, start: int, read: LogRead, end: int) -> list[AbortedTxn]:
        """Return aborted transactions with a record in ``read``, which began at ``start`` and is
        below ``end``. Some with records only behind it may be among them.
        """
        return self.aborted_between(start, self._segments.offset_bound(read, end))

    def aborted_between(self, start: int, end: int) -> list[AbortedTxn]:
        """Return aborted transactions with a record in [start, end), in the order of markers."""
        with self._health.guarded(start):
            return self._segments.aborted_between(start, end)
