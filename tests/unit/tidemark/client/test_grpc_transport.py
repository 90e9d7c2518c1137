import asyncio
import os
from typing import Any

import pytest
from tidemark.client.config import Address, Bootstrap, ClientConfig
from tidemark.client.consumer import Consumer
from tidemark.client.errors import (
    ClientConfigError,
    ConnectionLostError,
    RequestTimedOutError,
    UnknownTopicOrPartitionError,
)
from tidemark.client.grpc_transport import GrpcTransport
from tidemark.client.producer import Producer
from tidemark.model.errors import ErrorCode
from tidemark.model.topics import TopicPartition
from tidemark_wire.v1 import common_pb2, partition_store_pb2
from unit.tidemark.client.clients import run
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
            config = ClientConfig(transport="grpc", request_timeout_ms=50)
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


def test_read_committed_says_that_it_needs_the_other_transport() -> None:
    with pytest.raises(ClientConfigError, match="transport='kafka'"):
        Consumer("h:1", transport="grpc", isolation_level="read_committed")
