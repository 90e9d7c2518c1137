"""Append and Fetch streams over a real log, with the client played by lists."""

import asyncio
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
from broker.shell.rpc.append_stream import APPENDS_IN_FLIGHT_MAX, AppendStream
from broker.shell.rpc.byte_budget import ByteBudget
from broker.shell.rpc.fetch_stream import FetchStream
from tidemark.codec.record_batch import iterate_headers, read_header
from tidemark.codec.records import build_batch
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import InstantMs
from tidemark.runtime.streams import until_gone
from tidemark_wire.v1 import partition_store_pb2
from unit.broker.shell.broker_parts import BrokerParts
from unit.broker.shell.conftest import MakeNode
from unit.broker.shell.rpc.peers import (
    CALLER,
    PARTITION,
    Peer,
    append_parts,
    fetch_parts,
    offset_queries,
    until,
)

NOW_MS = 1_700_000_000_000


def batch(*values: bytes) -> bytes:
    return build_batch([(NOW_MS, None, value, ()) for value in values])


def append_request(number: int, batches: bytes, **fields: Any) -> partition_store_pb2.AppendRequest:
    wanted = {"acks": -1, "timeout_ms": 50, "current_leader_epoch": -1, **fields}
    return partition_store_pb2.AppendRequest(
        correlation_id=number, partition=PARTITION, batches=batches, **wanted
    )


def fetch_request(offset: int, number: int = 1, **fields: Any) -> partition_store_pb2.FetchRequest:
    wanted = {"bytes_max": 1 << 20, "bytes_min": 1, "current_leader_epoch": -1, **fields}
    return partition_store_pb2.FetchRequest(
        correlation_id=number, partition=PARTITION, fetch_offset=offset, **wanted
    )


async def append(parts: BrokerParts, *requests: Any, budget: ByteBudget | None = None) -> list[Any]:
    peer = Peer(*requests)
    await AppendStream(append_parts(parts), budget or ByteBudget(1 << 20), CALLER, peer).run()
    return peer.answers


async def fetch(parts: BrokerParts, *requests: Any, budget: ByteBudget | None = None) -> list[Any]:
    peer = Peer(*requests)
    await FetchStream(fetch_parts(parts), budget or ByteBudget(1 << 20), CALLER, peer).run()
    return peer.answers


def offsets(batches: bytes) -> list[int]:
    return [header.base_offset for _, header in iterate_headers(batches)]


def test_appends_are_answered_in_order_with_their_offsets(make_node: MakeNode) -> None:
    async def scenario() -> None:
        parts = make_node({})
        answers = await append(parts, *(append_request(n, batch(b"a", b"b")) for n in range(5)))
        assert [(one.correlation_id, one.base_offset) for one in answers] == [
            (number, 2 * number) for number in range(5)
        ]
        assert all(one.error_code == 0 and one.log_append_time_ms == -1 for one in answers)

    asyncio.run(scenario())


def test_more_than_may_be_in_flight_is_still_served_in_turn(make_node: MakeNode) -> None:
    async def scenario() -> None:
        requests = [append_request(n, batch(b"a")) for n in range(APPENDS_IN_FLIGHT_MAX + 50)]
        answers = await append(make_node({}), *requests, budget=ByteBudget(10))
        assert [one.base_offset for one in answers] == list(range(APPENDS_IN_FLIGHT_MAX + 50))

    asyncio.run(scenario())


def test_an_append_that_is_not_committed_in_time_says_so_and_those_behind_it_go_on(
    make_node: MakeNode,
) -> None:
    async def scenario() -> None:
        parts = make_node({"flush": "group"})  # and no one runs the rounds
        peer = Peer(*(append_request(n, batch(b"a"), timeout_ms=10_000) for n in range(3)))
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(
                AppendStream(append_parts(parts), ByteBudget(1_000), CALLER, peer).run()
            )
            await until(lambda: parts.partitions.parked.requests.count >= 3)
            assert peer.answers == []
            hosted = parts.partitions.table.by_name["orders", 0]
            parts.partitions.log_moves.synced(hosted, 2)
            await until(lambda: len(peer.answers) >= 2)
            parts.partitions.parked.requests.expire(InstantMs(parts.facts.clock.now_ms() + 20_000))
        assert [one.error_code for one in peer.answers] == [0, 0, ErrorCode.REQUEST_TIMED_OUT]

    asyncio.run(scenario())


def test_an_append_that_need_not_wait_is_answered_behind_one_that_does(
    make_node: MakeNode,
) -> None:
    async def scenario() -> None:
        parts = make_node({"flush": "group"})  # and no one runs the rounds
        late = append_request(2, batch(b"a"), current_leader_epoch=9)
        peer = Peer(append_request(1, batch(b"a")), late)
        async with asyncio.TaskGroup() as tasks:
            stream = AppendStream(append_parts(parts), ByteBudget(1_000), CALLER, peer)
            tasks.create_task(stream.run())
            await until(lambda: peer.read_count == 2 and parts.partitions.parked.requests.count > 0)
            await asyncio.sleep(0)  # the second was refused by now
            assert peer.answers == []
            hosted = parts.partitions.table.by_name["orders", 0]
            parts.partitions.log_moves.synced(hosted, 1)
        assert [one.correlation_id for one in peer.answers] == [1, 2]

    asyncio.run(scenario())


def test_a_client_that_goes_leaves_nothing_parked(make_node: MakeNode) -> None:
    async def scenario() -> None:
        parts = make_node({"flush": "group"})
        budget = ByteBudget(1_000)
        appends = Peer(append_request(1, batch(b"a"), timeout_ms=10_000), stays=True)
        pulls = Peer(fetch_request(0, wait_ms_max=10_000), stays=True)
        streams = asyncio.gather(
            AppendStream(append_parts(parts), budget, CALLER, appends).run(),
            FetchStream(fetch_parts(parts), budget, CALLER, pulls).run(),
        )
        await until(lambda: parts.partitions.parked.requests.count >= 2)
        streams.cancel()
        with pytest.raises(asyncio.CancelledError):
            await streams
        assert (parts.partitions.parked.requests.count, budget.in_flight_bytes) == (0, 0)
        parts.partitions.parked.requests.check()

    asyncio.run(scenario())


class GonePeer(Peer):
    """A peer that went, as gRPC tells it."""

    async def write(self, message: Any) -> None:
        raise grpc.aio.InternalError("Failed execute_batch")


def test_a_peer_that_is_gone_when_it_is_answered_ends_the_stream_as_cancelled(
    make_node: MakeNode,
) -> None:
    async def scenario() -> None:
        parts, budget = make_node({}), ByteBudget(1_000)
        requests = [append_request(n, batch(b"a")) for n in range(3)]
        appending = AppendStream(
            append_parts(parts), budget, CALLER, GonePeer(*requests, stays=True)
        )
        pulling = FetchStream(
            fetch_parts(parts), budget, CALLER, GonePeer(fetch_request(0), stays=True)
        )
        for stream in (appending, pulling):
            with pytest.raises(asyncio.CancelledError):
                await until_gone(stream.run())
        assert budget.in_flight_bytes == 0

    asyncio.run(scenario())


class StoppedServer(Peer):
    """Reads from it fail as they do once gRPC's server has stopped."""

    async def read(self) -> Any:
        raise grpc.aio.BaseError("Server already stopped.")


def test_a_server_that_has_stopped_ends_the_stream_as_cancelled(make_node: MakeNode) -> None:
    async def scenario() -> None:
        parts, budget = make_node({}), ByteBudget(1_000)
        appending = AppendStream(append_parts(parts), budget, CALLER, StoppedServer())
        pulling = FetchStream(fetch_parts(parts), budget, CALLER, StoppedServer())
        for stream in (appending, pulling):
            with pytest.raises(asyncio.CancelledError):
                await until_gone(stream.run())

    asyncio.run(scenario())


def test_whole_batches_come_and_at_least_one(make_node: MakeNode) -> None:
    async def scenario() -> None:
        parts = make_node({})
        size = len(batch(b"a"))
        await append(parts, *(append_request(n, batch(b"a")) for n in range(5)))
        cases = [(0, 1, [0]), (2, 2 * size, [2, 3]), (3, 1 << 20, [3, 4]), (5, 1 << 20, [])]
        for offset, bytes_max, expected in cases:
            (answer,) = await fetch(parts, fetch_request(offset, bytes_max=bytes_max))
            assert (answer.error_code, offsets(answer.batches)) == (0, expected)
            assert (answer.high_watermark, answer.log_start_offset) == (5, 0)
            assert all(
                read_header(answer.batches).partition_leader_epoch == 3 for _ in expected[:1]
            )

    asyncio.run(scenario())


def test_pulls_of_one_partition_are_answered_in_order(make_node: MakeNode) -> None:
    async def scenario() -> None:
        parts = make_node({})
        await append(parts, *(append_request(n, batch(b"a")) for n in range(5)))
        answers = await fetch(parts, *(fetch_request(n % 5, number=n) for n in range(50)))
        assert [one.correlation_id for one in answers] == list(range(50))

    asyncio.run(scenario())


def test_a_budget_smaller_than_a_batch_serves_one_at_a_time(make_node: MakeNode) -> None:
    async def scenario() -> None:
        parts = make_node({})
        await append(parts, append_request(1, batch(b"a" * 1_000)))
        budget = ByteBudget(100)
        answers = await fetch(parts, *(fetch_request(0, number=n) for n in range(9)), budget=budget)
        assert [offsets(one.batches) for one in answers] == [[0]] * 9
        assert budget.in_flight_bytes == 0

    asyncio.run(scenario())


def test_a_pull_waits_until_there_are_enough_bytes(make_node: MakeNode) -> None:
    async def scenario() -> None:
        parts = make_node({})
        size = len(batch(b"a"))
        peer = Peer(fetch_request(0, bytes_min=2 * size, wait_ms_max=10_000))
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(
                FetchStream(fetch_parts(parts), ByteBudget(1_000), CALLER, peer).run()
            )
            await until(lambda: parts.partitions.parked.requests.count == 1)
            await append(parts, append_request(1, batch(b"a")))
            assert (parts.partitions.parked.requests.count, peer.answers) == (1, [])
            await append(parts, append_request(2, batch(b"a")))
        assert offsets(peer.answers[0].batches) == [0, 1]

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"current_leader_epoch": 2}, ErrorCode.FENCED_LEADER_EPOCH),
        ({"current_leader_epoch": 4}, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ],
)
def test_an_epoch_that_is_not_the_leader_s_is_refused(
    make_node: MakeNode, fields: dict[str, int], error: ErrorCode
) -> None:
    async def scenario() -> None:
        parts = make_node({})
        (appended,) = await append(parts, append_request(1, batch(b"a"), **fields))
        (fetched,) = await fetch(parts, fetch_request(0, **fields))
        assert (appended.error_code, fetched.error_code) == (error, error)

    asyncio.run(scenario())


def test_damage_is_told_and_reported_never_served(make_node: MakeNode, tmp_path: Path) -> None:
    async def scenario() -> None:
        parts = make_node({})
        await append(parts, append_request(1, batch(b"a" * 50)))
        path = tmp_path / "orders-0" / f"{0:020}.log"
        content = bytearray(path.read_bytes())
        content[len(batch(b"a" * 50)) - 1] ^= 1
        path.write_bytes(content)
        (answer,) = await fetch(parts, fetch_request(0))
        assert (answer.error_code, answer.batches) == (ErrorCode.CORRUPT_MESSAGE, b"")
        assert "offset 0" in (parts.partitions.table.by_name["orders", 0].log.damage or "")

    asyncio.run(scenario())


def test_offsets_are_told_by_mark(make_node: MakeNode) -> None:
    async def scenario() -> None:
        parts = make_node({})
        await append(parts, append_request(1, batch(b"a", b"b")))
        found = []
        for wanted in (-1, -2, -9):
            query = partition_store_pb2.ListOffsetsRequest.Query(
                partition=PARTITION, timestamp_ms=wanted, current_leader_epoch=-1
            )
            answer = await offset_queries(parts).answer(CALLER, query)
            found.append((answer.offset, answer.error_code))
        assert found == [(2, 0), (0, 0), (-1, ErrorCode.INVALID_REQUEST)]

    asyncio.run(scenario())
