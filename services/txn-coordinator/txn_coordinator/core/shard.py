"""Transactions of one partition of ``__transaction_state``.

Rules take the record in force and return the next ones; the shard applies them to its state. The
decision that prepares a transaction has its markers as effects, so they are sent once its record is
committed. Which markers are written is not logged: after a reload all are sent again.
"""

from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias

from tidemark.codec.txn_handle import transactional_id_of
from tidemark.codec.txn_records import (
    EndKind,
    HandleRecord,
    TransactionRecord,
    TxnRecord,
)
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import InstantMs, WallMs
from tidemark.protocol.shard import Decision, Moment, Writer

from txn_coordinator.core import (
    additions,
    endings,
    listing,
    multi_writer_rules,
    sessions,
    sink_rules,
    transaction,
)
from txn_coordinator.core.effects import Answer, Effect, SendMarkers
from txn_coordinator.core.id_pattern import IdPatternError
from txn_coordinator.core.multi_writer_transaction import MultiWriterTransaction
from txn_coordinator.core.parked_additions import Parked, ParkedAdditions
from txn_coordinator.core.requests import (
    AddOffsets,
    AddPartitions,
    AddPartitionsReply,
    BeginTransaction,
    BeginTransactionReply,
    DescribeTransactions,
    DescribeTransactionsReply,
    EndTransaction,
    EndTransactionReply,
    EnlistInBatch,
    EnlistWriter,
    FinishBatch,
    FinishTransaction,
    ForgetSink,
    InitTransactionalId,
    InitTransactionalIdReply,
    KeepBatchAlive,
    KeepBatchAliveReply,
    ListIds,
    ListIdsReply,
    ListSlice,
    ListTransactionsReply,
    MarkersWritten,
    Request,
    TransactionView,
)
from txn_coordinator.core.ruling import Ruling
from txn_coordinator.core.settings import TxnSettings
from txn_coordinator.core.table import TxnStatistics, TxnTable
from txn_coordinator.core.transaction_forms import Transaction

TIMEOUTS_PER_WAKE: Final = 256
"""Transactions that one decision aborts at most, and ids whose additions it refuses at most. The
rest is due at once.
"""
EXPIRY_STEPS_PER_WAKE: Final = 4_096
"""Ids that one decision checks for expiry, and tombstones that it writes. The rest is due at once.
"""

TxnDecision: TypeAlias = Decision[TxnRecord, Effect]
"""Alias for annotations. Python cannot create a frozen generic through its alias: use ``Decision``.
"""


class TxnShard:
    """State and decisions of one shard; implements ``tidemark.protocol.shard.Shard``."""

    def __init__(self, settings: TxnSettings) -> None:
        self._settings = settings
        self._table = TxnTable()
        self._now = Moment(InstantMs(0), WallMs(0))
        """Time of the decision whose records are replayed."""
        self._serving = False
        self._expiry_at = InstantMs(0)
        self._to_expire: list[str] = []
        """Ids that are still to be checked for expiry."""
        self._parked = ParkedAdditions()

    def decide(self, request_id: int, request: Request, now: Moment) -> TxnDecision:
        """Decide on a request. MarkersWritten has no reply, whatever its ``request_id``. A later
        decision may answer an addition.
        """
        assert self._serving, request
        self._now = now
        match request:
            case MarkersWritten():
                return self._on_markers_written(request)
            case AddPartitions() | AddOffsets() if self._is_early(request):
                due = InstantMs(now.instant + self._settings.addition_wait_ms)
                self._parked.park(Parked(request_id, request), due)
                return Decision()
            case DescribeTransactions():
                views = tuple(map(self._view, request.transactional_ids))
                return _answer(request_id, DescribeTransactionsReply(views))
            case ListIds():
                return _answer(request_id, ListIdsReply(tuple(self._table.ids())))
            case ListSlice():
                return _answer(request_id, self._list(request))
            case KeepBatchAlive():
                return _answer(request_id, self._keep_alive(request))
            case _:
                ruling = self._rule(request)
                records, markers = self._follow_up(ruling.records)
                return Decision(records, (Answer(request_id, ruling.reply), *markers))

    def wake(self, now: Moment) -> TxnDecision:
        """Abort transactions whose timeout is over, refuse additions that have waited long enough,
        and remove ids that have expired.
        """
        assert self._serving
        self._now = now
        due = self._table.timeouts.pop_due(now.instant, TIMEOUTS_PER_WAKE)
        wall_ms = self._now.wall
        records, markers = self._follow_up(
            [self._table.ongoing(key).timed_out(wall_ms) for key in due]
        )
        if now.instant >= self._expiry_at:
            records += self._expired()
        refused = [
            Answer(parked.request_id, self._add(parked.request).reply)
            for parked in self._parked.take_due(now.instant, TIMEOUTS_PER_WAKE)
        ]
        return Decision(records, (*markers, *refused))

    def next_deadline(self) -> InstantMs | None:
        """Return the time of the first timeout, of the first addition that has waited long enough,
        or of the next check for expired ids.
        """
        if not self._serving:
            return None
        dues = (self._table.timeouts.first(), self._parked.first_due(), self._expiry_at)
        return min(due for due in dues if due is not None)

    def replay(self, record: TxnRecord, writer: Writer | None) -> None:
        """Apply a record of the log."""
        assert writer is None, "no transaction writes to __transaction_state"
        if self._serving:
            self._table.replay(record, self._now)
        else:
            self._table.load(record)

    def replay_end(self, writer: Writer, *, commits: bool) -> None:
        """Do nothing: no transaction writes to ``__transaction_state``. Brokers that took markers
        for every topic may have let an administrator's in.
        """

    def loaded(self, now: Moment) -> TxnDecision:
        """Begin to serve. Send the markers of prepared transactions again; open transactions keep
        their timeout.
        """
        assert not self._serving, "loaded twice"
        self._now = now
        self._serving = True
        self._expiry_at = InstantMs(now.instant + self._settings.expiry_interval_ms)
        self._table.loaded(now)
        records: list[TxnRecord] = []
        markers: list[SendMarkers] = []
        for txn in self._table.prepared():
            self._resume(txn, records, markers)
        return Decision(records, markers)

    def statistics(self) -> TxnStatistics:
        """Return counts for metrics."""
        return self._table.statistics()

    def check(self) -> None:
        """Assert every invariant."""
        self._table.check()
        for transactional_id in self._parked.ids():
            record = self._table.records[transactional_id]
            assert record.state in transaction.PREPARED, f"{record} has additions that wait"

    def _rule(
        self,
        request: InitTransactionalId
        | AddPartitions
        | AddOffsets
        | EndTransaction
        | BeginTransaction
        | EnlistWriter
        | FinishTransaction
        | EnlistInBatch
        | FinishBatch
        | ForgetSink,
    ) -> Ruling:
        match request:
            case InitTransactionalId():
                return self._init(request)
            case AddPartitions() | AddOffsets():
                return self._add(request)
            case EndTransaction():
                return self._end(request)
            case BeginTransaction():
                return self._begin(request)
            case EnlistWriter():
                txn = self._multi_writer_by(request.handle)
                return multi_writer_rules.enlist(txn, request, self._settings)
            case FinishTransaction():
                txn = self._multi_writer_by(request.handle)
                return multi_writer_rules.finish(txn, request, self._now.wall)
            case ForgetSink():
                txn = self._table.multi_writer.get(request.sink_id)
                return sink_rules.forget(txn, request, self._now.wall)
            case EnlistInBatch() | FinishBatch():
                return self._rule_on_batch(request)

    def _rule_on_batch(self, request: EnlistInBatch | FinishBatch) -> Ruling:
        txn = self._table.multi_writer.get(request.sink_id)
        wall_ms, settings = self._now.wall, self._settings
        ruling = (
            sink_rules.enlist(txn, request, wall_ms, settings)
            if isinstance(request, EnlistInBatch)
            else sink_rules.finish(txn, request, wall_ms, settings)
        )
        single = self._table.records.get(request.sink_id)
        if ruling.records and single is not None and single.state in transaction.OPEN:
            # No batch is open then, so that the records would open one.
            return Ruling(sink_rules.in_use(request))
        return ruling

    def _keep_alive(self, request: KeepBatchAlive) -> KeepBatchAliveReply:
        txn = self._multi_writer_by(request.handle)
        problem = sink_rules.keep_alive_problem(txn, request)
        if problem is not None:
            return problem
        assert txn is not None
        self._table.keep_alive(txn.transactional_id, self._now)
        return KeepBatchAliveReply(ErrorCode.NONE)

    def _init(self, request: InitTransactionalId) -> Ruling:
        problem = sessions.request_problem(request, self._settings)
        if problem is not None:
            return Ruling(problem)
        record = self._table.records.get(request.transactional_id)
        ruling = sessions.init_session(record, request, self._now.wall)
        txn = self._table.multi_writer.get(request.transactional_id)
        if txn is None or not txn.is_open:
            return ruling
        assert isinstance(ruling.reply, InitTransactionalIdReply)
        if ruling.reply.error_code is ErrorCode.PRODUCER_FENCED:
            return ruling
        if txn.state in transaction.PREPARED:
            return Ruling(sessions.concurrent("a transaction with a handle is being ended"))
        aborting = multi_writer_rules.force_abort(txn, EndKind.SUPERSEDED, self._now.wall)
        reply = sessions.concurrent("the open transaction with a handle is aborted first")
        return Ruling(reply, (aborting,))

    def _is_early(self, request: AddPartitions | AddOffsets) -> bool:
        """True for an addition to the next transaction while the last one is being ended."""
        if isinstance(request, AddPartitions) and request.verify_only:
            return False
        record = self._table.records.get(request.transactional_id)
        return record is not None and transaction.is_followed_by(
            record, request.producer_id, request.producer_epoch
        )

    def _add(
        self, request: AddPartitions | AddOffsets, record: TransactionRecord | None = None
    ) -> Ruling:
        """Rule on an addition. ``record``: the one in force, if it is not yet replayed."""
        record = record or self._table.records.get(request.transactional_id)
        if isinstance(request, AddPartitions):
            return self._add_partitions(request, record)
        as_partitions = additions.as_partitions(request, self._settings)
        ruling = self._add_partitions(as_partitions, record)
        assert isinstance(ruling.reply, AddPartitionsReply)
        return Ruling(additions.as_offsets_reply(ruling.reply), ruling.records)

    def _add_partitions(self, request: AddPartitions, record: TransactionRecord | None) -> Ruling:
        txn = self._table.multi_writer.get(request.transactional_id)
        slot = txn.slot_of_producer.get(request.producer_id) if txn is not None else None
        if txn is not None and slot is not None:
            writer = txn.slots[slot]
            return multi_writer_rules.add_partitions(txn, writer, request, self._settings)
        problem = additions.identity_problem(record, request)
        if problem is not None:
            return Ruling(problem)
        assert record is not None
        if txn is not None and txn.is_open and not request.verify_only:
            return Ruling(additions.concurrent("a transaction with a handle is open"))
        return additions.add_partitions(record, request, self._now.wall, self._settings)

    def _end(self, request: EndTransaction) -> Ruling:
        txn = self._table.multi_writer.get(request.transactional_id)
        if txn is not None and request.producer_id in txn.slot_of_producer:
            message = "a writer's transaction is ended by its handle"
            return Ruling(EndTransactionReply(ErrorCode.INVALID_TXN_STATE, message))
        record = self._table.records.get(request.transactional_id)
        return endings.end_transaction(record, request, self._now.wall)

    def _begin(self, request: BeginTransaction) -> Ruling:
        problem = multi_writer_rules.begin_problem(request, self._settings)
        if problem is not None:
            return Ruling(problem)
        txn = self._table.multi_writer.get(request.transactional_id)
        repeated = multi_writer_rules.begun_before(txn, request)
        if repeated is not None:
            return Ruling(repeated)
        record = self._table.records.get(request.transactional_id)
        if record is None or record.state not in transaction.OPEN:
            return multi_writer_rules.begin(txn, request, self._now.wall)
        message = "a transaction of Kafka's API is open"
        reply = BeginTransactionReply(ErrorCode.CONCURRENT_TRANSACTIONS, message)
        if record.state is transaction.ONGOING and request.abort_previous:
            return Ruling(reply, (endings.abort_forced(record, self._now.wall),))
        return Ruling(reply)

    def _follow_up(self, decided: Sequence[TxnRecord]) -> tuple[list[TxnRecord], list[SendMarkers]]:
        """Return the decided records and what follows from them at once: markers, or the end of a
        transaction in which nothing was written.
        """
        records: list[TxnRecord] = []
        markers: list[SendMarkers] = []
        for record in decided:
            records.append(record)
            if isinstance(record, TransactionRecord | HandleRecord):
                self._resume(self._table.transaction_of(record), records, markers)
        return records, markers

    def _resume(
        self, txn: Transaction, records: list[TxnRecord], markers: list[SendMarkers]
    ) -> None:
        """Add what a prepared transaction needs next: its markers, or without any its end."""
        if txn.record.state not in transaction.PREPARED:
            return
        needed = txn.markers()
        if needed:
            markers += needed
        else:
            records.append(txn.completed(self._now.wall))

    def _on_markers_written(self, report: MarkersWritten) -> TxnDecision:
        """End the transaction with its last marker. A report that is about no transaction being
        ended is late, and ignored.
        """
        for txn in self._table.transactions(report.transactional_id):
            if txn.is_reported(report):
                if not txn.markers_written(report):
                    break
                return self._followed(txn.completed(self._now.wall))
        return Decision()

    def _followed(self, completed: TxnRecord) -> TxnDecision:
        """Return the end of a transaction, and the beginning of the next one if it was early."""
        if not isinstance(completed, TransactionRecord):
            return Decision((completed,))
        records, answers, record = [completed], list[Answer](), completed
        for parked in self._parked.take(completed.transactional_id):
            ruling = self._add(parked.request, record)
            answers.append(Answer(parked.request_id, ruling.reply))
            for following in ruling.records:
                assert isinstance(following, TransactionRecord), following
                records.append(following)
                record = following
        return Decision(records, answers)

    def _expired(self) -> list[TxnRecord]:
        """Return tombstones of expired ids among the next ones. Each interval checks all ids."""
        if not self._to_expire:
            self._to_expire = list(self._table.ids())
        tombstones: list[TxnRecord] = []
        checked = 0
        while self._to_expire and checked + len(tombstones) < EXPIRY_STEPS_PER_WAKE:
            tombstones += self._tombstones(self._to_expire.pop())
            checked += 1
        if not self._to_expire:
            interval = self._settings.expiry_interval_ms
            self._expiry_at = InstantMs(self._now.instant + interval)
        return tombstones

    def _tombstones(self, transactional_id: str) -> Iterable[TxnRecord]:
        unused_since = self._now.wall - self._settings.transactional_id_expiration_ms
        for txn in self._table.transactions(transactional_id):
            yield from txn.tombstones(unused_since)

    def _multi_writer_by(self, handle: str) -> MultiWriterTransaction | None:
        return self._table.multi_writer.get(transactional_id_of(handle) or "")

    def _view(self, transactional_id: str) -> TransactionView:
        table = self._table
        return listing.view(
            transactional_id,
            table.records.get(transactional_id),
            table.multi_writer.get(transactional_id),
        )

    def _list(self, request: ListSlice) -> ListTransactionsReply:
        filters, table = request.filters, self._table
        try:
            is_included = listing.filter_of(filters, self._now.wall)
        except IdPatternError as problem:
            return ListTransactionsReply(ErrorCode.INVALID_REGULAR_EXPRESSION, str(problem))
        known = (one for one in request.transactional_ids if table.has(one))
        views = map(self._view, known)
        unknown = tuple(title for title in filters.states if title not in listing.STATES_BY_TITLE)
        return ListTransactionsReply(
            ErrorCode.NONE,
            unknown_states=unknown,
            transactions=tuple(listing.summary(full) for full in views if is_included(full)),
        )


def _answer(
    request_id: int,
    reply: DescribeTransactionsReply | ListIdsReply | ListTransactionsReply | KeepBatchAliveReply,
) -> TxnDecision:
    return Decision(effects=(Answer(request_id, reply),))
