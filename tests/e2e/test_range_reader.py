"""Raw batches of an offset range, read by the native client from a real cluster."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from e2e.clusters import Cluster
from tidemark.client import Admin, NewTopic, Producer, TopicPartition, TransactionalProducer
from tidemark.client.consumer.range_reader import (
    RangeLostError,
    RangeReader,
    RangeReaderConfig,
    RawBatch,
)
from tidemark.client.errors import ClientConfigError, UnknownTopicOrPartitionError
from tidemark.client.sync.range_reader import RangeReader as SyncRangeReader
from tidemark.codec.record_batch import HEADER_BYTES
from tidemark.codec.records import read_records

pytestmark = [pytest.mark.e2e]

Name = Callable[[str], str]
QUICK: dict[str, Any] = {
    "default_api_timeout_ms": 300,
    "unknown_topic_grace_ms": 200,
    "fetch_max_wait_ms": 50,
}


async def create(cluster: Cluster, topic: str) -> TopicPartition:
    async with Admin(cluster.bootstrap) as admin:
        await admin.create_topics([NewTopic(topic, 1)])
    return TopicPartition(topic, 0)


async def filled(cluster: Cluster, topic: str, batches: int = 4) -> TopicPartition:
    """Batches of five records each, compressed."""
    partition = await create(cluster, topic)
    async with Producer(cluster.bootstrap, compression_type="zstd") as producer:
        for batch in range(batches):
            deliveries = [
                await producer.enqueue(topic, b"%d" % (5 * batch + number), partition=0)
                for number in range(5)
            ]
            await producer.flush()
            assert all(delivery.done() for delivery in deliveries)
    return partition


def offsets(batch: RawBatch) -> list[int]:
    header = batch.header._replace(attributes=batch.header.attributes & ~7)
    return [record.offset for record in read_records(bytes(HEADER_BYTES) + batch.records, header)]


async def bases(
    cluster: Cluster, partition: TopicPartition, start: int, end: int, **settings: Any
) -> list[int]:
    async with RangeReader(cluster.grpc(), transport="grpc", **settings) as reader:
        batches = reader.read(partition, start, end, read_committed=True)
        return [batch.header.base_offset async for batch in batches]


def test_the_batches_that_hold_the_range(cluster: Cluster, topic_name: Name) -> None:
    async def talk() -> list[list[int]]:
        partition = await filled(cluster, topic_name("t"))
        async with RangeReader(cluster.bootstrap) as reader:
            batches = reader.read(partition, 7, 12, read_committed=True)
            return [offsets(batch) async for batch in batches]

    assert asyncio.run(talk()) == [list(range(5, 10)), list(range(10, 15))]


def test_fetch_after_fetch(cluster: Cluster, topic_name: Name) -> None:
    async def talk() -> list[int]:
        partition = await filled(cluster, topic_name("t"), batches=9)
        return await bases(cluster, partition, 0, 45, max_partition_fetch_bytes=1)

    assert asyncio.run(talk()) == list(range(0, 45, 5))


def test_without_await(cluster: Cluster, topic_name: Name) -> None:
    partition = asyncio.run(filled(cluster, topic_name("t")))
    with SyncRangeReader(cluster.bootstrap) as reader:
        first = next(iter(reader.read(partition, 0, 20, read_committed=False)))
        rest = list(reader.read(partition, 5, 20, read_committed=False))
    assert [batch.header.base_offset for batch in (first, *rest)] == [0, 5, 10, 15]


def test_what_was_aborted_and_markers_are_left_out(cluster: Cluster, topic_name: Name) -> None:
    async def talk() -> list[int]:
        partition = await create(cluster, topic_name("t"))
        producer = TransactionalProducer(cluster.bootstrap, transactional_id=partition.topic)
        async with producer:
            await producer.init()
            for end in (producer.commit, producer.abort, producer.commit):
                await producer.begin()
                await producer.send(partition.topic, b"v", partition=0)
                await end()
        return await bases(cluster, partition, 0, 6)

    assert asyncio.run(talk()) == [0, 4]


def test_a_range_that_begins_below_the_log(cluster: Cluster, topic_name: Name) -> None:
    async def talk() -> None:
        partition = await filled(cluster, topic_name("t"))
        async with Admin(cluster.bootstrap) as admin:
            await admin.delete_records({partition: 10})
        await bases(cluster, partition, 3, 20)

    with pytest.raises(RangeLostError, match="the log holds 10 to 20") as lost:
        asyncio.run(talk())
    assert (lost.value.position, lost.value.log_start, lost.value.log_end) == (3, 10, 20)


def test_a_range_that_ends_beyond_the_log(cluster: Cluster, topic_name: Name) -> None:
    async def talk() -> None:
        await bases(cluster, await filled(cluster, topic_name("t")), 3, 25, **QUICK)

    with pytest.raises(RangeLostError, match="offsets 20 to 25"):
        asyncio.run(talk())


@pytest.mark.parametrize(("partition", "says"), [(7, "t-7 does not exist"), (0, "created again")])
def test_not_what_was_asked_for(
    cluster: Cluster, topic_name: Name, *, partition: int, says: str
) -> None:
    async def talk() -> None:
        topic = (await create(cluster, topic_name("t"))).topic
        asked = TopicPartition(topic, partition)
        async with RangeReader(cluster.bootstrap, **QUICK) as reader:
            batches = reader.read(asked, 0, 1, read_committed=True, topic_id=bytes(range(16)))
            if partition:
                batches = reader.read(asked, 0, 1, read_committed=True)
            assert [batch async for batch in batches]

    with pytest.raises(UnknownTopicOrPartitionError, match=says):
        asyncio.run(talk())


def test_a_reader_that_is_left_early_ends(cluster: Cluster, topic_name: Name) -> None:
    async def talk() -> int:
        partition = await filled(cluster, topic_name("t"))
        async with RangeReader(cluster.bootstrap, max_partition_fetch_bytes=1) as reader:
            async for batch in reader.read(partition, 0, 20, read_committed=True):
                return batch.header.base_offset
        return -1

    assert asyncio.run(talk()) == 0


def test_settings_are_checked() -> None:
    with pytest.raises(ClientConfigError, match="max_partition_fetch_bytes must be above 0"):
        RangeReaderConfig(max_partition_fetch_bytes=0)
