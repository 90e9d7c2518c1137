"""A shard of transactions with a log that always works and a clock that the test moves."""

from collections.abc import Iterable
from itertools import count
from typing import TypeVar

from tidemark.codec.txn_records import (
    TransactionRecord,
    TransactionState,
    TxnRecord,
    decode,
    encode,
)
from tidemark.model.ids import InstantMs, WallMs
from tidemark.model.topics import TopicPartition
from tidemark.protocol.shard import Moment
from txn_coordinator.core.effects import Answer, SendMarkers
from txn_coordinator.core.requests import (
    AddPartitions,
    AddPartitionsReply,
    BeginTransaction,
    BeginTransactionReply,
    CountedWriter,
    DescribeTransactions,
    DescribeTransactionsReply,
    EndTransaction,
    EndTransactionReply,
    EnlistInBatch,
    EnlistInBatchReply,
    EnlistWriter,
    EnlistWriterReply,
    FinishBatch,
    FinishBatchReply,
    FinishTransaction,
    FinishTransactionReply,
    ForgetSink,
    ForgetSinkReply,
    InitTransactionalId,
    InitTransactionalIdReply,
    KeepBatchAlive,
    KeepBatchAliveReply,
    MarkersWritten,
    Request,
    TransactionView,
)
from txn_coordinator.core.settings import TxnSettings
from txn_coordinator.core.shard import TxnDecision, TxnShard

ReplyT = TypeVar("ReplyT")

ID = "payments"
TIMEOUT_MS = 60_000
FIRST_SPARE = 1_000
P0, P1, P2 = (TopicPartition("orders", partition) for partition in range(3))
Q0 = TopicPartition("refunds", 0)


class World:
    """One shard, its committed log, and the markers that it requires."""

    def __init__(self, settings: TxnSettings | None = None) -> None:
        self.settings = settings or TxnSettings()
        self.log: list[TxnRecord] = []
        self.markers: list[SendMarkers] = []
        self.instant, self.wall = 5_000, 1_700_000_000_000
        self.spares = count(FIRST_SPARE)
        self.shard = TxnShard(self.settings)
        self.perform(self.shard.loaded(self.now))

    @property
    def now(self) -> Moment:
        return Moment(InstantMs(self.instant), WallMs(self.wall))

    def perform(self, decision: TxnDecision) -> list[Answer]:
        """Append, replay, and once that is committed, collect the effects."""
        for record in decision.records:
            self.log.append(record)
            self.shard.replay(record, None)
        self.shard.check()
        effects = list(decision.effects)
        self.markers += [effect for effect in effects if isinstance(effect, SendMarkers)]
        return [effect for effect in effects if isinstance(effect, Answer)]

    def answers_to(self, request: Request, request_id: int = 0) -> list[Answer]:
        """Answers to a request, and to earlier ones that have waited for it."""
        return self.perform(self.shard.decide(request_id, request, self.now))

    def ask(self, request: Request, expected: type[ReplyT]) -> ReplyT:
        (answer,) = self.answers_to(request, 7)
        assert answer.to == 7
        assert isinstance(answer.reply, expected)
        return answer.reply

    def written(
        self, markers: SendMarkers, partitions: Iterable[TopicPartition] | None = None
    ) -> None:
        """Report markers of this effect as written; all of them unless some are named."""
        assert self.answers_to(written(markers, partitions)) == []

    def all_written(self) -> None:
        """Write every marker that was required so far."""
        sent, self.markers = self.markers, []
        for markers in sent:
            self.written(markers)

    def advance(self, ms: int) -> None:
        """Let time pass, and wake the shard whenever that is due."""
        self.woken(ms)

    def woken(self, ms: int) -> list[Answer]:
        """Answers to requests that have waited, after so much time."""
        answers: list[Answer] = []
        self.instant, self.wall = self.instant + ms, self.wall + ms
        while (due := self.shard.next_deadline()) is not None and due <= self.instant:
            answers += self.perform(self.shard.wake(self.now))
        return answers

    def crash(self) -> None:
        """Load the shard at another owner, from a compacted log."""
        self.markers = []
        self.shard = TxnShard(self.settings)
        for record in compacted(self.log):
            self.shard.replay(record, None)
        self.perform(self.shard.loaded(self.now))

    # Requests in short.

    def init(
        self, transactional_id: str = ID, *, pid: int = -1, epoch: int = -1
    ) -> InitTransactionalIdReply:
        request = InitTransactionalId(transactional_id, TIMEOUT_MS, next(self.spares), pid, epoch)
        return self.ask(request, InitTransactionalIdReply)

    def session(self, transactional_id: str = ID) -> tuple[int, int]:
        """Return producer id and epoch of a new session."""
        reply = self.init(transactional_id)
        assert reply.error_code == 0, reply
        return reply.producer_id, reply.producer_epoch

    def add(
        self,
        session: tuple[int, int],
        *partitions: TopicPartition,
        v2: bool = False,
        verify: bool = False,
        transactional_id: str = ID,
    ) -> AddPartitionsReply:
        request = AddPartitions(transactional_id, *session, partitions, verify, v2)
        return self.ask(request, AddPartitionsReply)

    def end(
        self,
        session: tuple[int, int],
        *,
        commit: bool = True,
        v2: bool = False,
        transactional_id: str = ID,
    ) -> EndTransactionReply:
        request = EndTransaction(transactional_id, *session, commit, v2, next(self.spares))
        return self.ask(request, EndTransactionReply)

    def begin(
        self, transactional_id: str = ID, *, abort_previous: bool = False, attempt: bytes = b""
    ) -> BeginTransactionReply:
        request = BeginTransaction(transactional_id, TIMEOUT_MS, abort_previous, attempt)
        return self.ask(request, BeginTransactionReply)

    def handle(self, transactional_id: str = ID) -> str:
        reply = self.begin(transactional_id)
        assert reply.error_code == 0, reply
        return reply.handle

    def enlist(self, handle: str, writer: str) -> EnlistWriterReply:
        return self.ask(EnlistWriter(handle, writer, next(self.spares)), EnlistWriterReply)

    def writer(self, handle: str, writer: str, *partitions: TopicPartition) -> CountedWriter:
        """Return a writer that has written to these partitions."""
        reply = self.enlist(handle, writer)
        assert reply.error_code == 0, reply
        if partitions:
            added = self.add((reply.producer_id, reply.producer_epoch), *partitions, v2=True)
            assert added.error_code == 0, added
        return CountedWriter(writer, reply.producer_id, reply.producer_epoch)

    def finish(
        self, handle: str, *winners: CountedWriter, commit: bool = True
    ) -> FinishTransactionReply:
        return self.ask(FinishTransaction(handle, commit, winners), FinishTransactionReply)

    def enlist_in(
        self, batch_id: int, writer: str = "a", *, query: str = "q", sink: str = ID
    ) -> EnlistInBatchReply:
        request = EnlistInBatch(sink, query, batch_id, writer, TIMEOUT_MS, next(self.spares))
        return self.ask(request, EnlistInBatchReply)

    def batch_writer(
        self, batch_id: int, writer: str, *partitions: TopicPartition, query: str = "q"
    ) -> CountedWriter:
        """Return a writer of a batch that has written to these partitions."""
        reply = self.enlist_in(batch_id, writer, query=query)
        assert (reply.error_code, reply.committed) == (0, False), reply
        if partitions:
            added = self.add((reply.producer_id, reply.producer_epoch), *partitions, v2=True)
            assert added.error_code == 0, added
        return CountedWriter(writer, reply.producer_id, reply.producer_epoch)

    def keep_alive(self, handle: str) -> KeepBatchAliveReply:
        return self.ask(KeepBatchAlive(handle), KeepBatchAliveReply)

    def finish_batch(
        self,
        batch_id: int,
        *winners: CountedWriter,
        query: str = "q",
        note: str = "",
        commit: bool = True,
    ) -> FinishBatchReply:
        request = FinishBatch(ID, query, batch_id, commit, winners, note)
        return self.ask(request, FinishBatchReply)

    def committed_batch(self, batch_id: int, *, query: str = "q", note: str = "") -> CountedWriter:
        """A batch of one writer, with all of its markers written."""
        winner = self.batch_writer(batch_id, "a", P0, query=query)
        reply = self.finish_batch(batch_id, winner, query=query, note=note)
        assert reply.first, reply
        self.all_written()
        return winner

    def forget(self, *, abort_open: bool = False) -> ForgetSinkReply:
        return self.ask(ForgetSink(ID, abort_open), ForgetSinkReply)

    def view(self, transactional_id: str = ID) -> TransactionView:
        reply = self.ask(DescribeTransactions((transactional_id,)), DescribeTransactionsReply)
        return reply.transactions[0]

    def state(self, transactional_id: str = ID) -> str:
        return self.view(transactional_id).state


def written(
    markers: SendMarkers, partitions: Iterable[TopicPartition] | None = None
) -> MarkersWritten:
    """The report that markers of this effect are written; all of them unless some are named."""
    return MarkersWritten(
        markers.transactional_id,
        markers.producer_id,
        markers.producer_epoch,
        markers.prepared_at,
        tuple(markers.partitions if partitions is None else partitions),
    )


def key_of(record: TxnRecord) -> bytes:
    return encode(record)[0]


def compacted(log: list[TxnRecord]) -> list[TxnRecord]:
    """The last record of each key, read back from its bytes."""
    last = {key_of(record): position for position, record in enumerate(log)}
    kept = []
    for position, record in enumerate(log):
        if last[key_of(record)] == position:
            read = decode(*encode(record))
            assert read == record
            kept.append(record)
    return kept


def a_record(**changes: object) -> TransactionRecord:
    """A session without a transaction."""
    fields: dict[str, object] = {
        "transactional_id": ID,
        "producer_id": 7,
        "producer_epoch": 3,
        "timeout_ms": TIMEOUT_MS,
        "state": TransactionState.EMPTY,
        "updated_at": 1_000,
    }
    return TransactionRecord(**{**fields, **changes})  # type: ignore[arg-type]
