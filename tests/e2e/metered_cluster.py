"""A cluster of every kind of process under some load, and what its processes serve at /metrics."""

import asyncio
import json
import shutil
import urllib.parse
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from e2e.clusters import Cluster, started_cluster
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample
from tidemark.cli.dev.layout import HOST
from tidemark.client import (
    Admin,
    AlterConfig,
    ConfigResource,
    Consumer,
    NewTopic,
    Producer,
    ShareConsumer,
    TransactionalProducer,
)
from waiting import PATIENCE_S, patience

QUICK: Final[dict[str, Any]] = {"retry_backoff_ms": 20, "retry_backoff_max_ms": 200}
TOPIC: Final = "orders"
GROUP: Final = "billing"
SHARE_GROUP: Final = "workers"
RECORDS: Final = 12
HAS_PROMETHEUS: Final = shutil.which("prometheus") is not None
SERVICES: Final = ("broker", "controller", "txn-coordinator", "share-coordinator")
AUDIT: Final = {"audit.sinks": "log"}
"""So that its metrics are there."""
BROKER: Final = {
    "offsets.topic.num.partitions": 2,
    "transaction.state.log.num.partitions": 2,
    "share.coordinator.state.topic.num.partitions": 2,
    "group.consumer.heartbeat.interval.ms": 100,
    "metrics.group.lag.cache.ms": 0,
    "slow.request.ms": 1,
}


class Metered(NamedTuple):
    """The cluster, and a transaction in it that stays open."""

    cluster: Cluster
    opened: TransactionalProducer

    def text(self, name: str) -> str:
        """What a process serves, as text."""
        ports = self.cluster.layout.member(name).ports
        port = ports["ops"] if "ops" in ports else ports["rest"]
        with urllib.request.urlopen(f"http://{HOST}:{port}/metrics", timeout=PATIENCE_S) as answer:
            return str(answer.read(), "utf-8")

    def names(self, service: str) -> list[str]:
        """Processes of one kind."""
        return [one.name for one in self.cluster.layout.members() if one.kind == service]

    def prometheus(self, path: str, **parameters: str) -> Any:
        """Ask the cluster's Prometheus; return what its API calls data."""
        port = self.cluster.layout.member("prometheus").ports["web"]
        query = urllib.parse.urlencode(parameters)
        url = f"http://{HOST}:{port}/api/v1/{path}?{query}"
        with urllib.request.urlopen(url, timeout=PATIENCE_S) as answer:
            return json.load(answer)["data"]

    def create_topic(self) -> str:
        """Create a topic at the first broker; return its name."""
        name = f"made-{uuid.uuid4().hex[:8]}"

        async def create() -> None:
            async with Admin(self.cluster.kafka(1)) as admin:
                await admin.create_topics([NewTopic(name, 1, 1)])

        asyncio.run(create())
        return name

    def samples(self, service: str) -> list[Sample]:
        """All samples of all processes of one kind."""
        texts = [self.text(name) for name in self.names(service)]
        families = [one for text in texts for one in text_string_to_metric_families(text)]
        return [sample for family in families for sample in family.samples]

    def values(self, service: str, name: str, **labels: str) -> list[float]:
        """Values of one metric whose labels include these."""
        return [
            one.value
            for one in self.samples(service)
            if one.name == name and labels.items() <= one.labels.items()
        ]


async def _load(cluster: Cluster) -> TransactionalProducer:
    """Records, a group that has read half of them, a share group, and an open transaction."""
    async with Admin(cluster.kafka()) as admin:
        await admin.create_topics([NewTopic(TOPIC, 2, 2)])
        earliest = AlterConfig("share.auto.offset.reset", "earliest")
        await admin.alter_configs({ConfigResource("group", SHARE_GROUP): [earliest]})
    async with Producer(cluster.kafka(), **QUICK) as producer:
        for number in range(RECORDS):
            await producer.enqueue(TOPIC, b"%d" % number, partition=0)
    reader = Consumer(
        cluster.kafka(), group_id=GROUP, auto_offset_reset="earliest", max_poll_records=6, **QUICK
    )
    async with reader, patience():
        reader.subscribe([TOPIC])
        while not await reader.poll(timeout_ms=200):
            pass
        await reader.commit()
    sharer = ShareConsumer(cluster.kafka(), group_id=SHARE_GROUP, **QUICK)
    async with sharer, patience():
        sharer.subscribe([TOPIC])
        while not await sharer.poll(timeout_ms=200):
            pass
    opened = TransactionalProducer(cluster.kafka(), transactional_id="left-open", **QUICK)
    await opened.start()
    await opened.init()
    await opened.begin()
    await opened.send(TOPIC, b"undecided", partition=1)
    return opened


@contextmanager
def metered_cluster(directory: Path) -> Iterator[Metered]:
    """Two brokers, two controllers, and a coordinator of each kind, after some load."""
    cluster = started_cluster(
        directory,
        brokers=2,
        controllers=2,
        txn_coordinators=1,
        share_coordinators=1,
        has_prometheus=HAS_PROMETHEUS,
        overrides={"broker": {**BROKER, **AUDIT}, "controller": AUDIT},
    )
    try:
        with asyncio.Runner() as runner:
            opened = runner.run(_load(cluster))
            yield Metered(cluster, opened)
            runner.run(opened.abort())
            runner.run(opened.close())
    finally:
        cluster.end()
