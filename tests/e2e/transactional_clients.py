"""librdkafka's transactions for tests: a cluster that has coordinators, producers, and readers of
each isolation level that read to the end and stop.
"""

import asyncio
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import confluent_kafka
import confluent_kafka.admin
from confluent_kafka import TopicPartition
from e2e.clusters import START_SECONDS, Cluster
from e2e.shared_zookeeper import with_shared_zookeeper
from tidemark.cli.dev.cluster import Config
from tidemark.cli.dev.layout import Layout
from tidemark.client import Consumer
from waiting import PATIENCE_S, wait_for

COMMITTED: Final = "read_committed"
UNCOMMITTED: Final = "read_uncommitted"
WAIT_S: Final = PATIENCE_S


@contextmanager
def transactional_cluster(
    directory: Path,
    *,
    brokers: int = 3,
    txn_coordinators: int = 1,
    overrides: Mapping[str, Config] | None = None,
) -> Iterator[Cluster]:
    """One controller, ended with the block."""
    layout = Layout.on_free_ports(
        directory, brokers=brokers, controllers=1, txn_coordinators=txn_coordinators
    )
    cluster = Cluster(with_shared_zookeeper(layout), overrides=overrides)
    try:
        cluster.start(START_SECONDS)
        yield cluster
    except BaseException as problem:
        problem.add_note(cluster.logs_tail())
        raise
    finally:
        cluster.end()


def create(cluster: Cluster, *topics: str, partitions: int = 1, replicas: int = 3) -> None:
    """Topics that bear the loss of a replica."""
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": cluster.bootstrap})
    config = {"min.insync.replicas": str(max(1, replicas - 1))}
    new = [
        confluent_kafka.admin.NewTopic(topic, partitions, replicas, config=config)
        for topic in topics
    ]
    for done in admin.create_topics(new).values():
        done.result(PATIENCE_S)


def wait_in_sync(cluster: Cluster) -> None:
    """Until every replica is in its ISR: one broker may be lost then."""
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": cluster.bootstrap})

    def are_in_sync() -> bool:
        return all(
            len(partition.isrs) == len(partition.replicas)
            for topic in admin.list_topics(timeout=WAIT_S).topics.values()
            for partition in topic.partitions.values()
        )

    wait_for(are_in_sync, "replicas are out of sync")


def producer(cluster: Cluster, transactional_id: str, **more: object) -> confluent_kafka.Producer:
    """One whose session has begun: whoever had the id before is fenced."""
    made = confluent_kafka.Producer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "transactional.id": transactional_id,
            "transaction.timeout.ms": 60_000,
            **more,
        }
    )
    made.init_transactions(WAIT_S)
    return made


def write(one: confluent_kafka.Producer, values: Mapping[str, list[str]]) -> None:
    """Values by topic, each acknowledged."""
    failures: list[object] = []

    def delivered(error: object, _: object) -> None:
        if error is not None:
            failures.append(error)

    for topic, of_topic in values.items():
        for value in of_topic:
            one.produce(topic, value=value, partition=0, on_delivery=delivered)
    assert one.flush(WAIT_S) == 0
    assert not failures, failures


def write_plain(cluster: Cluster, topic: str, *values: str) -> None:
    """Outside of any transaction."""
    write(confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap}), {topic: list(values)})


def read(cluster: Cluster, topic: str, isolation: str = COMMITTED) -> list[str]:
    """Partition 0 as a reader of that isolation level sees it now, in order."""
    reader = confluent_kafka.Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "nobody",
            "isolation.level": isolation,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    reader.assign([TopicPartition(topic, 0, 0)])
    found: list[str] = []
    deadline = time.monotonic() + WAIT_S
    try:
        while time.monotonic() < deadline:
            message = reader.poll(1.0)
            if message is None:
                continue
            error = message.error()
            if error is None:
                found.append((message.value() or b"").decode())
            elif error.code() == confluent_kafka.KafkaError._PARTITION_EOF:
                return found
        raise AssertionError(f"no end of {topic} within {WAIT_S} s; read {found}")
    finally:
        reader.close()


def read_native(cluster: Cluster, topic: str, **settings: Any) -> list[str]:
    """Partition 0 as the native client reads committed records of it now, in order."""
    where = cluster.grpc() if settings.get("transport") == "grpc" else cluster.bootstrap
    wanted = {"isolation_level": COMMITTED, "auto_offset_reset": "earliest", **settings}

    async def use() -> list[str]:
        found: list[str] = []
        async with Consumer(where, **wanted) as reader, asyncio.timeout(WAIT_S):
            (partition,) = await reader.assign_topic(topic)
            end = (await reader.end_offsets([partition]))[partition]
            while await reader.position(partition) < end:
                records = await reader.poll(timeout_ms=100)
                found += [(record.value or b"").decode() for record in records]
        return found

    return asyncio.run(use())


def read_until(cluster: Cluster, topic: str, expected: list[str]) -> list[str]:
    """What is committed, once it is what is expected."""
    found: list[list[str]] = []

    def is_all() -> bool:
        found.append(read(cluster, topic))
        return found[-1] == expected

    wait_for(is_all, lambda: f"committed: {found[-1]}, not {expected}")
    return found[-1]


def committed_offset(cluster: Cluster, group: str, topic: str) -> int:
    """Of partition 0, once no transaction that commits offsets is open; negative without one."""
    reader = confluent_kafka.Consumer(
        {"bootstrap.servers": cluster.bootstrap, "group.id": group, "enable.auto.commit": False}
    )
    try:
        (found,) = reader.committed([TopicPartition(topic, 0)], WAIT_S)
        return int(found.offset)
    finally:
        reader.close()
