"""The native client's read_committed over both transports, with and without reading ahead: four
readers follow what interleaved transactions write, and must give the same records.
"""

import asyncio
import random
import uuid
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from e2e.clusters import Cluster
from e2e.transactional_clients import create, transactional_cluster, wait_in_sync
from tidemark.client import (
    Admin,
    Consumer,
    OffsetSpec,
    Producer,
    TopicPartition,
    TransactionalProducer,
)
from waiting import PATIENCE_S, until_told

pytestmark = pytest.mark.e2e

QUICK: Final[dict[str, Any]] = {"retry_backoff_ms": 20, "retry_backoff_max_ms": 200}
COMMITTED: Final[dict[str, Any]] = QUICK | {
    "isolation_level": "read_committed",
    "auto_offset_reset": "earliest",
}
WAIT_S: Final = PATIENCE_S
PARTITIONS: Final = 2
WRITERS: Final = 3


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three brokers; whoever kills one starts it again."""
    quick = {"zookeeper.session.timeout.ms": 4_000}
    directory: Path = tmp_path_factory.mktemp("committed")
    broker = {**quick, "replica.lag.time.max.ms": 4_000}
    overrides = {"broker": broker, "txn-coordinator": quick}
    with transactional_cluster(directory, overrides=overrides) as running:
        yield running


@pytest.fixture
def topic(cluster: Cluster) -> str:
    """Of two partitions, on all brokers."""
    name = f"t-{uuid.uuid4().hex[:8]}"
    create(cluster, name, partitions=PARTITIONS)
    wait_in_sync(cluster)
    return name


Ends = dict[TopicPartition, int]


class Follower:
    """A reader of the whole topic, and what it got, by partition."""

    def __init__(self, consumer: Consumer, partitions: Sequence[TopicPartition]) -> None:
        self.consumer = consumer
        self.partitions = partitions
        self.got: dict[int, list[tuple[int, bytes]]] = {each.partition: [] for each in partitions}

    async def reach(self, ends: Ends) -> None:
        """Read until the position in each partition is there."""
        async with asyncio.timeout(WAIT_S):
            while not await self._is_at(ends):
                for record in await self.consumer.poll(timeout_ms=100):
                    self.got[record.partition].append((record.offset, record.value or b""))

    async def _is_at(self, ends: Ends) -> bool:
        places = [(await self.consumer.position(part), end) for part, end in ends.items()]
        return all(position >= end for position, end in places)

    def below(self, ends: Ends) -> dict[TopicPartition, list[tuple[int, bytes]]]:
        """What it got, as far as the others were asked to read, too."""
        return {
            part: [record for record in self.got[part.partition] if record[0] < end]
            for part, end in ends.items()
        }

    def values(self) -> list[bytes]:
        return sorted(value for records in self.got.values() for _, value in records)


def servers(cluster: Cluster, transport: str) -> str:
    address = cluster.grpc if transport == "grpc" else cluster.kafka
    return ",".join(address(broker) for broker in (1, 2, 3))


@asynccontextmanager
async def followers(cluster: Cluster, topic: str) -> AsyncIterator[list[Follower]]:
    """The plain reader over Kafka's wire is the first; the others are to equal it."""
    kinds = [(transport, ahead) for transport in ("kafka", "grpc") for ahead in (False, True)]
    async with AsyncExitStack() as stack:
        made = []
        for transport, ahead in kinds:
            where = servers(cluster, transport)
            settings = COMMITTED | {"transport": transport, "prefetch_beyond_lso": ahead}
            consumer = await stack.enter_async_context(Consumer(where, **settings))
            made.append(Follower(consumer, await consumer.assign_topic(topic)))
        yield made


async def all_reach_the_end(readers: list[Follower]) -> None:
    """As far as the first may read now; all must have the same up to there."""
    ends = await readers[0].consumer.end_offsets(readers[0].partitions)
    await asyncio.gather(*(reader.reach(ends) for reader in readers))
    for reader in readers:
        assert reader.below(ends) == readers[0].below(ends)


async def all_reach_the_whole(cluster: Cluster, readers: list[Follower]) -> None:
    """Once every marker is written: a commit is answered before."""
    latest = dict.fromkeys(readers[0].partitions, OffsetSpec.LATEST)
    async with Admin(servers(cluster, "kafka"), **QUICK) as admin:

        async def is_decided() -> bool:
            stable = await admin.list_offsets(latest, read_committed=True)
            return await admin.list_offsets(latest) == stable

        await until_told(is_decided, "a transaction is open")
    await all_reach_the_end(readers)


class Writer:
    """Transactions of one id, one after another; it knows how each ended."""

    def __init__(self, producer: TransactionalProducer, topic: str, number: int) -> None:
        self.producer = producer
        self.topic = topic
        self.name = b"w%d" % number
        self.dice = random.Random(number)
        self.written = 0
        self.committed: list[bytes] = []

    async def begin(self) -> list[bytes]:
        """Open one, with acknowledged records in some partitions; their values."""
        await self.producer.begin()
        values = []
        for _ in range(self.dice.randint(1, 5)):
            values.append(b"%b-%d" % (self.name, self.written))
            self.written += 1
            partition = self.dice.randrange(PARTITIONS)
            await self.producer.send(self.topic, values[-1], partition=partition)
        return values

    async def end(self, values: list[bytes], *, commits: bool) -> None:
        if commits:
            await self.producer.commit()
            self.committed += values
        else:
            await self.producer.abort()

    async def write(self, transactions: int) -> None:
        for _ in range(transactions):
            await self.end(await self.begin(), commits=self.dice.random() < 0.6)


@asynccontextmanager
async def writers(cluster: Cluster, topic: str) -> AsyncIterator[list[Writer]]:
    where = servers(cluster, "kafka")
    async with AsyncExitStack() as stack:
        made = []
        for number in range(WRITERS):
            own = TransactionalProducer(where, transactional_id=f"{topic}-{number}", **QUICK)
            await (await stack.enter_async_context(own)).init()
            made.append(Writer(own, topic, number))
        yield made


async def write_plain(cluster: Cluster, topic: str, count: int) -> list[bytes]:
    """Outside of any transaction."""
    values = [b"plain-%d" % number for number in range(count)]
    async with Producer(servers(cluster, "kafka"), **QUICK) as producer:
        for number, value in enumerate(values):
            await producer.send(topic, value, partition=number % PARTITIONS)
    return values


@pytest.mark.feature("M01", "M02", "M03", "M04", "M05", "L11")
def test_every_committed_reader_gives_the_same_while_transactions_interleave(
    cluster: Cluster, topic: str
) -> None:
    async def work() -> None:
        async with followers(cluster, topic) as readers, writers(cluster, topic) as all_writers:
            writing = [writer.write(12) for writer in all_writers]
            plain, _ = await asyncio.gather(
                write_plain(cluster, topic, 30), asyncio.gather(*writing)
            )
            await all_reach_the_whole(cluster, readers)
            expected = sorted(plain + [v for writer in all_writers for v in writer.committed])
            for reader in readers:
                assert reader.values() == expected

    asyncio.run(work())


@pytest.mark.feature("M01", "M02", "M03")
def test_no_committed_reader_gives_what_is_open_or_behind_it(cluster: Cluster, topic: str) -> None:
    async def work() -> None:
        async with followers(cluster, topic) as readers, writers(cluster, topic) as all_writers:
            holder, *others = all_writers
            values = await holder.begin()
            await asyncio.gather(*(other.write(4) for other in others))
            await all_reach_the_end(readers)
            for reader in readers:
                assert not set(reader.values()) & set(values)
            await holder.end(values, commits=True)
            await all_reach_the_whole(cluster, readers)
            expected = sorted(value for writer in all_writers for value in writer.committed)
            for reader in readers:
                assert reader.values() == expected

    asyncio.run(work())


@pytest.mark.feature("M01", "N01")
def test_committed_readers_over_grpc_outlive_the_leader(cluster: Cluster, topic: str) -> None:
    """It dies with open transactions, while they are read."""

    async def work() -> None:
        async with followers(cluster, topic) as readers, writers(cluster, topic) as all_writers:
            await asyncio.gather(*(writer.write(3) for writer in all_writers))
            await all_reach_the_end(readers)
            opened = [await writer.begin() for writer in all_writers]
            leader = readers[0].consumer._fetcher.cluster.cache.leader(readers[0].partitions[0])
            assert leader is not None
            victim = f"broker-{leader.broker_id}"
            await asyncio.to_thread(cluster.kill, victim)
            try:
                for number, writer in enumerate(all_writers):
                    await writer.end(opened[number], commits=number != 1)
                await asyncio.gather(*(writer.write(3) for writer in all_writers))
                await all_reach_the_whole(cluster, readers)
            finally:
                await asyncio.to_thread(cluster.restart, victim)
            expected = sorted(value for writer in all_writers for value in writer.committed)
            for reader in readers:
                assert reader.values() == expected

    asyncio.run(work())
