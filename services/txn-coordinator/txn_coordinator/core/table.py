"""The records in force of one shard, and what follows from them: deadlines, outstanding markers."""

from collections import Counter
from dataclasses import dataclass
from typing import Final

from tidemark.codec.txn_records import (
    HandleRecord,
    HandleTombstone,
    TransactionRecord,
    TransactionState,
    TransactionTombstone,
    TxnRecord,
    WriterRecord,
    WriterTombstone,
)
from tidemark.machine.shard import Moment
from tidemark.model.ids import InstantMs
from tidemark.model.topics import TopicPartition

from txn_coordinator.core import transaction
from txn_coordinator.core.deadlines import Deadlines
from txn_coordinator.core.shared_transaction import SharedTransaction


@dataclass(frozen=True, slots=True)
class TxnStatistics:
    """Counts of one shard, at one moment."""

    transactional_ids: int
    by_state: dict[TransactionState, int]
    """Of all ids, those of Kafka's API and those with handles."""
    sinks: int
    """Of all ids, those whose transactions are a query's batches."""
    markers_outstanding: int
    oldest_open_started_at: int
    """Wall ms, of what is Ongoing; -1: nothing is."""


NOTHING_STARTED: Final = -1


class TxnTable:
    """Changed by ``load``, ``loaded`` and ``replay``; and by markers that are written and batches
    that are kept alive, of which no record tells.

    Invariant: an id has one open transaction at most, of Kafka's API or with a handle.
    """

    def __init__(self) -> None:
        self.records: dict[str, TransactionRecord] = {}
        """Of Kafka's API, by transactional id."""
        self.shared: dict[str, SharedTransaction] = {}
        """With several writers, by transactional id."""
        self.outstanding: dict[str, set[TopicPartition]] = {}
        """By id, while its transaction of Kafka's API is prepared: where markers are not known to
        be.
        """
        self.timeouts = Deadlines()
        """Of what is Ongoing, by transactional id."""
        self._sinks: set[str] = set()
        self._counts: Counter[TransactionState] = Counter()

    def load(self, record: TxnRecord) -> None:
        """A record read back. What follows from the records is found by ``loaded``."""
        match record:
            case TransactionRecord():
                self.records[record.transactional_id] = record
            case TransactionTombstone():
                self.records.pop(record.transactional_id, None)
            case _:
                self._shared_of(record.transactional_id).load(record)

    def loaded(self, now: Moment) -> None:
        """All of the log is read."""
        for record in self.records.values():
            self._count(record.state, 1)
            self._follow(record, None, now)
        for shared in list(self.shared.values()):
            shared.loaded()
            if shared.record is None:
                del self.shared[shared.transactional_id]
                continue
            self._count(shared.state, 1)
            self._follow_shared(shared.record, transaction.EMPTY, now)
            if shared.record.sink is not None and shared.state is transaction.ONGOING:
                # Its writers may have kept it alive until just now, elsewhere.
                self.keep_alive(shared.transactional_id, now)

    def replay(self, record: TxnRecord, now: Moment) -> None:
        """A record that was decided at ``now``."""
        match record:
            case TransactionRecord():
                self._replay_record(record, now)
            case TransactionTombstone():
                self._count(self.records.pop(record.transactional_id).state, -1)
            case HandleRecord():
                self._replay_handle(record, now)
            case HandleTombstone():
                self._count(self.shared.pop(record.transactional_id).state, -1)
                self._sinks.discard(record.transactional_id)
            case WriterRecord():
                self.shared[record.transactional_id].replay_writer(record)
            case WriterTombstone():
                self.shared[record.transactional_id].replay_writer_tombstone(record.slot)

    def keep_alive(self, transactional_id: str, now: Moment) -> None:
        """The timeout of the open transaction with a handle counts from now."""
        record = self.shared[transactional_id].record
        assert record is not None
        assert record.state is transaction.ONGOING, record
        self.timeouts.put(transactional_id, InstantMs(now.instant + record.timeout_ms))

    def marker_written(self, transactional_id: str, partitions: tuple[TopicPartition, ...]) -> bool:
        """Of Kafka's API; whether no marker is outstanding now."""
        waiting = self.outstanding[transactional_id]
        waiting.difference_update(partitions)
        return not waiting

    def statistics(self) -> TxnStatistics:
        """Counts for metrics; looks at what is open only."""
        waiting = [
            *self.outstanding.values(),
            *(
                partitions
                for shared in self.shared.values()
                for partitions in shared.outstanding.values()
            ),
        ]
        return TxnStatistics(
            len(self.records.keys() | self.shared.keys()),
            {state: count for state, count in self._counts.items() if count},
            len(self._sinks),
            sum(map(len, waiting)),
            min(map(self._started_at, self.timeouts.keys()), default=NOTHING_STARTED),
        )

    def check(self) -> None:
        """Assert every invariant."""
        counts: Counter[TransactionState] = Counter()
        for record in self.records.values():
            counts[record.state] += 1
            self._check_record(record)
        for transactional_id, shared in self.shared.items():
            counts[shared.state] += 1
            shared.check()
            assert shared.record is not None
            single = self.records.get(transactional_id)
            assert not (shared.is_open and single and single.state in transaction.OPEN), single
        assert counts == self._counts
        sinks = {key for key, s in self.shared.items() if s.record and s.record.sink}
        assert sinks == self._sinks
        assert set(self.timeouts.keys()) == self._ongoing()
        prepared = {key for key, r in self.records.items() if r.state in transaction.PREPARED}
        assert set(self.outstanding) <= prepared

    def _check_record(self, record: TransactionRecord) -> None:
        assert 0 <= record.producer_epoch <= transaction.EPOCH_MAX, record
        assert record.state is not transaction.PREPARE_EPOCH_FENCE, record
        assert record.state in transaction.OPEN or not record.partitions, record
        assert self.outstanding.get(record.transactional_id, set()) <= record.partitions, record

    def _ongoing(self) -> set[str]:
        singles = {key for key, r in self.records.items() if r.state is transaction.ONGOING}
        return singles | {key for key, s in self.shared.items() if s.state is transaction.ONGOING}

    def _replay_record(self, record: TransactionRecord, now: Moment) -> None:
        before = self.records.get(record.transactional_id)
        if before is None:
            assert record.state is transaction.EMPTY, record
        else:
            assert transaction.may_move(before.state, record.state), (before, record)
            self._count(before.state, -1)
        self._count(record.state, 1)
        self.records[record.transactional_id] = record
        self._follow(record, before, now)

    def _replay_handle(self, record: HandleRecord, now: Moment) -> None:
        shared = self.shared.get(record.transactional_id)
        if shared is None:
            shared = self._shared_of(record.transactional_id)
        else:
            self._count(shared.state, -1)
        before = shared.state
        shared.replay_handle(record)
        self._count(record.state, 1)
        self._follow_shared(record, before, now)

    def _follow(
        self, record: TransactionRecord, before: TransactionRecord | None, now: Moment
    ) -> None:
        """Deadline and markers that the record stands for."""
        key = record.transactional_id
        was_ongoing = before is not None and before.state is transaction.ONGOING
        if record.state is transaction.ONGOING and not was_ongoing:
            self._put_timeout(record, now)
        elif record.state is not transaction.ONGOING and was_ongoing:
            self.timeouts.discard(key)
        if record.state in transaction.PREPARED:
            self.outstanding[key] = set(record.partitions)
        else:
            self.outstanding.pop(key, None)

    def _follow_shared(self, record: HandleRecord, before: TransactionState, now: Moment) -> None:
        key = record.transactional_id
        if record.sink is not None:
            self._sinks.add(key)
        if record.state is transaction.ONGOING:
            self._put_timeout(record, now)
        elif before is transaction.ONGOING:
            self.timeouts.discard(key)

    def _put_timeout(self, record: TransactionRecord | HandleRecord, now: Moment) -> None:
        """By the wall clock, which may be another machine's: at once at the earliest, and a whole
        timeout from now at the latest.
        """
        left_ms = record.started_at + record.timeout_ms - now.wall
        left_ms = min(max(0, left_ms), record.timeout_ms)
        self.timeouts.put(record.transactional_id, InstantMs(now.instant + left_ms))

    def _started_at(self, transactional_id: str) -> int:
        single = self.records.get(transactional_id)
        if single is not None and single.state is transaction.ONGOING:
            return single.started_at
        shared = self.shared[transactional_id].record
        assert shared is not None
        return shared.started_at

    def _shared_of(self, transactional_id: str) -> SharedTransaction:
        return self.shared.setdefault(transactional_id, SharedTransaction(transactional_id))

    def _count(self, state: TransactionState, change: int) -> None:
        self._counts[state] += change
