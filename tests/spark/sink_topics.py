"""What a reader of committed records sees of the topics that a sink wrote."""

import asyncio

from e2e.clusters import Cluster
from spark.spark_records import run
from tidemark.client import Consumer
from tidemark.client.consumer.fetched_chunk import ConsumerRecord
from tidemark.client.transactions.sink_batches import SinkBatches, SinkDescription
from tidemark.model.topics import TopicPartition
from waiting import patience


def committed_records(cluster: Cluster, topic: str, partitions: int = 1) -> list[ConsumerRecord]:
    """All, by partition and offset, once no transaction is open there."""

    async def read() -> list[ConsumerRecord]:
        places = [TopicPartition(topic, number) for number in range(partitions)]
        ends = await _settled_ends(cluster, places)
        async with (
            patience(),
            Consumer(
                cluster.bootstrap, isolation_level="read_committed", auto_offset_reset="earliest"
            ) as consumer,
        ):
            consumer.assign(places)
            records: list[ConsumerRecord] = []
            while any([await consumer.position(place) < ends[place] for place in places]):
                records += await consumer.poll(timeout_ms=200)
            return sorted(records, key=lambda record: (record.partition, record.offset))

    return run(read())


async def _settled_ends(
    cluster: Cluster, places: list[TopicPartition]
) -> dict[TopicPartition, int]:
    """Where all partitions end, when all of it is decided."""
    async with (
        patience(),
        Consumer(cluster.bootstrap) as of_all,
        Consumer(cluster.bootstrap, isolation_level="read_committed") as of_decided,
    ):
        while True:
            ends = await of_all.end_offsets(places)
            if await of_decided.end_offsets(places) == ends:
                return ends
            await asyncio.sleep(0.02)  # markers are on their way


def committed_values(cluster: Cluster, topic: str, partitions: int = 1) -> list[bytes]:
    """Sorted."""
    records = committed_records(cluster, topic, partitions)
    return sorted(record.value for record in records if record.value is not None)


def committed_offset(
    cluster: Cluster, group_id: str, partition: TopicPartition, *, other_than: int | None = -1
) -> int | None:
    """Of a group, None: none; waits while it is ``other_than``, whose marker is on its way."""

    async def ask() -> int | None:
        async with (
            patience(),
            Consumer(cluster.bootstrap, group_id=group_id) as consumer,
        ):
            while True:
                found = (await consumer.committed([partition]))[partition]
                offset = None if found is None else found.offset
                if offset != other_than:
                    return offset
                await asyncio.sleep(0.02)

    return run(ask())


def describe_sink(cluster: Cluster, sink_id: str) -> SinkDescription:
    """What the coordinator knows."""

    async def ask() -> SinkDescription:
        async with SinkBatches(cluster.grpc()) as sink:
            return await sink.describe(sink_id)

    return run(ask())
