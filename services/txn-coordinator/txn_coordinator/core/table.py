"""Records in force of one shard, and what follows from them: timeouts, markers, counts."""

from collections import Counter
from collections.abc import Iterator
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
from tidemark.model.ids import InstantMs
from tidemark.model.topics import TopicPartition
from tidemark.protocol.shard import Moment

from txn_coordinator.core import transaction
from txn_coordinator.core.deadlines import Deadlines
from txn_coordinator.core.multi_writer_transaction import MultiWriterTransaction
from txn_coordinator.core.transaction_forms import MultiWriter, SingleWriter, Transaction


@dataclass(frozen=True, slots=True)
class TxnStatistics:
    """Counts of one shard at one moment."""

    transactional_ids: int
    by_state: dict[TransactionState, int]
    """Number of transactions of both forms in each state."""
    sinks: int
    """Number of ids whose transactions are the batches of a query."""
    markers_outstanding: int
    oldest_open_started_at: int
    """Wall ms of the oldest Ongoing transaction; -1: none is Ongoing."""


NOTHING_STARTED: Final = -1


class TxnTable:
    """State of one shard. ``load``, ``loaded`` and ``replay`` change it; so do written markers and
    batches that are kept alive, which are in no record.

    Invariant: an id has at most one open transaction, of either form.
    """

    def __init__(self) -> None:
        self.records: dict[str, TransactionRecord] = {}
        """Transactions of Kafka's API, by transactional id."""
        self.multi_writer: dict[str, MultiWriterTransaction] = {}
        """Transactions of several writers, by transactional id."""
        self.outstanding: dict[str, set[TopicPartition]] = {}
        """Partitions without a marker of each prepared transaction of Kafka's API, by id."""
        self.timeouts = Deadlines()
        """Timeouts of Ongoing transactions, by transactional id."""
        self._sinks: set[str] = set()
        self._counts: Counter[TransactionState] = Counter()

    def load(self, record: TxnRecord) -> None:
        """Take a record of the log. ``loaded`` finds the state that follows from all records."""
        match record:
            case TransactionRecord():
                self.records[record.transactional_id] = record
            case TransactionTombstone():
                self.records.pop(record.transactional_id, None)
            case _:
                self._multi_writer_of(record.transactional_id).load(record)

    def loaded(self, now: Moment) -> None:
        """Find the state that follows from the records, once the whole log is read."""
        for record in self.records.values():
            self._count(record.state, 1)
            self._follow(record, None, now)
        for txn in list(self.multi_writer.values()):
            txn.loaded()
            if txn.record is None:
                del self.multi_writer[txn.transactional_id]
                continue
            self._count(txn.state, 1)
            self._follow_multi_writer(txn.record, transaction.EMPTY, now)
            if txn.record.sink is not None and txn.state is transaction.ONGOING:
                # Its writers may have kept it alive until just now, at another coordinator.
                self.keep_alive(txn.transactional_id, now)

    def replay(self, record: TxnRecord, now: Moment) -> None:
        """Apply a record that was decided at ``now``."""
        match record:
            case TransactionRecord():
                self._replay_record(record, now)
            case TransactionTombstone():
                self._count(self.records.pop(record.transactional_id).state, -1)
            case HandleRecord():
                self._replay_handle(record, now)
            case HandleTombstone():
                self._count(self.multi_writer.pop(record.transactional_id).state, -1)
                self._sinks.discard(record.transactional_id)
            case WriterRecord():
                self._replay_writer(record, now)
            case WriterTombstone():
                self.multi_writer[record.transactional_id].replay_writer_tombstone(record.slot)

    # -- transactions of either form

    def ids(self) -> dict[str, object]:
        """Return all transactional ids, as keys: a set of them would take five times as long."""
        return {**self.records, **self.multi_writer}

    def has(self, transactional_id: str) -> bool:
        """Return True if an id is known."""
        return transactional_id in self.records or transactional_id in self.multi_writer

    def transactions(self, transactional_id: str) -> Iterator[Transaction]:
        """Yield the transactions of an id, in each form that it was used in."""
        record = self.records.get(transactional_id)
        if record is not None:
            yield self.transaction_of(record)
        txn = self.multi_writer.get(transactional_id)
        if txn is not None and txn.record is not None:
            yield MultiWriter(txn.record, txn)

    def transaction_of(self, record: TransactionRecord | HandleRecord) -> Transaction:
        """Return the transaction of a record, which may still have to be written."""
        key = record.transactional_id
        if isinstance(record, TransactionRecord):
            return SingleWriter(record, self.outstanding.get(key, set()))
        return MultiWriter(record, self.multi_writer.get(key))

    def ongoing(self, transactional_id: str) -> Transaction:
        """Return the Ongoing transaction of an id. Every id with a timeout has one."""
        all_forms = self.transactions(transactional_id)
        return next(one for one in all_forms if one.record.state is transaction.ONGOING)

    def prepared(self) -> list[Transaction]:
        """Return all transactions whose outcome is decided and not complete."""
        prepared: list[Transaction] = [
            self.transaction_of(record)
            for record in self.records.values()
            if record.state in transaction.PREPARED
        ]
        prepared += [
            MultiWriter(txn.record, txn)
            for txn in self.multi_writer.values()
            if txn.record is not None and txn.state in transaction.PREPARED
        ]
        return prepared

    def keep_alive(self, transactional_id: str, now: Moment) -> None:
        """Count the timeout of the Ongoing transaction of several writers from now."""
        record = self.multi_writer[transactional_id].record
        assert record is not None
        assert record.state is transaction.ONGOING, record
        self.timeouts.put(transactional_id, InstantMs(now.instant + record.timeout_ms))

    def statistics(self) -> TxnStatistics:
        """Count for metrics. Visits open transactions only."""
        waiting = [
            *self.outstanding.values(),
            *(
                partitions
                for txn in self.multi_writer.values()
                for partitions in txn.outstanding.values()
            ),
        ]
        started = (txn.record.started_at for txn in map(self.ongoing, self.timeouts.keys()))
        return TxnStatistics(
            len(self.ids()),
            {state: count for state, count in self._counts.items() if count},
            len(self._sinks),
            sum(map(len, waiting)),
            min(started, default=NOTHING_STARTED),
        )

    def check(self) -> None:
        """Assert every invariant."""
        counts: Counter[TransactionState] = Counter()
        for record in self.records.values():
            counts[record.state] += 1
            self._check_record(record)
        for transactional_id, txn in self.multi_writer.items():
            counts[txn.state] += 1
            txn.check()
            assert txn.record is not None
            single = self.records.get(transactional_id)
            assert not (txn.is_open and single and single.state in transaction.OPEN), single
        assert counts == self._counts
        sinks = {key for key, one in self.multi_writer.items() if one.record and one.record.sink}
        assert sinks == self._sinks
        assert set(self.timeouts.keys()) == self._ongoing_ids()
        prepared = {key for key, r in self.records.items() if r.state in transaction.PREPARED}
        assert set(self.outstanding) <= prepared

    def _check_record(self, record: TransactionRecord) -> None:
        assert 0 <= record.producer_epoch <= transaction.EPOCH_MAX, record
        assert record.state is not transaction.PREPARE_EPOCH_FENCE, record
        assert record.state in transaction.OPEN or not record.partitions, record
        assert self.outstanding.get(record.transactional_id, set()) <= record.partitions, record

    def _ongoing_ids(self) -> set[str]:
        records = [*self.records.values(), *(txn.record for txn in self.multi_writer.values())]
        return {one.transactional_id for one in records if one and one.state is transaction.ONGOING}

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
        txn = self.multi_writer.get(record.transactional_id)
        if txn is None:
            txn = self._multi_writer_of(record.transactional_id)
        else:
            self._count(txn.state, -1)
        before = txn.state
        txn.replay_handle(record)
        self._count(record.state, 1)
        self._follow_multi_writer(record, before, now)

    def _replay_writer(self, record: WriterRecord, now: Moment) -> None:
        txn = self.multi_writer[record.transactional_id]
        txn.replay_writer(record)
        is_ongoing = txn.record is not None and txn.state is transaction.ONGOING
        if is_ongoing and record.transactional_id in self._sinks:
            # A run after a crash joins the open batch, which may be about to time out.
            self.keep_alive(txn.transactional_id, now)

    def _follow(
        self, record: TransactionRecord, before: TransactionRecord | None, now: Moment
    ) -> None:
        """Set the timeout and the outstanding markers that follow from the record."""
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

    def _follow_multi_writer(
        self, record: HandleRecord, before: TransactionState, now: Moment
    ) -> None:
        key = record.transactional_id
        if record.sink is not None:
            self._sinks.add(key)
        if record.state is transaction.ONGOING:
            self._put_timeout(record, now)
        elif before is transaction.ONGOING:
            self.timeouts.discard(key)

    def _put_timeout(self, record: TransactionRecord | HandleRecord, now: Moment) -> None:
        """Set the timeout by the wall clock, which may be another machine's: due now at the
        earliest, and a whole timeout from now at the latest.
        """
        left_ms = record.started_at + record.timeout_ms - now.wall
        left_ms = min(max(0, left_ms), record.timeout_ms)
        self.timeouts.put(record.transactional_id, InstantMs(now.instant + left_ms))

    def _multi_writer_of(self, transactional_id: str) -> MultiWriterTransaction:
        new = MultiWriterTransaction(transactional_id)
        return self.multi_writer.setdefault(transactional_id, new)

    def _count(self, state: TransactionState, change: int) -> None:
        self._counts[state] += change
