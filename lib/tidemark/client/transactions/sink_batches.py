"""Sink batches: the output of one batch of a streaming query becomes visible exactly once.

    tasks, any processes                               the driver, any process
    enlist(batch, "task-3") --> BatchWriter              commit(batch, [receipt, ...])
      writer.send(...), flush()                            BatchOutcome(committed, first, note)
      str(writer.receipt())     ----------------->

A batch is identified by (sink, query, batch id), however often and by whichever process it is
replayed. The first writer opens its transaction, and open writers keep it alive. The first commit
wins: all other records of the batch are aborted, and later commits return its outcome.
"""

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Self

from tidemark_wire.v1 import txn_pb2

from tidemark.client.config import ProducerConfig
from tidemark.client.consumer.group_types import GroupMetadata, as_offsets
from tidemark.client.errors import (
    AbortableTransactionError,
    ClientError,
    InvalidTransactionStateError,
    ProducerFencedError,
    TransactionalIdNotFoundError,
)
from tidemark.client.transactions.control import error_answered
from tidemark.client.transactions.multi_writer import (
    TransactionClient,
    Writer,
    WriterReceipt,
    inherited_by_writers,
)
from tidemark.client.transactions.offsets import commit_offsets
from tidemark.client.wire.coordinator import Coordinator
from tidemark.client.wire.transport import ProducerIdentity
from tidemark.model.errors import ErrorCode
from tidemark.model.topics import TopicPartition

GroupOffsets = tuple[str, Mapping[TopicPartition, int]]
"""Group id, and the offset of the next record to read in each partition."""

_ENDED = (ProducerFencedError, InvalidTransactionStateError, AbortableTransactionError)
_KEEP_ALIVE_PART = 3
"""Divisor of the transaction's timeout: the interval of keep-alive calls."""
_KEEP_ALIVE_MS_MIN = 10


class BatchCommittedError(ClientError):
    """The batch was committed before, so there is nothing to write. ``note`` is that commit's."""

    hint = "leave the batch out, and go on with the next one"

    def __init__(self, message: str, note: str) -> None:
        super().__init__(ErrorCode.INVALID_TXN_STATE, message)
        self.note = note


class StaleBatchError(InvalidTransactionStateError):
    """The query has already committed or opened a later batch."""

    hint = (
        "the checkpoint is older than what the sink has: restore the latest one, or start a new"
        " query, which writes everything again"
    )


class RetiredQueryError(ProducerFencedError):
    """Another query has taken over the sink. This query cannot write to it again."""

    hint = "stop this query, or give it a sink id of its own"


class BatchId(NamedTuple):
    """Identity of a batch, in all processes that work on it."""

    sink_id: str
    query_id: str
    batch_id: int
    """Starts at 0 and rises within a query."""
    expires: bool = False
    """The sink is used once: its state expires as an unused transactional id does."""

    def __str__(self) -> str:
        return f"batch {self.batch_id} of query {self.query_id!r} into sink {self.sink_id!r}"


class BatchOutcome(NamedTuple):
    """Result of a batch."""

    committed: bool
    first: bool
    """True if this call committed the batch; False if an earlier one did."""
    note: str
    """Note of the first commit."""
    same_writers: bool = False
    """True if the first commit named the same writers, whose records are therefore committed."""


class SinkDescription(NamedTuple):
    """State of a sink."""

    query_id: str
    """Query that owns the sink."""
    batch_id: int | None
    """Last batch that this query has committed; None without one."""
    note: str
    """Note of that commit."""
    retired: tuple[str, ...]
    """Earlier owners of the sink, oldest first."""
    open_batch: int | None


class _Enlisted(NamedTuple):
    receipt: WriterReceipt
    handle: str
    retired_query_id: str


class SinkBatches(TransactionClient):
    """Exactly-once batches: ``async with SinkBatches("host:9292") as sink``.

    Bootstrap servers are gRPC addresses.
    """

    async def enlist(
        self,
        batch: BatchId,
        writer: str,
        config: ProducerConfig | None = None,
        *,
        timeout_ms: int = 60_000,
        **producer_settings: Any,
    ) -> "BatchWriter":
        """Enlist a writer in the batch's transaction, in the slot named ``writer``.

        Enlisting the same slot again fences its previous writer. Use the writer with ``async
        with``, or ``start`` it. An older open batch of the query is aborted; a query that is new to
        the sink takes it over. Without a keep-alive for ``timeout_ms`` the batch is aborted.

        Raises BatchCommittedError, StaleBatchError, RetiredQueryError.
        """
        enlisted = await self._enlist(batch, writer, timeout_ms)
        addresses = await self.kafka_addresses()
        return BatchWriter(
            addresses,
            config,
            receipt=enlisted.receipt,
            retired_query_id=enlisted.retired_query_id,
            keep_alive=lambda: self._keep_alive(batch, enlisted.handle, timeout_ms),
            keep_alive_ms=_keep_alive_ms(timeout_ms),
            **(inherited_by_writers(self.config, batch.sink_id) | producer_settings),
        )

    async def commit(
        self,
        batch: BatchId,
        writers: Iterable[Writer | WriterReceipt] = (),
        *,
        note: str = "",
        group_offsets: GroupOffsets | None = None,
        offsets_written: Callable[[], None] | None = None,
        timeout_ms: int = 60_000,
    ) -> BatchOutcome:
        """Commit the records of ``writers`` and abort all others, unless the batch is already
        committed.

        ``note`` (at most 4 KiB of UTF-8) is stored with the commit. ``group_offsets`` are committed
        in the same transaction, as by a consumer that is not a member; ``offsets_written`` is
        called when they are part of it. ``timeout_ms`` applies if this call opens the batch. Flush
        the writers before.

        Raises InvalidTransactionStateError if the batch was aborted: write it again.
        """
        receipts = _receipts(writers)
        if group_offsets is not None and group_offsets[1]:
            try:
                receipts.append(await self._write_offsets(batch, *group_offsets, timeout_ms))
                if offsets_written is not None:
                    offsets_written()
            except BatchCommittedError as done:
                return BatchOutcome(committed=True, first=False, note=done.note)
            except _ENDED as problem:
                return await self._committed_by_another(batch, problem)
        return await self._finish(batch, receipts, note, commit=True)

    async def abort(self, batch: BatchId) -> BatchOutcome:
        """Abort the batch, so that it can be written again; a committed batch stays committed."""
        return await self._finish(batch, [], "", commit=False)

    async def describe(self, sink_id: str, *, timeout_ms: int | None = None) -> SinkDescription:
        """Return the state of a sink. Raises TransactionalIdNotFoundError."""
        request = txn_pb2.DescribeTransactionsRequest(
            caller=self.calls.caller(), transactional_ids=[sink_id]
        )

        def problem_of(answer: Any, doing: str) -> ClientError | None:
            return error_answered(answer.transactions[0], doing)

        answer = await self.calls.until(
            self.deadline(timeout_ms),
            f"describing sink {sink_id!r}",
            lambda stub, timeout: stub.DescribeTransactions(request, timeout=timeout),
            problem_of,
        )
        found = answer.transactions[0]
        if not found.HasField("sink"):
            raise TransactionalIdNotFoundError(
                ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
                f"transactional id {sink_id!r} does not belong to a sink",
                hint="no batch was ever written under it",
            )
        sink = found.sink
        return SinkDescription(
            sink.query_id,
            _or_none(sink.committed_batch_id),
            sink.note,
            tuple(sink.retired_query_ids),
            _or_none(sink.open_batch_id),
        )

    async def forget(self, sink_id: str, *, abort_open: bool = False) -> bool:
        """Delete the state of a sink: the next query writes all of its batches again.

        Returns False if there was none. Raises InvalidTransactionStateError while a batch is open,
        unless ``abort_open``.
        """
        request = txn_pb2.ForgetSinkRequest(
            caller=self.calls.caller(), sink_id=sink_id, abort_open=abort_open
        )
        answer = await self.calls.until(
            self.deadline(),
            f"forgetting sink {sink_id!r}",
            lambda stub, timeout: stub.ForgetSink(request, timeout=timeout),
        )
        return bool(answer.forgotten)

    # -- internals

    async def _enlist(self, batch: BatchId, writer: str, timeout_ms: int) -> _Enlisted:
        request = txn_pb2.EnlistInBatchRequest(
            caller=self.calls.caller(),
            sink_id=batch.sink_id,
            query_id=batch.query_id,
            batch_id=batch.batch_id,
            writer=writer,
            transaction_timeout_ms=timeout_ms,
            expires=batch.expires,
        )
        answer = await self.calls.until(
            self.deadline(),
            f"enlisting writer {writer!r} in {batch}",
            lambda stub, timeout: stub.EnlistInBatch(request, timeout=timeout),
            _batch_problem,
        )
        if answer.committed:
            raise BatchCommittedError(f"{batch} was committed before", answer.note)
        receipt = WriterReceipt(writer, answer.producer_id, answer.producer_epoch)
        return _Enlisted(receipt, answer.handle, answer.retired_query_id)

    async def _keep_alive(self, batch: BatchId, handle: str, timeout_ms: int) -> None:
        request = txn_pb2.KeepBatchAliveRequest(caller=self.calls.caller(), handle=handle)
        await self.calls.until(
            self.deadline(_keep_alive_ms(timeout_ms)),
            f"keeping {batch} alive",
            lambda stub, timeout: stub.KeepBatchAlive(request, timeout=timeout),
        )

    async def _write_offsets(
        self, batch: BatchId, group_id: str, offsets: Mapping[TopicPartition, int], timeout_ms: int
    ) -> WriterReceipt:
        """Commit offsets through a uniquely named writer, which no other driver fences."""
        writer = f"offsets.{uuid.uuid4().hex}"
        receipt = (await self._enlist(batch, writer, timeout_ms)).receipt
        await commit_offsets(
            Coordinator(self._session, self.config, self.clock, group_id),
            self.deadline(),
            batch.sink_id,
            ProducerIdentity(receipt.producer_id, receipt.producer_epoch),
            offsets=as_offsets(offsets),
            group=GroupMetadata(group_id),
        )
        return receipt

    async def _committed_by_another(self, batch: BatchId, problem: ClientError) -> BatchOutcome:
        """Return the outcome if another call has committed the batch, else raise ``problem``."""
        sink = await self.describe(batch.sink_id)
        if (sink.query_id, sink.batch_id) != (batch.query_id, batch.batch_id):
            raise problem
        return BatchOutcome(committed=True, first=False, note=sink.note)

    async def _finish(
        self, batch: BatchId, receipts: Sequence[WriterReceipt], note: str, *, commit: bool
    ) -> BatchOutcome:
        request = txn_pb2.FinishBatchRequest(
            caller=self.calls.caller(),
            sink_id=batch.sink_id,
            query_id=batch.query_id,
            batch_id=batch.batch_id,
            commit=commit,
            writers=[
                txn_pb2.FinishTransactionRequest.Writer(
                    writer=each.writer,
                    producer_id=each.producer_id,
                    producer_epoch=each.producer_epoch,
                )
                for each in receipts
            ],
            note=note,
            expires=batch.expires,
        )
        answer = await self.calls.until(
            self.deadline(),
            f"{'committing' if commit else 'aborting'} {batch}",
            lambda stub, timeout: stub.FinishBatch(request, timeout=timeout),
            _batch_problem,
        )
        return BatchOutcome(answer.committed, answer.first, answer.note, answer.same_writers)


class BatchWriter(Writer):
    """Writer that keeps its batch open until it is closed."""

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str],
        config: ProducerConfig | None = None,
        *,
        receipt: WriterReceipt,
        retired_query_id: str,
        keep_alive: Callable[[], Awaitable[None]],
        keep_alive_ms: int,
        **settings: Any,
    ) -> None:
        super().__init__(bootstrap_servers, config, receipt=receipt, **settings)
        self.retired_query_id = retired_query_id
        """Query from which this one took over the sink; '' if none, or after its first commit."""
        self._keep_alive = keep_alive
        self._keep_alive_ms = keep_alive_ms

    async def start(self) -> Self:
        """Start the writer; ``async with`` does this. It connects when the first record is sent."""
        await super().start()
        self._session.spawn(self._stay_alive(), name="batch-keep-alive")
        return self

    async def _stay_alive(self) -> None:
        """Send keep-alives until the writer is closed or its batch has ended."""
        while True:
            await asyncio.sleep(self._keep_alive_ms / 1_000)
            try:
                await self._keep_alive()
            except ClientError as problem:
                if not problem.retriable:
                    self._on_failed(problem)
                    return


def _batch_problem(answer: Any, doing: str) -> ClientError | None:
    """Return the error of an answer, by the reason for which the batch was refused."""
    problem = error_answered(answer, doing)
    if problem is None:
        return None
    what = f"{doing} failed: {answer.error_message}"
    if answer.refusal == txn_pb2.BATCH_REFUSAL_STALE_BATCH:
        return StaleBatchError(problem.code, what)
    if answer.refusal == txn_pb2.BATCH_REFUSAL_RETIRED_QUERY:
        return RetiredQueryError(problem.code, what)
    return problem


def _keep_alive_ms(timeout_ms: int) -> int:
    return max(_KEEP_ALIVE_MS_MIN, timeout_ms // _KEEP_ALIVE_PART)


def _receipts(writers: Iterable[Writer | WriterReceipt]) -> list[WriterReceipt]:
    return [each.receipt() if isinstance(each, Writer) else each for each in writers]


def _or_none(batch_id: int) -> int | None:
    return batch_id if batch_id >= 0 else None
