"""Topics and records for tests of the data source, by the native client."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, TypeVar

from e2e.clusters import Cluster
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.readwriter import DataFrameReader
from pyspark.sql.streaming.readwriter import DataStreamReader
from tidemark.client import Admin, NewTopic, Producer

Result = TypeVar("Result")
Header = tuple[str, bytes | None]
Pairs = Iterable[tuple[bytes | None, bytes | None]]


def run(work: Coroutine[Any, Any, Result]) -> Result:
    """From a plain test."""
    return asyncio.run(work)


def with_admin(cluster: Cluster, work: Callable[[Admin], Coroutine[Any, Any, Result]]) -> Result:
    """One conversation with the cluster."""

    async def talk() -> Result:
        async with Admin(cluster.bootstrap) as admin:
            return await work(admin)

    return run(talk())


def create(
    cluster: Cluster, topic: str, partitions: int = 1, *, replicas: int = 1, **configs: str
) -> str:
    """A topic; its name back. ``cleanup_policy="compact"`` is a configuration. Whatever the
    records' timestamps, they stay.
    """
    named = {name.replace("_", "."): value for name, value in configs.items()}
    new = NewTopic(topic, partitions, replicas, configs={"retention.ms": "-1"} | named)
    with_admin(cluster, lambda admin: admin.create_topics([new]))
    return topic


def produce(
    cluster: Cluster,
    topic: str,
    values: Iterable[bytes | None],
    *,
    partition: int = 0,
    timestamp_ms: int | None = None,
    headers: tuple[Header, ...] = (),
    key: bytes | None = None,
    **settings: Any,
) -> None:
    """These values, in order, in one partition."""

    async def send() -> None:
        async with Producer(cluster.bootstrap, **settings) as producer:
            deliveries = [
                await producer.enqueue(
                    topic,
                    value,
                    key,
                    partition=partition,
                    timestamp_ms=timestamp_ms,
                    headers=headers,
                )
                for value in values
            ]
            for delivery in deliveries:
                await delivery

    run(send())


def numbered(count: int, start: int = 0) -> list[bytes]:
    """b"0", b"1", ..."""
    return [b"%d" % number for number in range(start, start + count)]


def reader(spark: SparkSession, cluster: Cluster, topic: str, **options: str) -> DataFrameReader:
    """A batch reader of one topic, with these options besides."""
    return (
        spark.read.format("tidemark")
        .option("bootstrap.servers", cluster.grpc())
        .option("subscribe", topic)
        .options(**options)
    )


def stream(spark: SparkSession, cluster: Cluster, topic: str, **options: str) -> DataStreamReader:
    """A streaming reader of one topic, from its start."""
    defaults = {"startingOffsets": "earliest", "subscribe": topic}
    return (
        spark.readStream.format("tidemark")
        .option("bootstrap.servers", cluster.grpc())
        .options(**(defaults | options))
    )


def values_of(frame: DataFrame) -> list[bytes]:
    """Column ``value`` of all rows, sorted."""
    return sorted(bytes(row.value) for row in frame.select("value").collect())
