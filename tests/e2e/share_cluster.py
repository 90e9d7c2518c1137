"""A cluster with a share-coordinator, and topics that share groups read from the beginning."""

from collections.abc import Iterator
from typing import Any

import pytest
from e2e.clusters import Cluster, started_cluster
from tidemark.client import Admin, AlterConfig, ConfigResource, NewTopic, Producer

QUICK: dict[str, Any] = {"retry_backoff_ms": 20, "retry_backoff_max_ms": 200}
LOCK_MS = 600_000


@pytest.fixture(scope="module")
def share_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two brokers and a share-coordinator; members call often. Locks outlast every pause of the
    machine, and groups may set shorter ones.
    """
    quick = {
        "group.share.heartbeat.interval.ms": 200,
        "group.share.min.heartbeat.interval.ms": 200,
        "group.share.record.lock.duration.ms": LOCK_MS,
        "group.share.min.record.lock.duration.ms": 1_000,
        "group.share.max.record.lock.duration.ms": LOCK_MS,
        "offsets.topic.num.partitions": 4,
        "share.coordinator.state.topic.num.partitions": 4,
    }
    coordinator = {
        "group.share.heartbeat.interval.ms": 200,
        "group.share.min.heartbeat.interval.ms": 200,
    }
    own = started_cluster(
        tmp_path_factory.mktemp("share"),
        brokers=2,
        share_coordinators=1,
        overrides={"broker": quick, "share-coordinator": coordinator},
    )
    yield own
    own.end()


async def produce(cluster: Cluster, topic: str, *, partitions: int = 1, records: int) -> None:
    async with Producer(cluster.kafka(), **QUICK) as producer:
        for number in range(records):
            await producer.enqueue(topic, b"%d" % number, partition=number % partitions)


async def make(
    cluster: Cluster,
    topic: str,
    *,
    partitions: int = 1,
    records: int = 0,
    group: str,
    lock_ms: int = LOCK_MS,
) -> str:
    """A topic that the group reads from its beginning."""
    configs = {"share.auto.offset.reset": "earliest", "share.record.lock.duration.ms": str(lock_ms)}
    async with Admin(cluster.kafka()) as admin:
        await admin.create_topics([NewTopic(topic, partitions, 1)])
        changes = [AlterConfig(name, value) for name, value in configs.items()]
        await admin.alter_configs({ConfigResource("group", group): changes})
    await produce(cluster, topic, partitions=partitions, records=records)
    return topic
