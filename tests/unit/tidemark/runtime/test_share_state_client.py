import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import grpc.aio
from share_coordinator.core.share_states import BATCHES_MAX, DELIVERY_COUNT_MAX
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import (
    ControllerEpoch,
    LeaderEpoch,
    Offset,
    ProducerEpoch,
    ProducerId,
    TopicId,
)
from tidemark.model.metadata import (
    SHARE,
    ClusterImage,
    CoordinatorImage,
    FeedPosition,
    ShardOwner,
)
from tidemark.model.share_state import (
    DeliveryState,
    PendingBatch,
    ReadState,
    ReadStateSummary,
    SharePartitionKey,
    StateBatch,
    StateEpoch,
    StateRead,
    StateResult,
    StateSummary,
    TransactionKey,
    WriteState,
)
from tidemark.runtime import share_state_wire as wire
from tidemark.runtime.channel_pool import ChannelPool
from tidemark.runtime.metadata_cache import MetadataCache
from tidemark.runtime.server import MESSAGE_BYTES_MAX
from tidemark.runtime.share_state_client import READS_MAX, ShareStateClient, share_coordinators
from tidemark_wire.v1 import share_pb2 as pb
from tidemark_wire.v1 import share_pb2_grpc
from virtual_time import run_skipping, skip
from waiting import PATIENCE_S, patience, until

G = "jobs"
KEY = SharePartitionKey(G, TopicId(b"t" * 16), 3)
EPOCH = LeaderEpoch(2)
StatesT = TypeVar("StatesT", bound="OneState")
BATCH = StateBatch(Offset(5), Offset(7), DeliveryState.ACKNOWLEDGED, 1)
WRITE = WriteState(KEY, StateEpoch(4), EPOCH, Offset(5), (BATCH,))


class OneState(share_pb2_grpc.ShareCoordinatorServicer):
    """Has one state: the batches of the last write. ``codes`` are answered first, in turn."""

    def __init__(self) -> None:
        self.codes: list[ErrorCode] = []
        self.batches: tuple[StateBatch, ...] = ()
        self.reads: list[int] = []
        """Numbers of states that calls have read."""

    def code(self) -> ErrorCode:
        return self.codes.pop(0) if self.codes else ErrorCode.NONE

    async def ReadStates(self, request: Any, context: Any) -> Any:  # noqa: N802
        if code := self.code():
            return pb.ReadShareStatesResponse(error_code=code, error_message=code.name)
        reads = wire.read_reads(request)
        self.reads.append(len(reads))
        return wire.write_read_answers(
            StateRead(one.key, ErrorCode.NONE, StateEpoch(4), Offset(5), self.batches)
            for one in reads
        )

    async def WriteStates(self, request: Any, context: Any) -> Any:  # noqa: N802
        if code := self.code():
            return pb.WriteShareStatesResponse(error_code=code)
        (write,) = wire.read_writes(request)
        self.batches = write.batches
        return wire.write_write_answers([StateResult(write.key, ErrorCode.NONE)])

    async def ReadStateSummaries(self, request: Any, context: Any) -> Any:  # noqa: N802
        summaries = wire.read_summaries(request)
        return wire.write_summary_answers(
            StateSummary(one.key, ErrorCode.NONE, start_offset=Offset(5)) for one in summaries
        )


class Streaming(OneState):
    """Answers writes on streams as well; ``ends_after`` is the number of writes of a stream."""

    def __init__(self) -> None:
        super().__init__()
        self.streams = self.calls = 0
        self.ends_after = 1_000
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.ended = 0

    async def WriteStates(self, request: Any, context: Any) -> Any:  # noqa: N802
        self.calls += 1
        return await super().WriteStates(request, context)

    async def StreamWrites(self, requests: Any, context: Any) -> None:  # noqa: N802
        self.streams += 1
        try:
            for _ in range(self.ends_after):
                request = await context.read()
                if request is grpc.aio.EOF:  # type: ignore[attr-defined]  # the stubs lack it
                    return
                await self.may_answer.wait()
                await context.write(await super().WriteStates(request, context))
        finally:
            self.ended += 1


def image_of(endpoint: str) -> ClusterImage:
    one = CoordinatorImage(SHARE, 1, b"", endpoint)
    return ClusterImage(
        position=FeedPosition(ControllerEpoch(1), 1),
        coordinators={one.key: one},
        shards={SHARE: (ShardOwner(0, 1, 1),)},
    )


@asynccontextmanager
async def world(states: StatesT) -> AsyncIterator[tuple[StatesT, ShareStateClient]]:
    server, channels = grpc.aio.server(), ChannelPool()
    share_pb2_grpc.add_ShareCoordinatorServicer_to_server(states, server)
    endpoint = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    metadata = MetadataCache(image_of(endpoint))
    try:
        yield states, ShareStateClient(share_coordinators(metadata, channels, dice=random.random))
    finally:
        await channels.close()
        await server.stop(None)


def run(scenario: Callable[[OneState, ShareStateClient], Awaitable[None]]) -> None:
    async def main() -> None:
        async with world(OneState()) as (states, client), patience():
            await scenario(states, client)

    run_skipping(main())


def run_streaming(scenario: Callable[[Streaming, ShareStateClient], Awaitable[None]]) -> None:
    async def main() -> None:
        async with world(Streaming()) as (states, client), patience():
            await scenario(states, client)

    run_skipping(main())


def test_what_is_written_is_read() -> None:
    async def scenario(_: OneState, client: ShareStateClient) -> None:
        assert await client.write(G, [WRITE], PATIENCE_S) == [StateResult(KEY, ErrorCode.NONE)]
        (read,) = await client.read(G, [ReadState(KEY, EPOCH)], PATIENCE_S)
        assert read == StateRead(KEY, ErrorCode.NONE, StateEpoch(4), Offset(5), (BATCH,))
        (summary,) = await client.summaries(G, [ReadStateSummary(KEY, EPOCH)], PATIENCE_S)
        assert summary.start_offset == 5

    run(scenario)


def test_a_coordinator_that_loads_is_asked_again() -> None:
    async def scenario(states: OneState, client: ShareStateClient) -> None:
        states.codes = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR]
        (result,) = await client.write(G, [WRITE], PATIENCE_S)
        assert result.error_code is ErrorCode.NONE

    run(scenario)


def test_an_error_of_the_call_is_that_of_each_share_partition() -> None:
    async def scenario(states: OneState, client: ShareStateClient) -> None:
        states.codes = [ErrorCode.INVALID_REQUEST]
        other = KEY._replace(partition=4)
        reads = [ReadState(KEY, EPOCH), ReadState(other, EPOCH)]
        refusal = (ErrorCode.INVALID_REQUEST, "INVALID_REQUEST")
        answers = await client.read(G, reads, PATIENCE_S)
        assert [(one.key, (one.error_code, one.error_message)) for one in answers] == [
            (KEY, refusal),
            (other, refusal),
        ]

    run(scenario)


def test_no_coordinator_is_an_answer_and_no_exception() -> None:
    async def scenario() -> None:
        channels = ChannelPool()
        coordinators = share_coordinators(MetadataCache(), channels, dice=random.random)
        (result,) = await ShareStateClient(coordinators).write(G, [WRITE], 0.1)
        assert result.error_code is ErrorCode.COORDINATOR_NOT_AVAILABLE
        await channels.close()

    run_skipping(scenario())


# -- writes on a stream that is kept; OneState is of a release that has calls only


def test_writes_share_a_stream() -> None:
    async def scenario(states: Streaming, client: ShareStateClient) -> None:
        for _ in range(3):
            assert await client.write(G, [WRITE], PATIENCE_S) == [StateResult(KEY, ErrorCode.NONE)]
        assert (states.streams, states.calls) == (1, 0)

    run_streaming(scenario)


def test_a_write_waits_for_no_other() -> None:
    async def scenario(states: Streaming, client: ShareStateClient) -> None:
        states.may_answer.clear()
        async with asyncio.TaskGroup() as writes:
            made = [writes.create_task(client.write(G, [WRITE], PATIENCE_S)) for _ in range(3)]
            await until(lambda: states.streams == len(made), "a stream each")
            states.may_answer.set()
        assert [one.result()[0].error_code for one in made] == [ErrorCode.NONE] * 3

    run_streaming(scenario)


def test_a_stream_that_has_ended_is_replaced() -> None:
    async def scenario(states: Streaming, client: ShareStateClient) -> None:
        states.ends_after, writes = 1, 5
        for _ in range(writes):
            (result,) = await client.write(G, [WRITE], PATIENCE_S)
            assert result.error_code is ErrorCode.NONE
            await until(lambda: states.ended == states.streams, "its end")
        assert states.streams + states.calls >= writes

    run_streaming(scenario)


def test_streams_that_a_crowd_has_left_behind_end() -> None:
    async def scenario(states: Streaming, client: ShareStateClient) -> None:
        states.may_answer.clear()
        async with asyncio.TaskGroup() as writes:
            for _ in range(3):
                writes.create_task(client.write(G, [WRITE], PATIENCE_S))
            await until(lambda: states.streams == 3, "a stream each")
            states.may_answer.set()
        skip(20)
        await client.write(G, [WRITE], PATIENCE_S)
        skip(15)
        await until(lambda: states.ended == 2, "the end of those that were not used")
        await client.write(G, [WRITE], PATIENCE_S)
        assert states.streams == 3
        skip(31)
        await until(lambda: states.ended == 3, "the end of the last one")
        await client.write(G, [WRITE], PATIENCE_S)
        assert (states.streams, states.calls) == (4, 0)

    run_streaming(scenario)


def test_a_coordinator_that_loads_is_asked_again_on_the_stream() -> None:
    async def scenario(states: Streaming, client: ShareStateClient) -> None:
        states.codes = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR]
        (result,) = await client.write(G, [WRITE], PATIENCE_S)
        assert (result.error_code, states.streams) == (ErrorCode.NONE, 1)

    run_streaming(scenario)


def test_a_late_answer_is_not_taken_for_that_of_the_next_write() -> None:
    async def scenario(states: Streaming, client: ShareStateClient) -> None:
        states.may_answer.clear()
        (result,) = await client.write(G, [WRITE], 0.7)
        assert result.error_code is ErrorCode.REQUEST_TIMED_OUT
        await until(lambda: states.ended == 1, "the end of its stream")
        states.may_answer.set()
        states.codes = [ErrorCode.INVALID_REQUEST]
        (result,) = await client.write(G, [WRITE], PATIENCE_S)
        assert (result.error_code, states.streams) == (ErrorCode.INVALID_REQUEST, 2)

    run_streaming(scenario)


def test_many_states_are_read_by_several_calls() -> None:
    async def scenario(states: OneState, client: ShareStateClient) -> None:
        keys = [KEY._replace(partition=one) for one in range(2 * READS_MAX + 1)]
        answers = await client.read(G, [ReadState(one, EPOCH) for one in keys], PATIENCE_S)
        assert [one.key for one in answers] == keys
        assert sorted(states.reads) == [1, READS_MAX, READS_MAX]

    run(scenario)


def test_the_largest_states_of_one_call_fit_in_a_message() -> None:
    last = Offset(2**62)
    batch = StateBatch(last, last, DeliveryState.ACKNOWLEDGED, DELIVERY_COUNT_MAX)
    transaction = TransactionKey(ProducerId(2**62), ProducerEpoch(2**15 - 1))
    outcome, before = DeliveryState.ARCHIVED, DeliveryState.ARCHIVING
    held = PendingBatch(last, last, outcome, DELIVERY_COUNT_MAX, transaction, before)
    few = BATCHES_MAX // 100
    states = (
        StateRead(KEY, ErrorCode.NONE, StateEpoch(2**30), last, (batch,) * few),
        StateRead(KEY, ErrorCode.NONE, StateEpoch(2**30), last, (), (held,) * few),
    )
    for state in states:
        size_bytes = 100 * wire.write_read_answers([state]).ByteSize()
        assert READS_MAX * size_bytes < MESSAGE_BYTES_MAX
