import asyncio
import os
from typing import Any

import pytest
from tidemark.client.config import Address, Bootstrap, ClientConfig
from tidemark.client.consumer.consumer import Consumer
from tidemark.client.errors import (
    ConnectionLostError,
    RequestTimedOutError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)
from tidemark.client.producer.producer import Producer
from tidemark.client.wire.grpc_transport import GrpcTransport
from tidemark.codec.control_record import EndTxnMarker, build_marker
from tidemark.codec.record_batch import TRANSACTIONAL_BIT
from tidemark.codec.records import build_batch
from tidemark.model.errors import ErrorCode
from tidemark.model.topics import TopicPartition
from tidemark_wire.v1 import common_pb2, partition_store_pb2
from unit.tidemark.client.clients import run_with_sockets as run
from unit.tidemark.client.memory_store import serving
from unit.tidemark.client.memory_transport import MemoryTransport

ZERO = TopicPartition("t", 0)
QUICK: dict[str, Any] = {"transport": "grpc", "retry_backoff_ms": 1, "retry_backoff_max_ms": 5}


@pytest.mark.feature("C01", "D01")
def test_records_go_and_come_by_grpc_alone() -> None:
    cluster = MemoryTransport(partitions=3)

    async def work() -> None:
        async with serving(cluster) as store, Producer(store.address, **QUICK) as producer:
            deliveries = [
                await producer.enqueue("t", b"%d" % n, partition=n % 3) for n in range(30)
            ]
            assert [(await each).offset for each in deliveries] == [n // 3 for n in range(30)]
            async with Consumer(store.address, auto_offset_reset="earliest", **QUICK) as consumer:
                await consumer.assign_topic("t")
                got = [await anext(consumer) for _ in range(30)]
            assert sorted(int(record.value or b"") for record in got) == list(range(30))
            assert store.streams == 2, "one a kind and broker"

    run(work())


@pytest.mark.feature("C09", "K07")
def test_a_broken_stream_is_made_anew_and_repeats_nothing() -> None:
    cluster = MemoryTransport()

    async def work() -> None:
        settings = QUICK | {"linger_ms": 0, "batch_size": 100}
        async with serving(cluster) as store, Producer(store.address, **settings) as producer:
            await producer.send("t", b"0")
            store.breaks = 2
            deliveries = [await producer.enqueue("t", b"%d" % n) for n in range(1, 200)]
            assert [(await each).offset for each in deliveries] == list(range(1, 200))

    run(work())
    values = [record.value for record in cluster.logs[ZERO].records()]
    assert values == [b"%d" % number for number in range(200)]


def test_errors_of_a_partition_come_as_their_own() -> None:
    cluster = MemoryTransport()
    cluster.faults.append(ErrorCode.NOT_ENOUGH_REPLICAS)

    async def work() -> None:
        settings = QUICK | {"unknown_topic_grace_ms": 10}
        async with serving(cluster) as store, Producer(store.address, **settings) as producer:
            assert (await producer.send("t", b"v")).offset == 0
            with pytest.raises(UnknownTopicOrPartitionError):
                await producer.send("missing", b"v")

    run(work())


def test_offsets_are_looked_up() -> None:
    async def work() -> None:
        async with (
            serving(MemoryTransport()) as store,
            Producer(store.address, **QUICK) as producer,
        ):
            for number in range(3):
                await producer.send("t", b"v", timestamp_ms=100 * number)
            async with Consumer(store.address, **QUICK) as consumer:
                assert await consumer.end_offsets([ZERO]) == {ZERO: 3}
                found = (await consumer.offsets_for_times({ZERO: 50}))[ZERO]
                assert found is not None
                assert (found.offset, found.timestamp_ms) == (1, 100)

    run(work())


def test_nobody_listening_is_told_with_the_address() -> None:
    async def work() -> None:
        async with asyncio.TaskGroup() as group:
            transport = GrpcTransport(Bootstrap.parse("127.0.0.1:1"), ClientConfig(), group)
            with pytest.raises(ConnectionLostError, match="no broker answers"):
                await transport.describe(None, auto_create=False)
            await transport.close()

    run(work())


def test_a_silent_broker_costs_the_stream_after_the_timeout() -> None:
    cluster = MemoryTransport()
    cluster.held.clear()

    async def work() -> None:
        async with serving(cluster) as store, asyncio.TaskGroup() as group:
            config = ClientConfig(transport="grpc")
            transport = GrpcTransport(Bootstrap.parse(store.address), config, group)
            await transport.describe(["t"], auto_create=False)
            stream = transport._append_stream(Address(*split(store.address)))
            with pytest.raises(RequestTimedOutError, match="not answered within 50 ms"):
                await stream.exchange(request_for(ZERO), timeout_ms=50)
            assert stream.is_lost
            await transport.close()

    run(work())


def split(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host, int(port)


def request_for(partition: TopicPartition) -> Any:
    wire = common_pb2.TopicPartition(topic=partition.topic, partition=partition.partition)
    return partition_store_pb2.AppendRequest(partition=wire)


def test_the_kafka_addresses_are_learnt_for_the_admin_client() -> None:
    async def work() -> None:
        async with serving(MemoryTransport()) as store, asyncio.TaskGroup() as group:
            transport = GrpcTransport(Bootstrap.parse(store.address), ClientConfig(), group)
            assert await transport.kafka_addresses() == [Address("kafka.example", 9092)]
            await transport.close()

    run(work())


def test_a_channel_belongs_to_the_process_that_opened_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        async with asyncio.TaskGroup() as group:
            transport = GrpcTransport(Bootstrap.parse("127.0.0.1:1"), ClientConfig(), group)
            here = transport._channel(Address("127.0.0.1", 1))
            assert transport._channel(Address("127.0.0.1", 1)) is here
            monkeypatch.setattr(os, "getpid", lambda: -1)
            there = transport._channel(Address("127.0.0.1", 1))
            assert there is not here
            await transport.close()
            monkeypatch.undo()
            await here.close(None)

    run(work())


def with_an_abort() -> MemoryTransport:
    """One record outside of transactions, an aborted one with its marker, and an open one."""
    cluster = MemoryTransport()
    log = cluster.logs[ZERO]
    for producer_id in (-1, 7, None, 8):
        if producer_id is None:
            abort = EndTxnMarker(commits=False, coordinator_epoch=0)
            log.append_control(build_marker(abort, producer_id=7, producer_epoch=0, timestamp=0))
        elif producer_id < 0:
            log.append(build_batch([(0, None, b"seen", ())]))
        else:
            log.append(transactional(producer_id))
    log.aborted = [(7, 1)]
    log.stable = 3
    return cluster


def transactional(producer_id: int) -> bytes:
    return build_batch(
        [(0, None, b"%d" % producer_id, ())],
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=0,
        attributes_extra=TRANSACTIONAL_BIT,
    )


COMMITTED: dict[str, Any] = QUICK | {
    "isolation_level": "read_committed",
    "auto_offset_reset": "earliest",
    "fetch_max_wait_ms": 20,
}


@pytest.mark.feature("M01", "M04")
@pytest.mark.parametrize("ahead", [False, True])
def test_committed_records_come_without_aborted_and_open_ones(*, ahead: bool) -> None:
    async def work() -> None:
        settings = COMMITTED | {"prefetch_beyond_lso": ahead}
        async with serving(with_an_abort()) as store, Consumer(store.address, **settings) as reader:
            await reader.assign_topic("t")
            assert (await anext(reader)).value == b"seen"
            while (await reader.position(("t", 0))) < 3:
                assert await reader.poll(timeout_ms=20) == []
            assert await reader.poll(timeout_ms=50) == []
            assert store.streams == 1 + ahead, "one for each isolation level"

    run(work())


@pytest.mark.feature("M03")
def test_what_was_held_back_ahead_comes_with_its_marker() -> None:
    cluster = with_an_abort()
    log = cluster.logs[ZERO]

    async def work() -> None:
        settings = COMMITTED | {"prefetch_beyond_lso": True}
        async with serving(cluster) as store, Consumer(store.address, **settings) as reader:
            await reader.assign_topic("t")
            assert (await anext(reader)).value == b"seen"
            while not reader._fetcher.states[ZERO].is_held_up:
                assert await reader.poll(timeout_ms=20) == []
            commit = EndTxnMarker(commits=True, coordinator_epoch=0)
            log.append_control(build_marker(commit, producer_id=8, producer_epoch=0, timestamp=0))
            log.stable = None
            assert (await anext(reader)).value == b"8"

    run(work())


@pytest.mark.feature("M02")
@pytest.mark.parametrize(("level", "end"), [("read_committed", 3), ("read_uncommitted", 4)])
def test_the_end_is_the_isolation_level_s(level: str, end: int) -> None:
    async def work() -> None:
        settings = COMMITTED | {"isolation_level": level}
        async with serving(with_an_abort()) as store, Consumer(store.address, **settings) as reader:
            assert await reader.end_offsets([ZERO]) == {ZERO: end}

    run(work())


@pytest.mark.feature("M04")
def test_a_broker_that_cannot_tell_aborted_records_is_not_believed() -> None:
    async def work() -> None:
        async with (
            serving(with_an_abort()) as store,
            Consumer(store.address, **COMMITTED) as reader,
        ):
            store.tells_aborted = False
            await reader.assign_topic("t")
            with pytest.raises(UnsupportedVersionError, match="aborted transactions"):
                await anext(reader)

    run(work())


@pytest.mark.parametrize("is_told", [True, False])
def test_a_consumer_notices_that_its_records_were_replaced(*, is_told: bool) -> None:
    """An older broker cannot tell, and reading goes on."""
    cluster = MemoryTransport()
    (log,) = cluster.logs.values()
    for _ in range(5):
        log.append(build_batch([(0, None, b"old", ())] * 2))

    async def work() -> list[tuple[int, bytes | None]]:
        async with serving(cluster) as store:
            store.tells_epoch_ends = is_told
            async with Consumer(store.address, auto_offset_reset="earliest", **QUICK) as consumer:
                consumer.assign([ZERO])
                for _ in range(10):
                    await anext(consumer)
                log.elect(5, end=6)
                log.append(build_batch([(0, None, b"new", ())] * 7))
                found = [await anext(consumer) for _ in range(7 if is_told else 3)]
                return [(record.offset, record.value) for record in found]

    assert run(work()) == [(offset, b"new") for offset in range(6 if is_told else 10, 13)]
