"""What goes to the coordinator, and what producers hear of its answers."""

import asyncio
from typing import Any, cast

import pytest
from broker.shell.transactions.txn_verifier import RETRY_BACKOFF_MAX_MS, TxnVerifier, _pauses_s
from tidemark.model.backoff import EVEN
from tidemark.model.errors import ErrorCode, TidemarkError
from tidemark.model.ids import TopicId
from tidemark.model.topics import TopicPartition
from tidemark.runtime.coordinator_client import CoordinatorClient
from tidemark_wire.v1 import txn_pb2

ORDERS = TopicPartition("orders", 0)
BILLS = TopicPartition("bills", 1)
TOPIC_ID = TopicId(b"i" * 16)


class Coordinator:
    """Answers each partition with one code, or fails as a whole."""

    def __init__(self, code: ErrorCode = ErrorCode.NONE, *, reached: bool = True) -> None:
        self.code = code
        self.reached = reached
        self.asked: list[list[str]] = []
        self.flags: list[tuple[bool, bool]] = []
        """verify_only and transactions_v2."""

    async def call(
        self, _method: str, _name: str, request: txn_pb2.AddPartitionsRequest, _timeout_s: float
    ) -> txn_pb2.AddPartitionsResponse:
        if not self.reached:
            raise TidemarkError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "nobody there")
        assert {one.topic_id for one in request.partitions} == {TOPIC_ID}
        self.asked.append(sorted(one.topic for one in request.partitions))
        self.flags.append((request.verify_only, request.transactions_v2))
        result = txn_pb2.AddPartitionsResponse.Result
        return txn_pb2.AddPartitionsResponse(
            results=[
                result(topic=one.topic, partition=one.partition, error_code=self.code)
                for one in request.partitions
            ]
        )


def answers(coordinator: Coordinator, *partitions: TopicPartition) -> list[Any]:
    async def run() -> list[Any]:
        verifier = TxnVerifier(
            cast("CoordinatorClient", coordinator), retry_backoff_ms=1, dice=lambda: EVEN
        )
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(verifier.run())
            await asyncio.sleep(0)
            async with asyncio.TaskGroup() as asking:
                asked = [
                    asking.create_task(verifier.ask("t", 7, 0, one, TOPIC_ID, transactions_v2=True))
                    for one in partitions
                ]
            running.cancel()
        return [one.result() for one in asked]

    return asyncio.run(run())


def test_what_is_asked_at_once_goes_out_together() -> None:
    coordinator = Coordinator()
    assert answers(coordinator, ORDERS, BILLS, ORDERS) == [None, None, None]
    assert coordinator.asked == [["bills", "orders"]]


@pytest.mark.parametrize(
    ("code", "told"),
    [
        (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.TRANSACTION_ABORTABLE),
        (ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_TXN_STATE),
    ],
)
def test_producers_hear_what_they_know_how_to_handle(code: ErrorCode, told: ErrorCode) -> None:
    (refused,) = answers(Coordinator(code), ORDERS)
    assert refused.error_code is told


def test_the_end_before_is_waited_for() -> None:
    class Ending(Coordinator):
        async def call(
            self, method: str, name: str, request: txn_pb2.AddPartitionsRequest, timeout_s: float
        ) -> txn_pb2.AddPartitionsResponse:
            self.code = ErrorCode.NONE if self.asked else ErrorCode.CONCURRENT_TRANSACTIONS
            return await super().call(method, name, request, timeout_s)

    coordinator = Ending()
    assert answers(coordinator, ORDERS) == [None]
    assert len(coordinator.asked) == 2


@pytest.mark.parametrize(
    ("pause_ms", "total_ms", "pauses"),
    [
        (20, 100, (0.005, 0.01, 0.02, 0.02, 0.02, 0.02, 0.005)),
        (20, 0, ()),
        (100, 10, (0.01,)),
    ],
)
def test_pauses_grow_to_the_longest_and_add_up(
    pause_ms: int, total_ms: int, pauses: tuple[float, ...]
) -> None:
    assert tuple(_pauses_s(pause_ms, total_ms, lambda: EVEN)) == pytest.approx(pauses)


def test_a_coordinator_that_is_never_done_is_asked_for_so_long() -> None:
    coordinator = Coordinator(ErrorCode.CONCURRENT_TRANSACTIONS)
    (refused,) = answers(coordinator, ORDERS)
    assert refused.error_code is ErrorCode.NOT_ENOUGH_REPLICAS
    pauses = tuple(_pauses_s(1, RETRY_BACKOFF_MAX_MS, lambda: EVEN))
    assert 2 < len(coordinator.asked) <= 1 + len(pauses)


def test_a_coordinator_that_has_waited_itself_is_not_asked_again() -> None:
    class Waiting(Coordinator):
        async def call(
            self, method: str, name: str, request: txn_pb2.AddPartitionsRequest, timeout_s: float
        ) -> txn_pb2.AddPartitionsResponse:
            loop = asyncio.get_running_loop()
            now_s = loop.time() + RETRY_BACKOFF_MAX_MS / 1_000
            loop.time = lambda: now_s  # type: ignore[method-assign]
            return await super().call(method, name, request, timeout_s)

    coordinator = Waiting(ErrorCode.CONCURRENT_TRANSACTIONS)
    (refused,) = answers(coordinator, ORDERS)
    assert refused.error_code is ErrorCode.NOT_ENOUGH_REPLICAS
    assert len(coordinator.asked) == 1


@pytest.mark.feature("L09")
@pytest.mark.parametrize("known", [False, True])
def test_who_knows_that_a_transaction_can_be_aborted_is_told_so(*, known: bool) -> None:
    coordinator = Coordinator()

    async def run() -> None:
        verifier = TxnVerifier(cast("CoordinatorClient", coordinator))
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(verifier.run())
            await asyncio.sleep(0)
            await verifier.ask(
                "t", 7, 0, ORDERS, TOPIC_ID, transactions_v2=False, abortable_known=known
            )
            running.cancel()

    asyncio.run(run())
    assert coordinator.flags == [(True, known)]


def test_an_unreachable_coordinator_is_worth_another_try() -> None:
    (refused,) = answers(Coordinator(reached=False), ORDERS)
    assert refused.error_code is ErrorCode.NOT_ENOUGH_REPLICAS


def test_a_broker_that_stops_asks_nobody() -> None:
    verifier = TxnVerifier(cast("CoordinatorClient", Coordinator()))
    refused = asyncio.run(verifier.ask("t", 7, 0, ORDERS, TOPIC_ID, transactions_v2=True))
    assert refused is not None


def test_the_end_of_the_last_transaction_is_waited_for() -> None:
    coordinator = Ending(ErrorCode.CONCURRENT_TRANSACTIONS, asked_before=2)
    assert answers(coordinator, ORDERS) == [None]
    assert len(coordinator.asked) == 3


class Ending(Coordinator):
    """Says yes once it was asked often enough."""

    def __init__(self, code: ErrorCode, *, asked_before: int) -> None:
        super().__init__(code)
        self.asked_before = asked_before

    async def call(
        self, method: str, name: str, request: txn_pb2.AddPartitionsRequest, timeout_s: float
    ) -> txn_pb2.AddPartitionsResponse:
        if len(self.asked) == self.asked_before:
            self.code = ErrorCode.NONE
        return await super().call(method, name, request, timeout_s)
