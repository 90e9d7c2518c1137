import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any

import grpc
import grpc.aio
import pytest
from tidemark.codec.java_hash import shard_for_name
from tidemark.model.errors import ErrorCode, TidemarkError
from tidemark.model.ids import ControllerEpoch
from tidemark.model.metadata import (
    TXN,
    ClusterImage,
    CoordinatorImage,
    FeedPosition,
    ShardOwner,
)
from tidemark.runtime import coordinator_client
from tidemark.runtime.channel_pool import ChannelPool
from tidemark.runtime.coordinator_client import CoordinatorClient, ImageDirectory
from tidemark.runtime.metadata_cache import MetadataCache
from tidemark.runtime.telemetry import request_scope
from tidemark_wire.v1 import txn_pb2 as pb
from tidemark_wire.v1 import txn_pb2_grpc
from tidemark_wire.v1.common_pb2 import ListingCursor
from virtual_time import run_skipping, skip
from waiting import PATIENCE_S, patience, until

SHARDS = 8


class ScriptedCoordinator(txn_pb2_grpc.TransactionCoordinatorServicer):
    """Answers EndTransaction and the others with ``codes`` in turn, then with NONE."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.endpoint = ""
        self.codes: list[ErrorCode] = []
        self.asked: list[Any] = []
        self.request_ids: list[str] = []
        self.is_silent = False
        self.pages = 0
        """Pages of a listing; 0: it knows of none."""
        self.on_asked: Callable[[], None] = lambda: None

    def _code(self, request: Any) -> ErrorCode:
        self.asked.append(request)
        self.on_asked()
        return self.codes.pop(0) if self.codes else ErrorCode.NONE

    async def EndTransaction(self, request: Any, context: Any) -> Any:  # noqa: N802
        metadata = dict(context.invocation_metadata())
        self.request_ids.append(metadata.get("x-request-id", ""))
        code = self._code(request)
        if self.is_silent:
            await asyncio.Event().wait()
        return pb.EndTransactionResponse(error_code=code, producer_id=self.number)

    async def DescribeTransactions(self, request: Any, context: Any) -> Any:  # noqa: N802
        code = self._code(request)
        return pb.DescribeTransactionsResponse(
            transactions=[
                pb.TransactionState(transactional_id=each, error_code=code, state="Empty")
                for each in request.transactional_ids
            ]
        )

    async def ListTransactions(self, request: Any, context: Any) -> Any:  # noqa: N802
        state = pb.TransactionState(transactional_id=f"of-{self.number}")
        if self.pages and request.takes_pages:
            at = request.after.shard
            state.transactional_id += f"-{at}"
            more = ListingCursor(shard=at + 1) if at + 1 < self.pages else None
            code = self._code(request)
            return pb.ListTransactionsResponse(error_code=code, transactions=[state], next=more)
        return pb.ListTransactionsResponse(error_code=self._code(request), transactions=[state])


class World:
    """Two coordinators; the even shards are the first one's."""

    def __init__(self, made: list[ScriptedCoordinator], channels: ChannelPool) -> None:
        self.coordinators = made
        self.metadata = MetadataCache()
        self.client = CoordinatorClient(ImageDirectory(self.metadata), channels)
        self.version = 0
        self.own({shard: 1 + shard % 2 for shard in range(SHARDS)})

    def own(self, owners: dict[int, int]) -> None:
        self.version += 1
        self.metadata.take(
            ClusterImage(
                position=FeedPosition(ControllerEpoch(1), self.version),
                coordinators={
                    (TXN, one.number): CoordinatorImage(TXN, one.number, b"", one.endpoint)
                    for one in self.coordinators
                },
                shards={TXN: tuple(ShardOwner(*owner) for owner in owners.items())},
            )
        )

    def owner_of(self, name: str) -> ScriptedCoordinator:
        return self.coordinators[shard_for_name(name, SHARDS) % 2]

    async def end(self, name: str, timeout_s: float = PATIENCE_S) -> Any:
        request = pb.EndTransactionRequest(transactional_id=name)
        return await self.client.call("EndTransaction", name, request, timeout_s)


@asynccontextmanager
async def world() -> AsyncIterator[World]:
    made = [ScriptedCoordinator(number) for number in (1, 2)]
    channels = ChannelPool()
    async with AsyncExitStack() as stack:
        for one in made:
            server = grpc.aio.server()
            txn_pb2_grpc.add_TransactionCoordinatorServicer_to_server(one, server)
            one.endpoint = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
            await server.start()
            stack.push_async_callback(server.stop, None)
        stack.push_async_callback(channels.close)
        yield World(made, channels)


def run(scenario: Callable[[World], Awaitable[None]]) -> None:
    async def main() -> None:
        async with world() as here, patience():
            await scenario(here)

    run_skipping(main())


def test_a_call_goes_to_the_owner_of_the_names_shard() -> None:
    async def scenario(here: World) -> None:
        for name in ("t", "u", "v", "orders-copy"):
            assert (await here.end(name)).producer_id == here.owner_of(name).number

    run(scenario)


def test_a_call_goes_to_the_owner_of_a_shard() -> None:
    async def scenario(here: World) -> None:
        for shard in range(SHARDS):
            request = pb.EndTransactionRequest(transactional_id="t")
            answer = await here.client.call_shard("EndTransaction", shard, request, PATIENCE_S)
            assert answer.producer_id == 1 + shard % 2

    run(scenario)


def test_the_request_id_goes_along() -> None:
    async def scenario(here: World) -> None:
        with request_scope("feed"):
            await here.end("t")
        assert here.owner_of("t").request_ids == ["feed"]

    run(scenario)


def test_an_answer_with_an_error_that_is_the_callers_is_the_answer() -> None:
    async def scenario(here: World) -> None:
        here.owner_of("t").codes = [ErrorCode.PRODUCER_FENCED]
        assert (await here.end("t")).error_code == ErrorCode.PRODUCER_FENCED

    run(scenario)


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ],
)
def test_while_the_shard_moves_or_loads_the_call_is_repeated(code: ErrorCode) -> None:
    async def scenario(here: World) -> None:
        here.owner_of("t").codes = [code, code]
        assert (await here.end("t")).error_code == ErrorCode.NONE
        assert len(here.owner_of("t").asked) == 3

    run(scenario)


def test_a_call_follows_the_shard() -> None:
    async def scenario(here: World) -> None:
        here.coordinators[0].codes = [ErrorCode.NOT_COORDINATOR] * 99
        here.own(dict.fromkeys(range(SHARDS), 1))
        async with asyncio.TaskGroup() as tasks:
            ending = tasks.create_task(here.end("t"))
            await until(lambda: here.coordinators[0].asked)
            here.own(dict.fromkeys(range(SHARDS), 2))
        assert ending.result().producer_id == 2

    run(scenario)


def test_a_coordinator_that_is_not_reached_is_waited_for() -> None:
    async def scenario(here: World) -> None:
        first = here.coordinators[0]
        endpoint, first.endpoint = first.endpoint, "127.0.0.1:1"
        here.own(dict.fromkeys(range(SHARDS), 1))
        async with asyncio.TaskGroup() as tasks:
            ending = tasks.create_task(here.end("t"))
            await asyncio.sleep(0.01)
            first.endpoint = endpoint
            here.own(dict.fromkeys(range(SHARDS), 1))
        assert ending.result().producer_id == 1

    run(scenario)


def test_an_owner_that_does_not_answer_is_left_once_its_shard_has_moved(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(here: World) -> None:
        here.own(dict.fromkeys(range(SHARDS), 1))
        here.coordinators[0].is_silent = True
        async with asyncio.TaskGroup() as tasks:
            ending = tasks.create_task(here.end("t"))
            await until(lambda: here.coordinators[0].asked)
            here.own(dict.fromkeys(range(SHARDS), 2))
        assert ending.result().producer_id == 2

    monkeypatch.setattr(coordinator_client, "_OWNER_PATIENCE_S", 0.01)
    run(scenario)


async def code_of(asking: Awaitable[Any]) -> ErrorCode:
    try:
        await asking
    except TidemarkError as failed:
        return failed.code
    return ErrorCode.NONE


def test_at_the_deadline_the_last_refusal_is_told() -> None:
    async def scenario(here: World) -> None:
        here.owner_of("t").codes = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * 99
        here.owner_of("t").on_asked = partial(skip, 61)
        assert await code_of(here.end("t", 60)) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    run(scenario)


def test_without_an_owner_there_is_no_coordinator() -> None:
    async def scenario(here: World) -> None:
        here.own(dict.fromkeys(range(SHARDS), -1))
        assert await code_of(here.end("t", 0.02)) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        here.own({})
        assert await code_of(here.end("t", 0.02)) is ErrorCode.COORDINATOR_NOT_AVAILABLE

    run(scenario)


def test_an_answer_that_does_not_come_leaves_the_outcome_open() -> None:
    async def scenario(here: World) -> None:
        await here.end("t")
        here.owner_of("t").is_silent = True
        assert await code_of(here.end("t", 0.05)) is ErrorCode.REQUEST_TIMED_OUT
        assert len(here.owner_of("t").asked) <= 2

    run(scenario)


def test_a_call_that_nobody_implements_is_not_repeated() -> None:
    async def scenario(here: World) -> None:
        request = pb.BeginTransactionRequest(transactional_id="t")
        code = await code_of(here.client.call("BeginTransaction", "t", request, PATIENCE_S))
        assert code is ErrorCode.UNKNOWN_SERVER_ERROR

    run(scenario)


def test_all_owners_are_asked_for_a_listing() -> None:
    async def scenario(here: World) -> None:
        here.coordinators[1].codes = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
        request = pb.ListTransactionsRequest()
        answers = await here.client.list_all("ListTransactions", request, PATIENCE_S)
        names = sorted(one.transactional_id for answer in answers for one in answer.transactions)
        assert names == ["of-1", "of-2"]

    run(scenario)


def test_every_page_of_a_listing_is_asked_for() -> None:
    async def scenario(here: World) -> None:
        here.coordinators[0].pages = 3
        here.coordinators[0].codes = [ErrorCode.NONE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
        request = pb.ListTransactionsRequest(after=ListingCursor(shard=2))
        answers = await here.client.list_all("ListTransactions", request, PATIENCE_S)
        names = sorted(one.transactional_id for answer in answers for one in answer.transactions)
        assert names == ["of-1-0", "of-1-1", "of-1-2", "of-2"]

    run(scenario)


def test_a_listing_without_an_owner_of_a_shard_would_lack_a_part() -> None:
    async def scenario(here: World) -> None:
        here.own({0: 1, 1: -1})
        asking = here.client.list_all("ListTransactions", pb.ListTransactionsRequest(), 0.02)
        assert await code_of(asking) is ErrorCode.COORDINATOR_NOT_AVAILABLE

    run(scenario)


def test_descriptions_come_from_the_owners_in_the_order_asked() -> None:
    async def scenario(here: World) -> None:
        here.coordinators[0].codes = [ErrorCode.NOT_COORDINATOR]
        names = ["t", "u", "v", "w", "t"]
        found = await here.client.describe(names, None, PATIENCE_S)
        assert [state.transactional_id for state in found] == names
        assert {state.error_code for state in found} == {ErrorCode.NONE}

    run(scenario)
