"""The transactions of one partition of ``__transaction_state``.

Every rule takes the record in force and gives the next ones; here they meet the state. Markers are
asked for by the decision that prepares a transaction, and so sent only once that record is
committed; which of them are written is not logged: after a reload all are sent again.
"""

from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias

from tidemark.codec.txn_handle import transactional_id_of
from tidemark.codec.txn_records import (
    EndKind,
    HandleRecord,
    TransactionRecord,
    TransactionTombstone,
    TxnRecord,
)
from tidemark.machine.shard import Decision, Moment, Writer
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import InstantMs, WallMs

from txn_coordinator.core import (
    additions,
    endings,
    listing,
    sessions,
    shared_rules,
    sink_rules,
    transaction,
)
from txn_coordinator.core.effects import Answer, Effect, SendMarkers
from txn_coordinator.core.id_pattern import IdPatternError
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
    ListTransactions,
    ListTransactionsReply,
    MarkersWritten,
    Request,
    TransactionView,
)
from txn_coordinator.core.ruling import Ruling
from txn_coordinator.core.settings import TxnSettings
from txn_coordinator.core.shared_transaction import SharedTransaction
from txn_coordinator.core.table import TxnStatistics, TxnTable

TIMEOUTS_PER_WAKE: Final = 256
"""What one decision aborts at most; the rest is due at once."""
EXPIRY_STEPS_PER_WAKE: Final = 4_096
"""Ids that one decision looks at for expiry, and tombstones that it writes; the rest is due at
once.
"""

TxnDecision: TypeAlias = Decision[TxnRecord, Effect]
"""For annotations. Python cannot make a frozen generic through its alias: call ``Decision``."""


class TxnShard:
    """Implements ``tidemark.machine.shard.Shard``."""

    def __init__(self, settings: TxnSettings) -> None:
        self._settings = settings
        self._table = TxnTable()
        self._now = Moment(InstantMs(0), WallMs(0))
        """Of the decision whose records are replayed."""
        self._serving = False
        self._expiry_at = InstantMs(0)
        self._to_expire: list[str] = []
        """Ids that the look for expired ones has yet to come to."""

    def decide(self, request_id: int, request: Request, now: Moment) -> TxnDecision:
        """Judge one request. MarkersWritten has no answer, whatever its ``request_id``."""
        assert self._serving, request
        self._now = now
        match request:
            case MarkersWritten():
                return Decision(self._on_markers_written(request))
            case DescribeTransactions():
                views = tuple(map(self._view, request.transactional_ids))
                return _answer(request_id, DescribeTransactionsReply(views))
            case ListTransactions():
                return _answer(request_id, self._list(request))
            case KeepBatchAlive():
                return _answer(request_id, self._keep_alive(request))
            case _:
                ruling = self._rule(request)
                records, markers = self._follow_up(ruling.records)
                return Decision(records, (Answer(request_id, ruling.reply), *markers))

    def wake(self, now: Moment) -> TxnDecision:
        """Abort what ran out of time; forget ids that nobody used for long."""
        assert self._serving
        self._now = now
        due = self._table.timeouts.pop_due(now.instant, TIMEOUTS_PER_WAKE)
        records, markers = self._follow_up([self._aborted(key) for key in due])
        if now.instant >= self._expiry_at:
            records += self._expired()
        return Decision(records, markers)

    def next_deadline(self) -> InstantMs | None:
        """The first timeout, or the next look for ids that expired."""
        if not self._serving:
            return None
        first = self._table.timeouts.first()
        return self._expiry_at if first is None else min(first, self._expiry_at)

    def replay(self, record: TxnRecord, writer: Writer | None) -> None:
        """A record of the log."""
        assert writer is None, "no transaction writes to __transaction_state"
        if self._serving:
            self._table.replay(record, self._now)
        else:
            self._table.load(record)

    def replay_end(self, writer: Writer, *, commits: bool) -> None:
        """Never: no transaction writes to ``__transaction_state``."""
        raise AssertionError(f"a transaction of {writer} ended here, commits={commits}")

    def loaded(self, now: Moment) -> TxnDecision:
        """Markers of prepared transactions are sent again; open ones keep their timeout."""
        assert not self._serving, "loaded twice"
        self._now = now
        self._serving = True
        self._expiry_at = InstantMs(now.instant + self._settings.expiry_interval_ms)
        self._table.loaded(now)
        prepared: list[TransactionRecord | HandleRecord] = [
            record
            for record in self._table.records.values()
            if record.state in transaction.PREPARED
        ]
        prepared += [
            shared.record
            for shared in self._table.shared.values()
            if shared.record is not None and shared.record.state in transaction.PREPARED
        ]
        records: list[TxnRecord] = []
        markers: list[SendMarkers] = []
        for record in prepared:
            self._resume(record, records, markers)
        return Decision(records, markers)

    def statistics(self) -> TxnStatistics:
        """Counts for metrics."""
        return self._table.statistics()

    def check(self) -> None:
        """Assert every invariant."""
        self._table.check()

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
            case AddPartitions():
                return self._add_partitions(request)
            case AddOffsets():
                return self._add_offsets(request)
            case EndTransaction():
                return self._end(request)
            case BeginTransaction():
                return self._begin(request)
            case EnlistWriter():
                shared = self._shared_by(request.handle)
                return shared_rules.enlist(shared, request, self._settings)
            case FinishTransaction():
                shared = self._shared_by(request.handle)
                return shared_rules.finish(shared, request, self._now.wall)
            case ForgetSink():
                shared = self._table.shared.get(request.sink_id)
                return sink_rules.forget(shared, request, self._now.wall)
            case EnlistInBatch() | FinishBatch():
                return self._rule_on_batch(request)

    def _rule_on_batch(self, request: EnlistInBatch | FinishBatch) -> Ruling:
        shared = self._table.shared.get(request.sink_id)
        wall_ms, settings = self._now.wall, self._settings
        ruling = (
            sink_rules.enlist(shared, request, wall_ms, settings)
            if isinstance(request, EnlistInBatch)
            else sink_rules.finish(shared, request, wall_ms, settings)
        )
        single = self._table.records.get(request.sink_id)
        if ruling.records and single is not None and single.state in transaction.OPEN:
            # No batch is open then, so that the records would open one.
            return Ruling(sink_rules.in_use(request))
        return ruling

    def _keep_alive(self, request: KeepBatchAlive) -> KeepBatchAliveReply:
        shared = self._shared_by(request.handle)
        problem = sink_rules.keep_alive_problem(shared, request)
        if problem is not None:
            return problem
        assert shared is not None
        self._table.keep_alive(shared.transactional_id, self._now)
        return KeepBatchAliveReply(ErrorCode.NONE)

    def _init(self, request: InitTransactionalId) -> Ruling:
        problem = sessions.request_problem(request, self._settings)
        if problem is not None:
            return Ruling(problem)
        record = self._table.records.get(request.transactional_id)
        ruling = sessions.init_session(record, request, self._now.wall)
        shared = self._table.shared.get(request.transactional_id)
        if shared is None or not shared.is_open:
            return ruling
        assert isinstance(ruling.reply, InitTransactionalIdReply)
        if ruling.reply.error_code is ErrorCode.PRODUCER_FENCED:
            return ruling
        if shared.state in transaction.PREPARED:
            return Ruling(sessions.concurrent("a transaction with a handle is being ended"))
        aborting = shared_rules.force_abort(shared, EndKind.SUPERSEDED, self._now.wall)
        reply = sessions.concurrent("the open transaction with a handle is aborted first")
        return Ruling(reply, (aborting,))

    def _add_partitions(self, request: AddPartitions) -> Ruling:
        shared = self._table.shared.get(request.transactional_id)
        slot = shared.slot_of_producer.get(request.producer_id) if shared is not None else None
        if shared is not None and slot is not None:
            writer = shared.slots[slot]
            return shared_rules.add_partitions(shared, writer, request, self._settings)
        record = self._table.records.get(request.transactional_id)
        problem = additions.identity_problem(record, request)
        if problem is not None:
            return Ruling(problem)
        assert record is not None
        if shared is not None and shared.is_open and not request.verify_only:
            return Ruling(additions.concurrent("a transaction with a handle is open"))
        return additions.add_partitions(record, request, self._now.wall, self._settings)

    def _add_offsets(self, request: AddOffsets) -> Ruling:
        ruling = self._add_partitions(additions.as_partitions(request, self._settings))
        assert isinstance(ruling.reply, AddPartitionsReply)
        return Ruling(additions.as_offsets_reply(ruling.reply), ruling.records)

    def _end(self, request: EndTransaction) -> Ruling:
        shared = self._table.shared.get(request.transactional_id)
        if shared is not None and request.producer_id in shared.slot_of_producer:
            message = "a writer's transaction is ended by its handle"
            return Ruling(EndTransactionReply(ErrorCode.INVALID_TXN_STATE, message))
        record = self._table.records.get(request.transactional_id)
        return endings.end_transaction(record, request, self._now.wall)

    def _begin(self, request: BeginTransaction) -> Ruling:
        problem = shared_rules.begin_problem(request, self._settings)
        if problem is not None:
            return Ruling(problem)
        record = self._table.records.get(request.transactional_id)
        if record is None or record.state not in transaction.OPEN:
            shared = self._table.shared.get(request.transactional_id)
            return shared_rules.begin(shared, request, self._now.wall)
        message = "a transaction of Kafka's API is open"
        reply = BeginTransactionReply(ErrorCode.CONCURRENT_TRANSACTIONS, message)
        if record.state is transaction.ONGOING and request.abort_previous:
            return Ruling(reply, (endings.abort_forced(record, self._now.wall),))
        return Ruling(reply)

    def _follow_up(self, decided: Sequence[TxnRecord]) -> tuple[list[TxnRecord], list[SendMarkers]]:
        """What was decided, with what follows at once: markers, or the end of a transaction in
        which nothing was written.
        """
        records: list[TxnRecord] = []
        markers: list[SendMarkers] = []
        for record in decided:
            records.append(record)
            if isinstance(record, TransactionRecord | HandleRecord):
                self._resume(record, records, markers)
        return records, markers

    def _resume(
        self,
        record: TransactionRecord | HandleRecord,
        records: list[TxnRecord],
        markers: list[SendMarkers],
    ) -> None:
        if record.state not in transaction.PREPARED:
            return
        needed = self._markers(record)
        if needed:
            markers += needed
        else:
            records.append(self._completed(record))

    def _markers(self, record: TransactionRecord | HandleRecord) -> list[SendMarkers]:
        if isinstance(record, TransactionRecord):
            return _markers(record)
        shared = self._table.shared.get(record.transactional_id)
        return shared.markers(record) if shared is not None else []

    def _completed(
        self, record: TransactionRecord | HandleRecord
    ) -> TransactionRecord | HandleRecord:
        if isinstance(record, TransactionRecord):
            return transaction.completed(record, self._now.wall)
        return shared_rules.completed(record, self._now.wall)

    def _on_markers_written(self, request: MarkersWritten) -> list[TxnRecord]:
        """Whatever is not of the transaction that is being ended is late, and says nothing new."""
        record = self._table.records.get(request.transactional_id)
        if record is not None and _is_about(request, record):
            if self._table.marker_written(request.transactional_id, request.partitions):
                return [self._completed(record)]
            return []
        shared = self._table.shared.get(request.transactional_id)
        if shared is None or shared.record is None:
            return []
        is_present = (
            shared.state in transaction.PREPARED
            and shared.record.updated_at == request.prepared_at
            and request.producer_id in shared.outstanding
        )
        if is_present and shared.markers_written(request.producer_id, request.partitions):
            return [self._completed(shared.record)]
        return []

    def _aborted(self, transactional_id: str) -> TransactionRecord | HandleRecord:
        """The transaction of this id that ran out of time."""
        record = self._table.records.get(transactional_id)
        if record is not None and record.state is transaction.ONGOING:
            return endings.abort_forced(record, self._now.wall)
        shared = self._table.shared[transactional_id]
        assert shared.state is transaction.ONGOING, shared.record
        return shared_rules.force_abort(shared, EndKind.TIMED_OUT, self._now.wall)

    def _expired(self) -> list[TxnRecord]:
        """Tombstones of what expired among the next ids; all ids are come to in each interval."""
        if not self._to_expire:
            self._to_expire = list({**self._table.records, **self._table.shared})
        tombstones: list[TxnRecord] = []
        looked_at = 0
        while self._to_expire and looked_at + len(tombstones) < EXPIRY_STEPS_PER_WAKE:
            tombstones += self._tombstones(self._to_expire.pop())
            looked_at += 1
        if not self._to_expire:
            interval = self._settings.expiry_interval_ms
            self._expiry_at = InstantMs(self._now.instant + interval)
        return tombstones

    def _tombstones(self, transactional_id: str) -> Iterable[TxnRecord]:
        unused_since = self._now.wall - self._settings.transactional_id_expiration_ms
        record = self._table.records.get(transactional_id)
        if (
            record is not None
            and transaction.may_move(record.state, transaction.DEAD)
            and record.updated_at <= unused_since
        ):
            yield TransactionTombstone(transactional_id)
        shared = self._table.shared.get(transactional_id)
        if (
            shared is not None
            and shared.record is not None
            and shared.record.sink is None
            and transaction.may_move(shared.state, transaction.DEAD)
            and shared.record.updated_at <= unused_since
        ):
            yield from shared.tombstones()

    def _shared_by(self, handle: str) -> SharedTransaction | None:
        return self._table.shared.get(transactional_id_of(handle) or "")

    def _view(self, transactional_id: str) -> TransactionView:
        table = self._table
        return listing.view(
            transactional_id,
            table.records.get(transactional_id),
            table.shared.get(transactional_id),
        )

    def _list(self, request: ListTransactions) -> ListTransactionsReply:
        try:
            is_included = listing.filter_of(request, self._now.wall)
        except IdPatternError as problem:
            return ListTransactionsReply(ErrorCode.INVALID_REGULAR_EXPRESSION, str(problem))
        views = map(self._view, sorted(self._table.records.keys() | self._table.shared.keys()))
        unknown = tuple(title for title in request.states if title not in listing.STATES_BY_TITLE)
        return ListTransactionsReply(
            ErrorCode.NONE,
            unknown_states=unknown,
            transactions=tuple(listing.summary(full) for full in views if is_included(full)),
        )


def _answer(
    request_id: int, reply: DescribeTransactionsReply | ListTransactionsReply | KeepBatchAliveReply
) -> TxnDecision:
    return Decision(effects=(Answer(request_id, reply),))


def _markers(record: TransactionRecord) -> list[SendMarkers]:
    if not record.partitions:
        return []
    return [
        SendMarkers(
            record.transactional_id,
            record.producer_id,
            record.producer_epoch,
            record.updated_at,
            record.state is transaction.PREPARE_COMMIT,
            tuple(sorted(record.partitions)),
            2 if record.client_version >= 2 else 1,
        )
    ]


def _is_about(request: MarkersWritten, record: TransactionRecord) -> bool:
    """Whether these are markers of the transaction that ``record`` prepared."""
    return (
        record.state in transaction.PREPARED
        and record.producer_id == request.producer_id
        and record.producer_epoch == request.producer_epoch
        and record.updated_at == request.prepared_at
    )
