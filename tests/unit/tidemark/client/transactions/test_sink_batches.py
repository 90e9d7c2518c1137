"""Sink batches over real gRPC against scripted answers; records go to a cluster in memory."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest
from tidemark.client.errors import (
    ClientError,
    InvalidTransactionStateError,
    ProducerFencedError,
    TransactionalIdNotFoundError,
)
from tidemark.client.sync import SinkBatches as SyncSinkBatches
from tidemark.client.transactions.multi_writer import WriterReceipt
from tidemark.client.transactions.sink_batches import (
    BatchCommittedError,
    BatchId,
    BatchOutcome,
    RetiredQueryError,
    SinkBatches,
    SinkDescription,
    StaleBatchError,
)
from tidemark.model.errors import ErrorCode
from tidemark.model.topics import TopicPartition
from tidemark_wire.v1 import txn_pb2 as pb
from tidemark_wire.v1 import txn_pb2_grpc
from unit.tidemark.client.clients import run_with_sockets as run
from unit.tidemark.client.coordinators import QUICK, ZERO, into, served
from unit.tidemark.client.memory_transport import MemoryTransport
from virtual_time import run_skipping, skip, skip_until

BATCH = BatchId("sink", "q", 7, expires=True)


def batch_of(asked: Any) -> BatchId:
    return BatchId(asked.sink_id, asked.query_id, asked.batch_id, asked.expires)


HANDLE = "1.1.1.sink"
ENLISTED = pb.EnlistInBatchResponse(handle=HANDLE, producer_id=9, producer_epoch=2)
CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS
OLD = ErrorCode.INVALID_TXN_STATE
RETIRED = pb.BATCH_REFUSAL_RETIRED_QUERY
STALE = pb.BATCH_REFUSAL_STALE_BATCH


class ScriptedCoordinator(txn_pb2_grpc.TransactionCoordinatorServicer):
    """``answers`` by kind of request, in turn; the last one for ever after."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.answers: dict[str, list[Any]] = {
            "EnlistInBatchRequest": [ENLISTED],
            "KeepBatchAliveRequest": [pb.KeepBatchAliveResponse()],
        }

    def _answer(self, request: Any) -> Any:
        self.asked.append(request)
        answers = self.answers[type(request).__name__]
        return answers.pop(0) if len(answers) > 1 else answers[0]

    async def EnlistInBatch(self, request: Any, context: Any) -> Any:  # noqa: N802
        return self._answer(request)

    async def KeepBatchAlive(self, request: Any, context: Any) -> Any:  # noqa: N802
        return self._answer(request)

    async def FinishBatch(self, request: Any, context: Any) -> Any:  # noqa: N802
        return self._answer(request)

    async def ForgetSink(self, request: Any, context: Any) -> Any:  # noqa: N802
        return self._answer(request)

    async def DescribeTransactions(self, request: Any, context: Any) -> Any:  # noqa: N802
        return self._answer(request)

    def will_finish(self, *answers: pb.FinishBatchResponse) -> None:
        self.answers["FinishBatchRequest"] = list(answers)

    def will_describe(self, state: pb.TransactionState) -> None:
        answer = pb.DescribeTransactionsResponse(transactions=[state])
        self.answers["DescribeTransactionsRequest"] = [answer]

    def of(self, kind: type[Any]) -> list[Any]:
        return [request for request in self.asked if isinstance(request, kind)]


def use(work: Callable[[SinkBatches, ScriptedCoordinator], Awaitable[None]]) -> None:
    async def scenario() -> None:
        async with (
            served(ScriptedCoordinator()) as (address, coordinator),
            SinkBatches(address, **QUICK) as sink,
        ):
            await work(sink, coordinator)

    run_skipping(scenario())


MINUTE_S, KEPT_FOR_MS = 60, 90_000
"""More than a third passes: the batch is due to be kept alive."""


async def keep_alive(coordinator: ScriptedCoordinator) -> None:
    """Let so much time pass that an open writer keeps its batch alive."""
    count = len(coordinator.of(pb.KeepBatchAliveRequest))
    await skip_until(lambda: len(coordinator.of(pb.KeepBatchAliveRequest)) > count, MINUTE_S)


@pytest.mark.feature("Y02")
def test_a_task_writes_with_the_identity_that_it_was_given() -> None:
    cluster = MemoryTransport()

    async def work(sink: SinkBatches, coordinator: ScriptedCoordinator) -> None:
        async with into(await sink.enlist(BATCH, "w", timeout_ms=5_000), cluster) as writer:
            await writer.send("t", b"v")
            assert writer.receipt() == WriterReceipt("w", 9, 2)
        (asked,) = coordinator.asked
        assert (batch_of(asked), asked.writer) == (BATCH, "w")
        assert asked.transaction_timeout_ms == 5_000

    use(work)
    assert cluster.logs[ZERO].headers()[0].producer_id == 9
    assert cluster.transactional_ids == ["sink"]


def test_a_batch_that_is_done_is_told_with_its_note() -> None:
    async def work(sink: SinkBatches, coordinator: ScriptedCoordinator) -> None:
        done = pb.EnlistInBatchResponse(committed=True, note="ten rows")
        coordinator.answers["EnlistInBatchRequest"] = [done]
        with pytest.raises(BatchCommittedError, match="batch 7 of query 'q' into sink") as told:
            await sink.enlist(BATCH, "w")
        assert told.value.note == "ten rows"

    use(work)


@pytest.mark.parametrize(
    ("code", "refusal", "kind", "also"),
    [
        (OLD, STALE, StaleBatchError, InvalidTransactionStateError),
        (ErrorCode.PRODUCER_FENCED, RETIRED, RetiredQueryError, ProducerFencedError),
    ],
)
def test_who_is_refused_hears_why(
    code: ErrorCode, refusal: Any, kind: type[ClientError], also: type[ClientError]
) -> None:
    async def work(sink: SinkBatches, coordinator: ScriptedCoordinator) -> None:
        refused = {"error_code": code, "error_message": "because", "refusal": refusal}
        coordinator.answers["EnlistInBatchRequest"] = [pb.EnlistInBatchResponse(**refused)]
        coordinator.will_finish(pb.FinishBatchResponse(**refused))
        for asking in (sink.enlist(BATCH, "w"), sink.commit(BATCH), sink.abort(BATCH)):
            with pytest.raises(kind, match="failed: because; ") as told:
                await asking
            assert isinstance(told.value, also)

    use(work)


def test_a_fenced_winner_is_no_retired_query() -> None:
    async def work(sink: SinkBatches, coordinator: ScriptedCoordinator) -> None:
        coordinator.will_finish(pb.FinishBatchResponse(error_code=ErrorCode.PRODUCER_FENCED))
        with pytest.raises(ProducerFencedError) as told:
            await sink.commit(BATCH, [WriterReceipt("w", 9, 2)])
        assert not isinstance(told.value, RetiredQueryError)

    use(work)


def test_what_is_being_ended_is_waited_for() -> None:
    async def work(sink: SinkBatches, coordinator: ScriptedCoordinator) -> None:
        later = pb.EnlistInBatchResponse(error_code=CONCURRENT)
        coordinator.answers["EnlistInBatchRequest"] = [later, later, ENLISTED]
        await sink.enlist(BATCH, "w")
        assert len(coordinator.asked) == 3

    use(work)


def test_a_commit_names_its_winners_and_says_how_it_ended() -> None:
    async def work(sink: SinkBatches, coordinator: ScriptedCoordinator) -> None:
        first = pb.FinishBatchResponse(committed=True, first=True, note="n", same_writers=True)
        coordinator.will_finish(first)
        outcome = await sink.commit(BATCH, [WriterReceipt("w", 9, 2)], note="n")
        assert outcome == BatchOutcome(committed=True, first=True, note="n", same_writers=True)
        (asked,) = coordinator.asked
        assert batch_of(asked) == BATCH
        assert [(one.writer, one.producer_id) for one in asked.writers] == [("w", 9)]
        assert (asked.commit, asked.note) == (True, "n")

    use(work)


def test_an_abort_names_nobody() -> None:
    async def work(sink: SinkBatches, coordinator: ScriptedCoordinator) -> None:
        coordinator.will_finish(pb.FinishBatchResponse())
        assert await sink.abort(BATCH) == BatchOutcome(committed=False, first=False, note="")
        (asked,) = coordinator.asked
        assert (asked.commit, len(asked.writers)) == (False, 0)

    use(work)


def test_no_offsets_are_written_for_a_batch_that_is_done() -> None:
    async def work(sink: SinkBatches, coordinator: ScriptedCoordinator) -> None:
        done = pb.EnlistInBatchResponse(committed=True, note="n")
        coordinator.answers["EnlistInBatchRequest"] = [done]
        outcome = await sink.commit(BATCH, group_offsets=("g", {ZERO: 5}))
        assert outcome == BatchOutcome(committed=True, first=False, note="n")
        (asked,) = coordinator.asked
        assert asked.writer.startswith("offsets.")

    use(work)


def test_without_offsets_nobody_is_enlisted_for_them() -> None:
    async def work(sink: SinkBatches, coordinator: ScriptedCoordinator) -> None:
        coordinator.will_finish(pb.FinishBatchResponse(committed=True))
        await sink.commit(BATCH, group_offsets=("g", {}))
        assert coordinator.of(pb.EnlistInBatchRequest) == []

    use(work)


def test_a_writer_keeps_its_batch_alive_while_it_is_open() -> None:
    async def work(sink: SinkBatches, coordinator: ScriptedCoordinator) -> None:
        writer = into(await sink.enlist(BATCH, "w", timeout_ms=KEPT_FOR_MS), MemoryTransport())
        async with writer:
            for _ in range(3):
                await keep_alive(coordinator)
        kept = coordinator.of(pb.KeepBatchAliveRequest)
        assert {request.handle for request in kept} == {HANDLE}
        skip(MINUTE_S)
        await sink.enlist(BATCH, "w")
        assert coordinator.of(pb.KeepBatchAliveRequest) == kept

    use(work)


def test_a_writer_whose_batch_ended_does_not_count() -> None:
    async def work(sink: SinkBatches, coordinator: ScriptedCoordinator) -> None:
        ended = pb.KeepBatchAliveResponse(error_code=OLD, error_message="the batch was aborted")
        passing = pb.KeepBatchAliveResponse(error_code=ErrorCode.NOT_COORDINATOR)
        coordinator.answers["KeepBatchAliveRequest"] = [passing, ended]
        writer = into(await sink.enlist(BATCH, "w", timeout_ms=KEPT_FOR_MS), MemoryTransport())
        await writer.start()
        await skip_until(lambda: writer.failure is not None, MINUTE_S)
        with pytest.raises(InvalidTransactionStateError, match=r"keeping batch 7 .* was aborted"):
            writer.receipt()
        await writer.close(timeout_ms=0)

    use(work)


def test_a_sink_is_described() -> None:
    async def work(sink: SinkBatches, coordinator: ScriptedCoordinator) -> None:
        known = pb.SinkState(
            query_id="q",
            committed_batch_id=7,
            note="n",
            retired_query_ids=["a", "b"],
            open_batch_id=-1,
        )
        coordinator.will_describe(pb.TransactionState(transactional_id="sink", sink=known))
        expected = SinkDescription("q", 7, "n", ("a", "b"), None)
        assert await sink.describe("sink") == expected

    use(work)


@pytest.mark.parametrize("code", [ErrorCode.NONE, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND])
def test_what_is_no_sink_is_not_described(code: ErrorCode) -> None:
    async def work(sink: SinkBatches, coordinator: ScriptedCoordinator) -> None:
        coordinator.will_describe(pb.TransactionState(transactional_id="sink", error_code=code))
        with pytest.raises(TransactionalIdNotFoundError):
            await sink.describe("sink")

    use(work)


def test_a_sink_is_forgotten() -> None:
    async def work(sink: SinkBatches, coordinator: ScriptedCoordinator) -> None:
        coordinator.answers["ForgetSinkRequest"] = [
            pb.ForgetSinkResponse(error_code=CONCURRENT),
            pb.ForgetSinkResponse(forgotten=True),
        ]
        assert await sink.forget("sink", abort_open=True)
        assert [(one.sink_id, one.abort_open) for one in coordinator.asked] == [("sink", True)] * 2

    use(work)


def test_the_same_without_await() -> None:
    def work(address: str) -> None:
        with SyncSinkBatches(address, **QUICK) as sink:
            with sink.enlist(BATCH, "w") as writer:
                assert writer.retired_query_id == "old"
                receipt = writer.receipt()
            assert sink.commit(BATCH, [receipt], note="n").first
            assert not sink.abort(BATCH).first
            assert sink.describe("sink").open_batch == 8
            assert sink.forget("sink")

    async def scenario() -> None:
        async with served(ScriptedCoordinator()) as (address, coordinator):
            enlisted = pb.EnlistInBatchResponse(
                handle=HANDLE, producer_id=9, retired_query_id="old"
            )
            coordinator.answers["EnlistInBatchRequest"] = [enlisted]
            coordinator.will_finish(
                pb.FinishBatchResponse(committed=True, first=True),
                pb.FinishBatchResponse(committed=True),
            )
            coordinator.will_describe(pb.TransactionState(sink=pb.SinkState(open_batch_id=8)))
            coordinator.answers["ForgetSinkRequest"] = [pb.ForgetSinkResponse(forgotten=True)]
            await asyncio.to_thread(work, address)

    run(scenario())


class OvertakenBatches(SinkBatches):
    """Another driver ends the batch before the offsets are written."""

    async def _write_offsets(
        self, batch: BatchId, group_id: str, offsets: Mapping[TopicPartition, int], timeout_ms: int
    ) -> WriterReceipt:
        raise ProducerFencedError(ErrorCode.INVALID_PRODUCER_EPOCH, "the batch has ended")


@pytest.mark.parametrize("query_id", ["q", "another"])
def test_a_batch_that_ends_while_offsets_are_written_may_be_committed(query_id: str) -> None:
    async def scenario() -> None:
        known = pb.SinkState(query_id=query_id, committed_batch_id=7, note="n", open_batch_id=-1)
        async with served(ScriptedCoordinator()) as (address, coordinator):
            coordinator.will_describe(pb.TransactionState(transactional_id="sink", sink=known))
            async with OvertakenBatches(address, **QUICK) as sink:
                committing = sink.commit(BATCH, group_offsets=("g", {ZERO: 5}))
                if query_id == "q":
                    assert await committing == BatchOutcome(committed=True, first=False, note="n")
                    return
                with pytest.raises(ProducerFencedError, match="the batch has ended"):
                    await committing

    run(scenario())
