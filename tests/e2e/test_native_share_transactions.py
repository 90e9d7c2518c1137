"""Copies from a share group to a topic: records and acknowledgements hold together or not."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from e2e.clusters import Cluster, started_cluster
from e2e.share_cluster import LOCK_MS, QUICK, make
from tidemark.client import (
    Consumer,
    ShareConsumer,
    ShareRecord,
    TransactionalProducer,
)
from tidemark.client.errors import ClientConfigError, InvalidRecordStateError
from waiting import patience

pytestmark = pytest.mark.e2e

EXPLICIT: dict[str, Any] = {"share_acknowledgement_mode": "explicit"}
VALUES = [b"%d" % number for number in range(10)]
Name = Callable[[str], str]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two brokers, a txn-coordinator and a share-coordinator."""
    broker = {
        "group.share.max.record.lock.duration.ms": LOCK_MS,
        "offsets.topic.num.partitions": 2,
        "transaction.state.log.num.partitions": 2,
        "share.coordinator.state.topic.num.partitions": 2,
    }
    own = started_cluster(
        tmp_path_factory.mktemp("share-transactions"),
        brokers=2,
        txn_coordinators=1,
        share_coordinators=1,
        overrides={"broker": broker},
    )
    yield own
    own.end()


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(work)


class Copier:
    """A member of a share group that copies records to another topic."""

    def __init__(
        self, consumer: ShareConsumer, producer: TransactionalProducer, output: str
    ) -> None:
        self.consumer = consumer
        self.producer = producer
        self.output = output

    async def read(self) -> list[ShareRecord]:
        """Poll until there are records."""
        async with patience():
            while not (records := await self.consumer.poll(timeout_ms=200)):
                pass
        return records

    async def copy(self, records: list[ShareRecord]) -> None:
        """Send the records' values, and accept the records, in the open transaction."""
        for record in records:
            await self.producer.enqueue(self.output, record.value)
        await self.producer.acknowledge(self.consumer, records)

    async def copy_all(self, count: int) -> None:
        """Copy poll by poll, each in a transaction."""
        while count > 0:
            records = await self.read()
            async with self.producer.transaction():
                await self.copy(records)
            count -= len(records)


@asynccontextmanager
async def copier(cluster: Cluster, topic_name: Name, *, records: int) -> AsyncIterator[Copier]:
    """Read a topic with so many records in two partitions."""
    group = topic_name("copiers")
    source = await make(cluster, topic_name("in"), partitions=2, records=records, group=group)
    output = await make(cluster, topic_name("out"), group=group)
    async with AsyncExitStack() as stack:
        consumer = ShareConsumer(cluster.kafka(), group_id=group, **EXPLICIT, **QUICK)
        producer = TransactionalProducer(
            cluster.grpc(), transport="grpc", transactional_id=topic_name("copy"), **QUICK
        )
        await stack.enter_async_context(consumer)
        await stack.enter_async_context(producer)
        consumer.subscribe([source])
        await producer.init()
        yield Copier(consumer, producer, output)


async def committed(cluster: Cluster, topic: str) -> list[bytes]:
    """Values in a topic, as read_committed consumers see them once every transaction has ended: a
    commit is answered before its markers are written.
    """
    settings: dict[str, Any] = {"auto_offset_reset": "earliest", **QUICK}
    async with (
        Consumer(cluster.kafka(), **settings) as of_all,
        Consumer(cluster.kafka(), isolation_level="read_committed", **settings) as reader,
    ):
        (partition,) = await reader.assign_topic(topic)
        end = (await of_all.end_offsets([partition]))[partition]
        got: list[bytes] = []
        async with patience():
            while await reader.position(partition) < end:
                got += [record.value or b"" for record in await reader.poll(timeout_ms=100)]
    return sorted(got)


@pytest.mark.feature("V04")
def test_a_commit_keeps_records_and_acknowledgements(cluster: Cluster, topic_name: Name) -> None:
    async def work() -> None:
        async with copier(cluster, topic_name, records=10) as one:
            await one.copy_all(10)
            assert await committed(cluster, one.output) == VALUES[:10]
            assert await one.consumer.poll(timeout_ms=500) == []

    run(work())


@pytest.mark.feature("V04")
def test_an_abort_undoes_both(cluster: Cluster, topic_name: Name) -> None:
    async def work() -> None:
        async with copier(cluster, topic_name, records=6) as one:
            await one.producer.begin()
            await one.copy(await one.read())
            await one.producer.abort()
            assert await committed(cluster, one.output) == []
            await one.copy_all(6)
            assert await committed(cluster, one.output) == VALUES[:6]

    run(work())


@pytest.mark.feature("V04")
def test_part_of_a_poll_may_be_rejected_in_a_transaction(
    cluster: Cluster, topic_name: Name
) -> None:
    async def work() -> None:
        async with copier(cluster, topic_name, records=4) as one:
            first, *rest = await one.read()
            async with one.producer.transaction():
                await one.producer.acknowledge(one.consumer, [first], "reject")
            with pytest.raises(InvalidRecordStateError, match="is not held"):
                one.consumer.acknowledge(first)
            for record in rest:
                one.consumer.acknowledge(record)
            await one.consumer.commit_sync()
            await one.copy_all(3 - len(rest))
            assert await one.consumer.poll(timeout_ms=500) == []

    run(work())


def test_acknowledgements_in_transactions_need_grpc(cluster: Cluster, topic_name: Name) -> None:
    async def work() -> None:
        async with (
            TransactionalProducer(
                cluster.kafka(), transactional_id=topic_name("copy"), **QUICK
            ) as producer,
            ShareConsumer(cluster.kafka(), group_id="g", **EXPLICIT) as consumer,
        ):
            await producer.init()
            await producer.begin()
            with pytest.raises(ClientConfigError, match="transport='grpc'"):
                await producer.acknowledge(consumer, [])
            with pytest.raises(ValueError, match="accept or reject"):
                await producer.acknowledge(consumer, [], "renew")

    run(work())
