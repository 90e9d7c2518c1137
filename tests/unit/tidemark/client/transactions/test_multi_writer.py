"""Durable handles over real gRPC; records go to a cluster in memory."""

from collections.abc import Callable
from typing import Any, cast

import pytest
from manual_clock import ManualClock
from tidemark.client.config import ClientConfig
from tidemark.client.deadline import Deadline
from tidemark.client.errors import (
    AbortableTransactionError,
    ClientError,
    ConcurrentTransactionsError,
    ConnectionLostError,
    InvalidTransactionStateError,
)
from tidemark.client.transactions.control import CoordinatorCalls
from tidemark.client.transactions.multi_writer import (
    MalformedTokenError,
    TransactionHandle,
    Transactions,
    WriterReceipt,
)
from tidemark.client.transactions.transactional_producer import TransactionalProducer
from tidemark.codec.records import encode_record
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import InstantMs
from tidemark_wire.v1 import txn_pb2 as pb
from tidemark_wire.v1 import txn_pb2_grpc
from unit.tidemark.client.clients import run_with_sockets as run
from unit.tidemark.client.coordinators import QUICK, ZERO, into, served
from unit.tidemark.client.memory_transport import MemoryTransport
from virtual_time import LoopClock, run_virtual


class MemoryCoordinator(txn_pb2_grpc.TransactionCoordinatorServicer):
    """One transaction with slots; ``fails`` are answered first."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.fails: list[int] = []
        self.on_asked: Callable[[], None] = lambda: None
        self.slots: dict[str, tuple[int, int]] = {}
        self.outcome: bool | None = None
        self.epoch = 0

    def _code(self, request: Any) -> int:
        self.asked.append(request)
        self.on_asked()
        return self.fails.pop(0) if self.fails else 0

    async def InitTransactionalId(self, request: Any, context: Any) -> Any:  # noqa: N802
        code = self._code(request)
        return pb.InitTransactionalIdResponse(error_code=code, producer_id=9, producer_epoch=0)

    async def EndTransaction(self, request: Any, context: Any) -> Any:  # noqa: N802
        code = self._code(request)
        self.epoch += 1
        return pb.EndTransactionResponse(
            error_code=code, producer_id=9, producer_epoch=request.producer_epoch + 1
        )

    async def BeginTransaction(self, request: Any, context: Any) -> Any:  # noqa: N802
        return pb.BeginTransactionResponse(error_code=self._code(request), handle="h/1")

    async def EnlistWriter(self, request: Any, context: Any) -> Any:  # noqa: N802
        code = self._code(request)
        if self.outcome is not None:
            return pb.EnlistWriterResponse(error_code=ErrorCode.INVALID_TXN_STATE)
        known = self.slots.get(request.writer, (100 + len(self.slots), -1))
        slot = self.slots[request.writer] = (known[0], known[1] + 1)
        return pb.EnlistWriterResponse(error_code=code, producer_id=slot[0], producer_epoch=slot[1])

    async def FinishTransaction(self, request: Any, context: Any) -> Any:  # noqa: N802
        code = self._code(request)
        if self.outcome is None:
            self.outcome = None if code else request.commit
        elif self.outcome != request.commit:
            code = ErrorCode.INVALID_TXN_STATE
        return pb.FinishTransactionResponse(error_code=code, committed=bool(self.outcome))


@pytest.mark.feature("Y04")
def test_any_process_enlists_writers_and_any_other_commits_those_that_count() -> None:
    cluster = MemoryTransport()

    async def work() -> None:
        async with served(MemoryCoordinator()) as (address, coordinator):
            async with Transactions(address, **QUICK) as here:
                token = str(await here.begin_transaction("job", timeout_ms=5_000))
            receipts = []
            async with Transactions(address, **QUICK) as there:
                for name in ("a", "b"):
                    async with into(await there.resume(token).enlist(name), cluster) as writer:
                        await writer.send("t", name.encode())
                        receipts.append(str(writer.receipt()))
            async with Transactions(address, **QUICK) as elsewhere:
                counted = [WriterReceipt.parse(receipts[0])]
                handle = elsewhere.resume(token)
                assert await handle.finish(commit=True, writers=counted)
                assert await handle.finish(commit=True, writers=counted), "asked twice, done once"
        finish = coordinator.asked[-1]
        assert [(each.writer, each.producer_id) for each in finish.writers] == [("a", 100)]
        assert coordinator.asked[0].transaction_timeout_ms == 5_000

    run(work())
    headers = cluster.logs[ZERO].headers()
    assert [header.producer_id for header in headers] == [100, 101]
    assert all(header.is_transactional for header in headers)
    assert cluster.transactional_ids == ["job", "job"]


def test_enlisting_a_slot_again_gives_a_newer_epoch() -> None:
    async def work() -> None:
        async with (
            served(MemoryCoordinator()) as (address, _),
            Transactions(address, **QUICK) as transactions,
        ):
            handle = await transactions.begin_transaction("job")
            first = await handle.enlist("a")
            second = await handle.enlist("a")
            assert second.receipt() == first.receipt()._replace(producer_epoch=1)

    run(work())


def test_a_decided_transaction_takes_no_writers() -> None:
    async def work() -> None:
        async with (
            served(MemoryCoordinator()) as (address, _),
            Transactions(address, **QUICK) as transactions,
        ):
            handle = await transactions.begin_transaction("job")
            assert not await handle.finish(commit=False)
            assert not await handle.finish(commit=False), "the same, however often"
            with pytest.raises(InvalidTransactionStateError):
                await handle.finish(commit=True)
            with pytest.raises(InvalidTransactionStateError):
                await handle.enlist("late")

    run(work())


def test_a_writer_with_a_hole_takes_no_more_encoded_records() -> None:
    cluster = MemoryTransport()
    cluster.faults.append(ErrorCode.INVALID_PRODUCER_EPOCH)
    record = encode_record(0, 0, None, b"v")
    facts = {"count": 1, "first_timestamp": 7, "max_timestamp": 7}

    async def work() -> None:
        async with (
            served(MemoryCoordinator()) as (address, _),
            Transactions(address, **QUICK) as transactions,
        ):
            handle = await transactions.begin_transaction("job")
            writer = into(await handle.enlist("a"), cluster)
            await writer.start()
            delivery = await writer.send_encoded(ZERO, record, **facts)
            with pytest.raises(ClientError):
                await delivery
            with pytest.raises(ClientError):
                await writer.send_encoded(ZERO, record, **facts)
            await writer.close(timeout_ms=0)

    run(work())


def test_a_writer_with_a_hole_gives_no_receipt() -> None:
    cluster = MemoryTransport()
    cluster.faults.append(ErrorCode.INVALID_PRODUCER_EPOCH)

    async def work() -> None:
        async with (
            served(MemoryCoordinator()) as (address, _),
            Transactions(address, **QUICK) as transactions,
        ):
            handle = await transactions.begin_transaction("job")
            writer = into(await handle.enlist("a"), cluster)
            await writer.start()
            with pytest.raises(ClientError):
                await writer.send("t", b"v")
            with pytest.raises(ClientError, match="INVALID_PRODUCER_EPOCH"):
                writer.receipt()
            await writer.close(timeout_ms=0)

    run(work())


def test_what_passes_is_asked_again_and_an_open_transaction_is_told() -> None:
    clock, settings = ManualClock(), QUICK | {"request_timeout_ms": 300_000}

    async def work() -> None:
        async with (
            served(MemoryCoordinator()) as (address, coordinator),
            Transactions(address, clock=clock, **settings) as transactions,
        ):
            coordinator.fails = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * 2
            await transactions.begin_transaction("job")
            (attempt_id,) = {each.attempt_id for each in coordinator.asked}
            coordinator.fails = [ErrorCode.CONCURRENT_TRANSACTIONS] * 3
            coordinator.on_asked = lambda: clock.advance(120_000)
            with pytest.raises(ConcurrentTransactionsError, match="finish it by its handle"):
                await transactions.begin_transaction("job")
            assert not coordinator.fails
            assert coordinator.asked[-1].attempt_id not in (b"", attempt_id)

    run(work())


class PassingClock(LoopClock):
    """The loop's time, and what passes in calls."""

    passed_ms = 0

    def now_ms(self) -> InstantMs:
        return InstantMs(super().now_ms() + self.passed_ms)


class Vanishing(CoordinatorCalls):
    """A coordinator that refuses once, after a while, and does not answer after that."""

    def __init__(self, refuses_after_ms: int) -> None:
        self.clock = PassingClock()
        super().__init__(cast("Any", None), ClientConfig(), self.clock)
        self._refuses_after_ms = refuses_after_ms
        self.tries = 0

    async def _once(self, call: Any, deadline: Deadline) -> Any:
        self.tries += 1
        if self.tries > 1:
            self.clock.passed_ms += 60_000
            raise ConnectionLostError(ErrorCode.NETWORK_EXCEPTION, "no broker answers")
        self.clock.passed_ms += self._refuses_after_ms
        return pb.EndTransactionResponse(error_code=ErrorCode.CONCURRENT_TRANSACTIONS)


@pytest.mark.parametrize(
    ("refuses_after_ms", "tries", "code"),
    [(1_000, 2, ErrorCode.NETWORK_EXCEPTION), (9_990, 1, ErrorCode.CONCURRENT_TRANSACTIONS)],
)
def test_a_last_try_without_an_answer_does_not_hide_the_last_refusal(
    refuses_after_ms: int, tries: int, code: ErrorCode
) -> None:
    async def story() -> None:
        calls = Vanishing(refuses_after_ms)
        deadline = Deadline.after(10_000, calls.clock.now_ms())
        with pytest.raises(ClientError, match=r"committing failed.*wait until it has") as failed:
            await calls.until(deadline, "committing", cast("Any", None))
        assert (calls.tries, failed.value.code) == (tries, code)

    run_virtual(story())


def test_tokens_survive_and_others_are_refused() -> None:
    transactions = Transactions("127.0.0.1:1")
    handle = TransactionHandle(transactions, "job/é 7", "any: text")
    assert transactions.resume(str(handle)) == handle
    receipt = WriterReceipt("task 3", 2**62, 32_767)
    assert WriterReceipt.parse(str(receipt)) == receipt
    for token in ("", "tidemark-writer-1.%%%", str(handle)):
        with pytest.raises(MalformedTokenError):
            WriterReceipt.parse(token)


def test_a_transactional_producer_asks_its_coordinator_by_grpc() -> None:
    cluster = MemoryTransport()

    async def work() -> None:
        async with served(MemoryCoordinator()) as (address, coordinator):
            producer = TransactionalProducer(
                address, transport="grpc", transactional_id="x", **QUICK
            )
            async with producer:
                producer._session._transport = cluster
                producer._session.cluster._transport = cluster
                assert producer._sender is not None
                producer._sender._transport = cluster
                await producer.init()
                async with producer.transaction():
                    await producer.send("t", b"v")
            kinds = [type(request).__name__ for request in coordinator.asked]
            assert kinds == ["InitTransactionalIdRequest", "EndTransactionRequest"]
            assert coordinator.asked[-1].commit
            assert coordinator.asked[-1].transactions_v2

    run(work())
    assert cluster.logs[ZERO].headers()[0].producer_id == 9


def test_an_abortable_end_leaves_the_producer_usable() -> None:
    cluster = MemoryTransport()

    async def work() -> None:
        async with served(MemoryCoordinator()) as (address, coordinator):
            producer = TransactionalProducer(
                address, transport="grpc", transactional_id="x", **QUICK
            )
            async with producer:
                producer._session.cluster._transport = cluster
                producer._session._transport = cluster
                assert producer._sender is not None
                producer._sender._transport = cluster
                await producer.init()
                await producer.begin()
                await producer.send("t", b"v")
                coordinator.fails = [ErrorCode.TRANSACTION_ABORTABLE]
                with pytest.raises(AbortableTransactionError):
                    await producer.commit()
                await producer.abort()
                await producer.begin()

    run(work())
