"""`tidemark.client` against real brokers, over both transports."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvloop
from e2e.clusters import Cluster, StartCluster
from tidemark.client import (
    Admin,
    AlterConfig,
    ConfigResource,
    Consumer,
    NewTopic,
    OffsetSpec,
    Producer,
    TopicPartition,
    sync,
)
from tidemark.client.consumer.fetched_chunk import ConsumerRecord
from tidemark.client.errors import (
    ClientConfigError,
    ConnectionLostError,
    DuplicateSequenceNumber,
    InvalidSequenceNumber,
    MessageTooLargeError,
    OffsetOutOfRangeError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)
from tidemark.client.producer.partitioner import partition_for_key
from tidemark.client.wire.session import Session
from tidemark.client.wire.transport import ProduceItem, Transport
from tidemark.codec.records import build_batch
from tidemark.model.errors import ErrorCode
from tidemark.runtime.clock import Clock
from waiting import PATIENCE_MS, PATIENCE_S, patience, until_told

pytestmark = [pytest.mark.e2e]

Names = Callable[[str], str]
both = pytest.mark.parametrize("transport", ["kafka", "grpc"])
QUICK: dict[str, Any] = {"retry_backoff_ms": 20, "retry_backoff_max_ms": 200}


def run(work: Coroutine[Any, Any, None]) -> None:
    uvloop.run(work)


def address(cluster: Cluster, transport: str, broker: int = 1) -> str:
    return cluster.kafka(broker) if transport == "kafka" else cluster.grpc(broker)


async def make(cluster: Cluster, topic: str, partitions: int = 1, **configs: str) -> str:
    dotted = {name.replace("_", "."): value for name, value in configs.items()}
    async with Admin(cluster.kafka()) as admin:
        await admin.create_topics([NewTopic(topic, partitions, 1, dotted)])
    return topic


@asynccontextmanager
async def clients(
    cluster: Cluster, transport: str, **producer_settings: Any
) -> AsyncIterator[tuple[Producer, Consumer]]:
    """A producer, and a consumer that reads from the beginning."""
    where = address(cluster, transport)
    settings = QUICK | producer_settings
    async with (
        Producer(where, transport=transport, **settings) as producer,
        Consumer(where, transport=transport, auto_offset_reset="earliest", **QUICK) as consumer,
    ):
        yield producer, consumer


async def read(
    consumer: Consumer, count: int, *, seconds: float = PATIENCE_S
) -> list[ConsumerRecord]:
    records: list[ConsumerRecord] = []
    async with asyncio.timeout(seconds):
        while len(records) < count:
            records += await consumer.poll(timeout_ms=500)
    return records


@both
@pytest.mark.feature("A01", "A02", "A15", "C01", "C02", "C03", "D01")
def test_keyed_records_keep_their_order_within_their_partition(
    cluster: Cluster, topic_name: Names, transport: str
) -> None:
    async def work() -> None:
        topic = await make(cluster, topic_name("keys"), 6)
        async with clients(cluster, transport) as (producer, consumer):
            sent = [(b"user-%d" % (n % 50), b"%d" % n) for n in range(3_000)]
            deliveries = [await producer.enqueue(topic, value, key) for key, value in sent]
            await producer.flush()
            for (key, _), delivery in zip(sent, deliveries, strict=True):
                assert delivery.result().partition == partition_for_key(key, 6)
            assert len(await consumer.assign_topic(topic)) == 6
            got = await read(consumer, 3_000)
            for number in range(6):
                mine = [(r.key, r.value) for r in got if r.partition == number]
                assert mine == [pair for pair in sent if partition_for_key(pair[0], 6) == number]

    run(work())


@both
@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.feature("A20", "B07", "C04")
def test_records_of_every_kind_come_back_as_they_were(
    cluster: Cluster, topic_name: Names, transport: str, compression: str
) -> None:
    kinds: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]] = [
        (b"k", b"v", []),
        (None, None, []),
        (b"", b"", [("empty", b""), ("null", None), ("naïve", b"\xff")]),
        (b"tombstone", None, []),
        (None, os.urandom(300_000), []),
        (None, b"x" * 500_000, []),
    ]

    async def work() -> None:
        # Records of 1970: the next look at retention would remove them.
        topic = await make(cluster, topic_name("kinds"), retention_ms="-1")
        async with clients(cluster, transport, compression_type=compression) as (
            producer,
            consumer,
        ):
            for time_ms, (key, value, headers) in enumerate(kinds, start=1_000):
                await producer.send(topic, value, key, headers=headers, timestamp_ms=time_ms)
            consumer.assign([(topic, 0)])
            got = await read(consumer, len(kinds))
            assert [(r.key, r.value, list(r.headers)) for r in got] == kinds
            assert [r.timestamp_ms for r in got] == list(range(1_000, 1_000 + len(kinds)))

    run(work())


@both
@pytest.mark.feature("A02", "A18", "D05")
def test_a_consumer_seeks_by_offset_end_and_time(
    cluster: Cluster, topic_name: Names, transport: str
) -> None:
    async def work() -> None:
        # Records of 1970: the next look at retention would remove them.
        topic = await make(cluster, topic_name("seek"), retention_ms="-1")
        partition = TopicPartition(topic, 0)
        async with clients(cluster, transport) as (producer, consumer):
            for number in range(10):
                await producer.send(topic, b"%d" % number, timestamp_ms=1_000 * (number + 1))
            consumer.assign([partition])
            assert len(await read(consumer, 10)) == 10
            consumer.seek(partition, 4)
            assert [r.offset for r in await read(consumer, 6)] == [4, 5, 6, 7, 8, 9]
            consumer.seek_to_beginning()
            assert await consumer.position(partition) == 0
            consumer.seek_to_timestamp(5_500)
            assert await consumer.position(partition) == 5
            consumer.seek_to_end()
            assert await consumer.position(partition) == 10
            assert await consumer.beginning_offsets([partition]) == {partition: 0}
            assert await consumer.end_offsets([partition]) == {partition: 10}
            found = (await consumer.offsets_for_times({partition: 2_001}))[partition]
            assert found is not None
            assert (found.offset, found.timestamp_ms) == (2, 3_000)
            assert await consumer.offsets_for_times({partition: 99_000}) == {partition: None}

    run(work())


LONG_POLL_MS = 60_000
"""No wait for records is so long, however busy the machine."""


@both
@pytest.mark.feature("D04")
def test_a_long_poll_answers_when_records_come_not_before_and_not_late(
    cluster: Cluster, topic_name: Names, transport: str
) -> None:
    async def work() -> None:
        topic = await make(cluster, topic_name("poll"))
        loop = asyncio.get_running_loop()
        patient: dict[str, Any] = {
            "fetch_max_wait_ms": LONG_POLL_MS,
            "request_timeout_ms": 2 * LONG_POLL_MS,
        }
        where = address(cluster, transport)
        async with (
            clients(cluster, transport) as (producer, _),
            Consumer(where, transport=transport, **patient) as consumer,
        ):
            await producer.partitions_for(topic)
            consumer.assign([(topic, 0)])
            assert await consumer.poll(timeout_ms=700) == []
            waiting = asyncio.gather(consumer.poll(timeout_ms=PATIENCE_MS))
            await asyncio.sleep(0.2)
            began_at = loop.time()
            await producer.send(topic, b"late")
            ((record,),) = await waiting
            assert record.value == b"late"
            assert loop.time() - began_at < LONG_POLL_MS / 1_000, (
                "the poll was answered by its time, not by the record"
            )

    run(work())


@both
@pytest.mark.feature("D04")
def test_a_fetch_waits_for_its_least_bytes(
    cluster: Cluster, topic_name: Names, transport: str
) -> None:
    async def work() -> None:
        topic = await make(cluster, topic_name("least"))
        where = address(cluster, transport)
        terms: dict[str, Any] = {"fetch_min_bytes": 5_000, "fetch_max_wait_ms": LONG_POLL_MS}
        terms["request_timeout_ms"] = 2 * LONG_POLL_MS
        async with (
            Producer(where, transport=transport, linger_ms=0) as producer,
            Consumer(where, transport=transport, auto_offset_reset="earliest", **terms) as consumer,
        ):
            await producer.send(topic, b"small")
            consumer.assign([(topic, 0)])
            assert await consumer.poll(timeout_ms=500) == []
            await producer.send(topic, bytes(6_000))
            assert len(await read(consumer, 2, seconds=LONG_POLL_MS / 1_000)) == 2

    run(work())


@both
@pytest.mark.feature("D02", "D03")
def test_a_slow_consumer_catches_up_in_bounded_steps(
    cluster: Cluster, topic_name: Names, transport: str
) -> None:
    async def work() -> None:
        topic = await make(cluster, topic_name("slow"))
        where = address(cluster, transport)
        bounds: dict[str, Any] = {"max_partition_fetch_bytes": 50_000, "buffered_bytes_max": 60_000}
        async with (
            Producer(where, transport=transport) as producer,
            Consumer(
                where, transport=transport, auto_offset_reset="earliest", **bounds
            ) as consumer,
        ):
            for number in range(500):
                await producer.enqueue(topic, b"%d" % number + bytes(2_000))
            await producer.flush()
            consumer.assign([(topic, 0)])
            got = await read(consumer, 500)
            assert [r.offset for r in got] == list(range(500))

    run(work())


@both
@pytest.mark.feature("C06", "C07")
@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_every_kind_of_acknowledgement(
    cluster: Cluster, topic_name: Names, transport: str, acks: int | str
) -> None:
    async def work() -> None:
        topic = await make(cluster, topic_name("acks"))
        async with clients(cluster, transport, acks=acks) as (producer, consumer):
            placed = [await producer.send(topic, b"%d" % number) for number in range(5)]
            if acks != 0:
                assert [each.offset for each in placed] == list(range(5))
            consumer.assign([(topic, 0)])
            assert [r.value for r in await read(consumer, 5)] == [b"%d" % n for n in range(5)]

    run(work())


async def transport_of(client: Producer | Consumer) -> Transport:
    session: Session = client._session
    return session.transport


@both
@pytest.mark.feature("K01", "K02", "K03", "K04", "K05", "K06", "K07")
def test_a_broker_takes_sequences_once_and_in_order(
    cluster: Cluster, topic_name: Names, transport: str
) -> None:
    async def work() -> None:
        topic = await make(cluster, topic_name("sequences"))
        async with Producer(address(cluster, transport), transport=transport) as producer:
            await producer.partitions_for(topic)
            wire = await transport_of(producer)
            identity, other = await wire.init_producer_id(), await wire.init_producer_id()
            assert identity != other
            leader = producer._session.cache.leader(TopicPartition(topic, 0))
            assert leader is not None

            async def append(sequence: int) -> tuple[int, int]:
                batch = build_batch(
                    [(Clock().wall_ms(), None, b"%d" % sequence, ())],
                    producer_id=identity.producer_id,
                    producer_epoch=identity.producer_epoch,
                    base_sequence=sequence,
                )
                item = ProduceItem(
                    TopicPartition(topic, 0), leader.topic_id, leader.leader_epoch, batch
                )
                (outcome,) = await wire.produce(
                    leader.broker_id, [item], acks=-1, timeout_ms=PATIENCE_MS
                )
                return outcome.error_code, outcome.base_offset

            assert [await append(number) for number in range(7)] == [(0, n) for n in range(7)]
            assert await append(4) == (0, 4), "one of the last five: acknowledged where it is"
            assert (await append(9))[0] == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            assert (await append(0))[0] in (
                ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            )
            assert await append(7) == (0, 7)

    run(work())


class LosesAnswers:
    """A transport that loses the answer of every third produce request, after the broker has it."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner
        self._turn = 0
        self.lost = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def produce(self, *arguments: Any, **named: Any) -> Any:
        outcomes = await self._inner.produce(*arguments, **named)
        self._turn += 1
        if self._turn % 3 == 0:
            self.lost += 1
            raise ConnectionLostError(ErrorCode.NETWORK_EXCEPTION, "the answer was lost")
        return outcomes


@both
@pytest.mark.feature("K06", "K07", "K08")
def test_retries_after_lost_answers_neither_repeat_nor_reorder(
    cluster: Cluster, topic_name: Names, transport: str
) -> None:
    async def work() -> None:
        topic = await make(cluster, topic_name("retries"), 2)
        settings: dict[str, Any] = QUICK | {"batch_size": 500, "linger_ms": 1}
        where = address(cluster, transport)
        producer = Producer(where, transport=transport, **settings)
        make_transport = producer._session._make_transport
        losing: list[LosesAnswers] = []

        def make_losing(group: asyncio.TaskGroup) -> Any:
            losing.append(LosesAnswers(make_transport(group)))
            return losing[0]

        producer._session._make_transport = make_losing  # type: ignore[method-assign]
        async with producer, Consumer(where, transport=transport, **QUICK) as consumer:
            deliveries = []
            for number in range(1_000):
                deliveries.append(
                    await producer.enqueue(topic, b"%d" % number, partition=number % 2)
                )
                if number % 50 == 0:
                    await asyncio.sleep(0.002)
            await producer.flush()
            assert losing[0].lost > 3
            consumer.assign([(topic, 0), (topic, 1)])
            consumer.seek_to_beginning()
            got = await read(consumer, 1_000)
            for parity in (0, 1):
                mine = [int(r.value or b"") for r in got if r.partition == parity]
                assert mine == list(range(parity, 1_000, 2))
            ends = await consumer.end_offsets(consumer.assignment())
            assert sum(ends.values()) == 1_000

    run(work())


@both
@pytest.mark.feature("C09", "A16", "K09")
def test_a_leader_lost_and_back_costs_time_and_no_record(
    start_cluster: StartCluster, transport: str
) -> None:
    cluster = start_cluster(brokers=2)

    async def work() -> None:
        topic = await make(cluster, "lost", 2)
        async with Admin(cluster.kafka(1)) as admin:
            described = (await admin.describe_topics([topic]))[topic]
        second = next(view.partition for view in described.partitions if view.leader == 2)
        async with clients(cluster, transport) as (producer, consumer):
            before = [await producer.send(topic, b"%d" % n, partition=second) for n in range(10)]
            assert before[-1].offset == 9
            await asyncio.to_thread(cluster.kill, "broker-2")
            deliveries = [
                await producer.enqueue(topic, b"%d" % n, partition=second) for n in range(10, 20)
            ]
            await asyncio.sleep(1)
            assert not any(delivery.done() for delivery in deliveries)
            await asyncio.to_thread(cluster.restart, "broker-2")
            async with patience():
                assert [(await each).offset for each in deliveries] == list(range(10, 20))
            consumer.assign([(topic, second)])
            got = await read(consumer, 20)
            assert [r.value for r in got] == [b"%d" % n for n in range(20)]

    run(work())


@both
@pytest.mark.feature("A13", "A14")
def test_any_bootstrap_server_will_do_and_dead_ones_are_passed_over(
    cluster: Cluster, topic_name: Names, transport: str
) -> None:
    async def work() -> None:
        topic = await make(cluster, topic_name("bootstrap"), 3)
        servers = ["127.0.0.1:1", address(cluster, transport, 3)]
        async with Producer(servers, transport=transport) as producer:
            for number in range(3):
                assert (await producer.send(topic, b"", partition=number)).offset == 0
        with pytest.raises(ConnectionLostError, match="no broker answers"):
            async with Producer("127.0.0.1:1", transport=transport, max_block_ms=300) as producer:
                await producer.send(topic, b"")

    run(work())


@both
def test_errors_name_what_failed_and_what_to_try(
    cluster: Cluster, topic_name: Names, transport: str
) -> None:
    async def work() -> None:
        topic = await make(cluster, topic_name("errors"), max_message_bytes="1000")
        async with clients(
            cluster,
            transport,
            allow_auto_create_topics=False,
            unknown_topic_grace_ms=100,
        ) as (producer, consumer):
            with pytest.raises(UnknownTopicOrPartitionError, match="create the topic first"):
                await producer.send(topic_name("missing"), b"")
            with pytest.raises(MessageTooLargeError, match=r"raise max\.message\.bytes"):
                await producer.send(topic, os.urandom(2_000))
            assert (await producer.send(topic, b"small")).offset == 0
            consumer.assign([(topic, 0)])
            consumer.seek((topic, 0), 50)
            assert len(await read(consumer, 1)) == 1, "earliest, when out of range"
        async with Consumer(
            address(cluster, transport), transport=transport, auto_offset_reset="none"
        ) as consumer:
            consumer.assign([(topic, 0)])
            with pytest.raises(OffsetOutOfRangeError):
                await consumer.poll()
            consumer.seek((topic, 0), 50)
            with pytest.raises(OffsetOutOfRangeError, match="offset 50"):
                await consumer.poll(timeout_ms=5_000)

    run(work())


@both
@pytest.mark.feature("A01", "A04")
def test_topics_are_made_described_grown_and_deleted(
    cluster: Cluster, topic_name: Names, transport: str
) -> None:
    async def work() -> None:
        topic = topic_name("admin")
        where = address(cluster, transport)
        async with Admin(where, transport=transport) as admin:
            made = await admin.create_topics([NewTopic(topic, 2, 1, {"retention.ms": "60000"})])
            assert (made[topic].partitions, made[topic].replication_factor) == (2, 1)
            with pytest.raises(TopicAlreadyExistsError):
                await admin.create_topics([NewTopic(topic, 1)])
            assert topic in await admin.list_topics()
            await admin.create_partitions({topic: 4})
            described = await until(admin, topic, lambda view: len(view.partitions) == 4)
            assert described.topic_id == made[topic].topic_id
            assert {view.leader for view in described.partitions} <= {1, 2, 3}
            await admin.delete_topics([topic])
            with pytest.raises(UnknownTopicOrPartitionError):
                await admin.delete_topics([topic])

    run(work())


async def until(admin: Admin, topic: str, holds: Callable[[Any], bool]) -> Any:
    """A change answers when its broker has it; the others follow."""
    found: list[Any] = []

    async def look() -> bool:
        found.append((await admin.describe_topics([topic]))[topic])
        return holds(found[-1])

    await until_told(look)
    return found[-1]


def test_configurations_are_described_and_changed(cluster: Cluster, topic_name: Names) -> None:
    async def work() -> None:
        topic = await make(cluster, topic_name("configs"), retention_ms="60000")
        resource = ConfigResource("topic", topic)
        async with Admin(cluster.kafka()) as admin:
            entries = (await admin.describe_configs([resource]))[resource]
            assert (entries["retention.ms"].value, entries["retention.ms"].source) == (
                "60000",
                "topic",
            )
            assert entries["segment.ms"].is_default
            await admin.alter_configs(
                {
                    resource: [
                        AlterConfig("retention.ms", operation="delete"),
                        AlterConfig("cleanup.policy", "compact", "append"),
                    ]
                }
            )

            async def changed() -> bool:
                entries = (await admin.describe_configs([resource]))[resource]
                return entries["cleanup.policy"].value == "delete,compact"

            await until_told(changed)
            with pytest.raises(ClientConfigError):
                await admin.alter_configs({resource: [AlterConfig("retention.ms", "soon")]})
            broker = ConfigResource("broker", "2")
            described = await admin.describe_configs([broker, resource])
            assert described[broker]
            assert set(described) == {broker, resource}

    run(work())


@pytest.mark.feature("K03")
def test_records_logs_and_producers_are_administered(cluster: Cluster, topic_name: Names) -> None:
    async def work() -> None:
        topic = await make(cluster, topic_name("records"), 3, retention_ms="-1")
        partitions = [TopicPartition(topic, number) for number in range(3)]
        async with Producer(cluster.kafka()) as producer, Admin(cluster.kafka()) as admin:
            for partition in partitions:
                for number in range(5):
                    await producer.send(
                        topic, b"v", partition=partition.partition, timestamp_ms=number
                    )
            cut = await admin.delete_records({partitions[0]: 3, partitions[1]: -1})
            assert cut == {partitions[0]: 3, partitions[1]: 5}
            starts = await admin.list_offsets(dict.fromkeys(partitions, OffsetSpec.EARLIEST))
            assert [starts[each].offset for each in partitions] == [3, 5, 0]
            newest = await admin.list_offsets({partitions[2]: OffsetSpec.MAX_TIMESTAMP})
            assert newest[partitions[2]][:2] == (4, 4)
            producers = await admin.describe_producers(partitions)
            assert [states[0].last_sequence for states in producers.values()] == [4, 4, 4]
            log_dirs = await admin.describe_log_dirs()
            assert {log_dir.broker_id for log_dir in log_dirs} == {1, 2, 3}
            placed = {each for log_dir in log_dirs for each in log_dir.replicas}
            assert placed >= set(partitions)
            brokers = (await admin.describe_cluster()).brokers
            assert [broker.broker_id for broker in brokers] == [1, 2, 3]

    run(work())


@both
def test_the_sync_face_sends_and_reads(cluster: Cluster, topic_name: Names, transport: str) -> None:
    topic, where = topic_name("sync"), address(cluster, transport)
    with sync.Admin(where, transport=transport) as admin:
        admin.create_topics([NewTopic(topic, 1)])
    with sync.Producer(where, transport=transport) as producer:
        producer.send_many(topic, [(None, b"%d" % number) for number in range(1_000)])
    with sync.Consumer(where, transport=transport, auto_offset_reset="earliest") as consumer:
        consumer.assign_topic(topic)
        seen = []
        for record in consumer:
            seen.append(record.value)
            if len(seen) == 1_000:
                break
    assert seen == [b"%d" % number for number in range(1_000)]


@pytest.mark.feature("K05", "K06")
def test_the_seeds_names_of_sequence_errors_are_the_ones_raised(
    cluster: Cluster, topic_name: Names
) -> None:
    """Another writer uses the producer's own id and runs ahead, so that its next batch is
    behind.
    """

    async def work() -> None:
        topic = await make(cluster, topic_name("names"))
        async with Producer(cluster.kafka(), linger_ms=0) as producer:
            await producer.send(topic, b"0")
            wire = await transport_of(producer)
            leader = producer._session.cache.leader(TopicPartition(topic, 0))
            assert leader is not None
            assert producer._sender is not None
            identity = producer._sender._identity
            assert identity is not None
            for sequence in range(1, 9):
                batch = build_batch(
                    [(Clock().wall_ms(), None, b"ahead", ())] * 2,
                    producer_id=identity.producer_id,
                    producer_epoch=identity.producer_epoch,
                    base_sequence=2 * sequence - 1,
                )
                item = ProduceItem(
                    TopicPartition(topic, 0), leader.topic_id, leader.leader_epoch, batch
                )
                (outcome,) = await wire.produce(
                    leader.broker_id, [item], acks=-1, timeout_ms=PATIENCE_MS
                )
                assert outcome.error_code == 0
            with pytest.raises((DuplicateSequenceNumber, InvalidSequenceNumber)):
                await producer.send(topic, b"1")

    run(work())
