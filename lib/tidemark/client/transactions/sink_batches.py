"""Sink batches: what a streaming query writes in one batch becomes visible once, however often the
batch is replayed and by whomever.

    tasks, any processes                               the driver, any process
    enlist(batch, "task-3") --> BatchWriter              commit(batch, [receipt, ...])
      writer.send(...), flush()                            BatchOutcome(committed, first, note)
      str(writer.receipt())     ----------------->

A batch is known by (sink, query, batch id). The first enlisting opens its transaction; writers keep
it open for as long as they are. The first commit wins: all else that was written for the batch is
aborted, and who comes later hears that it is done.
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
from tidemark.client.transactions.multi_writer import TransactionClient, Writer, WriterReceipt
from tidemark.client.transactions.offsets import commit_offsets
from tidemark.client.wire.coordinator import Coordinator
from tidemark.client.wire.transport import ProducerIdentity
from tidemark.model.errors import ErrorCode
from tidemark.model.topics import TopicPartition

GroupOffsets = tuple[str, Mapping[TopicPartition, int]]
"""A group, and the offsets of the next records that it has to read."""

_ENDED = (ProducerFencedError, InvalidTransactionStateError, AbortableTransactionError)
_KEEP_ALIVE_PART = 3
"""Of a timeout, after which the coordinator is told to go on waiting."""
_KEEP_ALIVE_MS_MIN = 10


class BatchCommittedError(ClientError):
    """The batch was committed before: there is nothing to write. ``note`` is of that commit."""

    hint = "leave the batch out, and go on with the next one"

    def __init__(self, message: str, note: str) -> None:
        super().__init__(ErrorCode.INVALID_TXN_STATE, message)
        self.note = note


class StaleBatchError(InvalidTransactionStateError):
    """The query has committed, or has open, a later batch than this one."""

    hint = (
        "the checkpoint is older than what the sink has: restore the latest one, or start a new"
        " query, which writes everything again"
    )


class RetiredQueryError(ProducerFencedError):
    """Another query took the sink over, and this one never gets it back."""

    hint = "stop this query, or give it a sink id of its own"


class BatchId(NamedTuple):
    """Names a batch wherever it is worked on."""

    sink_id: str
    query_id: str
    batch_id: int
    """From 0 on, rising within a query."""

    def __str__(self) -> str:
        return f"batch {self.batch_id} of query {self.query_id!r} into sink {self.sink_id!r}"


class BatchOutcome(NamedTuple):
    """How a batch ended."""

    committed: bool
    first: bool
    """By this very call; False when it was known before, which a lost answer may be the cause
    of.
    """
    note: str
    """Of the first commit."""
    same_writers: bool = False
    """The first commit named the same writers as this one: what they wrote is what counts."""


class SinkDescription(NamedTuple):
    """What is known of a sink."""

    query_id: str
    """Whose batches it takes."""
    batch_id: int | None
    """The last one that this query committed; None: none yet."""
    note: str
    """Of that commit."""
    retired: tuple[str, ...]
    """Queries that it was taken over from, oldest first."""
    open_batch: int | None


class _Enlisted(NamedTuple):
    receipt: WriterReceipt
    handle: str
    retired_query_id: str


class SinkBatches(TransactionClient):
    """``async with SinkBatches("host:9292") as sink``: bootstrap servers are gRPC addresses."""

    async def enlist(
        self,
        batch: BatchId,
        writer: str,
        config: ProducerConfig | None = None,
        *,
        timeout_ms: int = 60_000,
        **producer_settings: Any,
    ) -> "BatchWriter":
        """A producer in the batch's transaction, in the slot named ``writer``; enlisting the same
        slot again fences whoever had it. Use it by ``async with``, or ``start`` it.

        An older batch that the query left open is aborted; a query that is new to the sink takes it
        over. Nobody keeping the batch alive for ``timeout_ms``, it is aborted.

        Raises BatchCommittedError, StaleBatchError, RetiredQueryError.
        """
        enlisted = await self._enlist(batch, writer, timeout_ms)
        addresses = await self.kafka_addresses()
        inherited = {"transactional_id": batch.sink_id, "client_id": self.config.client_id}
        return BatchWriter(
            addresses,
            config,
            receipt=enlisted.receipt,
            retired_query_id=enlisted.retired_query_id,
            keep_alive=lambda: self._keep_alive(batch, enlisted.handle, timeout_ms),
            keep_alive_ms=_keep_alive_ms(timeout_ms),
            **(inherited | producer_settings),
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
        """Commit what ``writers`` wrote and abort the rest, unless the batch is committed already.

        ``note`` is kept with the commit (at most 4 KiB of UTF-8). ``group_offsets`` are committed
        in the same transaction, as by a consumer that is no member; ``offsets_written`` is called
        when they are part of it. ``timeout_ms`` is for a batch that this opens. Flush writers
        before.

        Raises InvalidTransactionStateError when the batch was aborted meanwhile: write it again.
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
        """Give the batch up, so that it can be written anew; one that is committed stays so."""
        return await self._finish(batch, [], "", commit=False)

    async def describe(self, sink_id: str, *, timeout_ms: int | None = None) -> SinkDescription:
        """What is known of a sink. Raises TransactionalIdNotFoundError."""
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
                f"transactional id {sink_id!r} is no sink's",
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
        """Lose all that is known of a sink: whatever query comes writes all of its batches again.

        False when nothing was known. Raises InvalidTransactionStateError while a batch is open,
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

    # ---- within

    async def _enlist(self, batch: BatchId, writer: str, timeout_ms: int) -> _Enlisted:
        request = txn_pb2.EnlistInBatchRequest(
            caller=self.calls.caller(),
            sink_id=batch.sink_id,
            query_id=batch.query_id,
            batch_id=batch.batch_id,
            writer=writer,
            transaction_timeout_ms=timeout_ms,
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
        """By a writer of its own, which nobody else enlists: two drivers do not fence each
        other.
        """
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
        """What ended the batch between our enlisting and our writing: a commit, or ``problem`` is
        raised.
        """
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
        )
        answer = await self.calls.until(
            self.deadline(),
            f"{'committing' if commit else 'aborting'} {batch}",
            lambda stub, timeout: stub.FinishBatch(request, timeout=timeout),
            _batch_problem,
        )
        return BatchOutcome(answer.committed, answer.first, answer.note, answer.same_writers)


class BatchWriter(Writer):
    """A writer that keeps its batch open for as long as it is open itself."""

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
        """Until the query's first commit: whom it took the sink over from; '': nobody."""
        self._keep_alive = keep_alive
        self._keep_alive_ms = keep_alive_ms

    async def start(self) -> Self:
        """Begin; connects when the first record is sent. ``async with`` does it for you."""
        await super().start()
        self._session.spawn(self._stay_alive(), name="batch-keep-alive")
        return self

    async def _stay_alive(self) -> None:
        """Until the writer is closed, or its batch has ended: then no record of it will count."""
        while True:
            await asyncio.sleep(self._keep_alive_ms / 1_000)
            try:
                await self._keep_alive()
            except ClientError as problem:
                if not problem.retriable:
                    self._on_failed(problem)
                    return


def _batch_problem(answer: Any, doing: str) -> ClientError | None:
    """The error in an answer about a batch, by why it is refused where that is said."""
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
