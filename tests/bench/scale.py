"""10,000 partitions of three replicas, 100 producers and 500 consumers: CPU when nothing is written
and at 20 MB/s, memory, a stop, a start, and the failover of a broker. With three brokers, and with
two broker processes for each of three nodes.
"""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from bench.processes import cpu_seconds, rss_bytes
from bench.replication_cluster import wait_for
from bench.report import Row
from bench.scale_load import ScaleOutcome, ScalePlan
from bench.transactions_cluster import at_part, load
from e2e.kafka_wire import Wire, batch
from tidemark.cli.dev.cluster import DevCluster
from tidemark.cli.dev.layout import Layout
from tidemark.client import NewTopic, sync
from tidemark.model.errors import ErrorCode

TOPICS: Final = 100
PARTITIONS_OF_TOPIC: Final = 100
REPLICAS: Final = 3
CONSUMERS_OF_TOPIC: Final = 5
RATE_MB_S: Final = 20
TICK_S: Final = 0.1
NODES: Final = 3
VICTIM: Final = 2
SAMPLE: Final = 30
"""Partitions of the killed broker that are written to until each has an acknowledgement."""
SESSIONS: Final = "max.incremental.fetch.session.cache.slots"
SESSIONS_MAX: Final = 2_000
"""Of each broker: 500 consumers, twice in a run, are more than the default has room for."""
_CREATED_AT_ONCE: Final = 10
_WAIT_S: Final = 600.0
_POLL_S: Final = 0.05
_SETTLE_S: Final = 15.0
"""After the topics were made: what that has left to do is not idle time."""


class ScaledCluster:
    """Brokers, each with a third or more of the topics' replicas."""

    def __init__(self, cluster: DevCluster, brokers: int) -> None:
        self.cluster = cluster
        self.brokers = [f"broker-{number + 1}" for number in range(brokers)]
        self.topics = [f"scale-{number}" for number in range(TOPICS)]

    def port(self, name: str) -> int:
        """Port of a broker's Kafka listener."""
        return self.cluster.layout.member(name).ports["client"]

    def cpu(self) -> dict[str, float]:
        """CPU seconds so far of brokers and controller."""
        names = [*self.brokers, "controller-1"]
        return {name: cpu_seconds(self.cluster.pid(name)) for name in names}

    def memory_bytes(self) -> list[int]:
        """Resident memory of each broker."""
        return [rss_bytes(self.cluster.pid(name)) for name in self.brokers]

    def admin(self) -> sync.Admin:
        """An admin client that waits for large answers."""
        return sync.Admin(self.cluster.bootstrap, request_timeout_ms=int(1_000 * _WAIT_S))

    def create_topics(self) -> float:
        """Create all; return the seconds until every partition has all its replicas in sync."""
        began = time.monotonic()
        with self.admin() as admin:
            for first in range(0, TOPICS, _CREATED_AT_ONCE):
                admin.create_topics(
                    NewTopic(name, PARTITIONS_OF_TOPIC, REPLICAS, {"min.insync.replicas": "2"})
                    for name in self.topics[first : first + _CREATED_AT_ONCE]
                )
        self.wait_in_sync()
        return time.monotonic() - began

    def described(self, name: str = "broker-1") -> list[Any]:
        """Every partition of every topic, as a broker describes them."""
        with Wire(self.port(name), timeout_s=_WAIT_S) as wire:
            return [
                (topic.topic, one)
                for topic in wire.metadata(*self.topics).topics
                for one in topic.partitions
            ]

    def wait_in_sync(self) -> None:
        """Wait until every replica of every partition is in sync."""

        def is_whole() -> bool:
            found = self.described()
            return len(found) == TOPICS * PARTITIONS_OF_TOPIC and all(
                one.leader_id >= 0 and len(one.isr) == REPLICAS for _, one in found
            )

        wait_long(is_whole)

    def led(self) -> dict[str, dict[str, list[int]]]:
        """Partitions by topic and port of their leader."""
        found: dict[str, dict[str, list[int]]] = {name: {} for name in self.topics}
        for topic, one in self.described():
            port = str(self.port(f"broker-{one.leader_id}"))
            found[topic].setdefault(port, []).append(one.partition)
        return found


def wait_long(come: Callable[[], bool]) -> None:
    """Wait for something that may take minutes. Raises TimeoutError."""
    deadline = time.monotonic() + _WAIT_S
    while True:
        try:
            wait_for(come, poll_s=_POLL_S)
            return
        except TimeoutError:
            if time.monotonic() > deadline:
                raise


@contextmanager
def scaled(directory: Path, brokers: int) -> Iterator[ScaledCluster]:
    """A cluster of so many brokers, stopped at the end."""
    layout = Layout.on_free_ports(directory, brokers=brokers, controllers=1)
    cluster = DevCluster(layout, overrides={"broker": {SESSIONS: SESSIONS_MAX}})
    try:
        cluster.start()
        yield ScaledCluster(cluster, brokers)
    finally:
        cluster.stop()


def bench_scale(directory: Path, *, seconds: float) -> Iterator[list[Row]]:
    """Yield the rows with one broker process a node, then with two."""
    for a_node in (1, 2):
        group = f"{TOPICS * PARTITIONS_OF_TOPIC:,} partitions, brokers a node: {a_node}"
        with scaled(directory / f"scale-{a_node}", NODES * a_node) as cluster:
            empty = sum(cluster.memory_bytes())
            created = cluster.create_topics()
            extra = {"memory_mb_a_broker_before": empty / len(cluster.brokers) / 1e6}
            rows = [Row(group, "create all, and in sync", extra={"s": created, **extra})]
            time.sleep(_SETTLE_S)
            rows += steady(cluster, group, seconds)
            rows += stop_and_start(cluster, group)
            rows.append(failover(cluster, group))
        yield rows


# -- CPU and memory


def steady(cluster: ScaledCluster, group: str, seconds: float) -> list[Row]:
    """Without clients, with consumers alone, and with all."""
    before = cluster.cpu()
    time.sleep(seconds)
    rows = [used(cluster, group, "no client", before, seconds)]
    led = cluster.led()
    for name, rate in (("500 consumers, nothing to read", 0), ("and 100 producers", RATE_MB_S)):
        offsets = {topic: [0] * PARTITIONS_OF_TOPIC for topic in led}
        plan = ScalePlan(led, offsets, CONSUMERS_OF_TOPIC, rate, TICK_S, seconds)
        with load("bench.scale_load", asdict(plan)) as process:
            assert process.stdout is not None, "it was asked for"
            assert process.stdout.readline() == b"ready\n", "the load has connected"
            before = cluster.cpu()
            output, _ = process.communicate()
        if process.returncode:
            raise ChildProcessError(f"the load ended with {process.returncode}")
        found = ScaleOutcome(**json.loads(output))
        row = used(cluster, group, name, before, seconds)
        if rate:
            row.mb_s = found.bytes / seconds / 1e6
            row.cpu_s_per_gb = float(row.extra["cores"]) * seconds / (found.bytes / 1e9)
            row.p50_ms, row.p99_ms = at_part(found.acked_ms, 0.5), at_part(found.acked_ms, 0.99)
            row.extra["received_p50_ms"] = at_part(found.received_ms, 0.5)
            row.extra["received_p99_ms"] = at_part(found.received_ms, 0.99)
            row.extra["behind_s"] = found.behind_s
        row.extra["fetches_s"] = found.fetches / seconds
        row.extra["load_cores"] = found.load_cpu_s / seconds
        rows.append(row)
    return rows


def used(
    cluster: ScaledCluster, group: str, name: str, before: dict[str, float], seconds: float
) -> Row:
    """Cores that were used since ``before``, of brokers and of the controller, and memory now."""
    after = cluster.cpu()
    brokers = sum(after[one] - before[one] for one in cluster.brokers)
    controller = after["controller-1"] - before["controller-1"]
    memory = max(cluster.memory_bytes()) / 1e6
    figures = {
        "cores": brokers / seconds,
        "controller_cores": controller / seconds,
        "memory_mb_max": memory,
    }
    return Row(group, name, extra={**figures})


# -- stop, start, failover


def stop_and_start(cluster: ScaledCluster, group: str) -> list[Row]:
    """A clean stop of a broker, which hands over what it leads, and its start."""
    name = f"broker-{VICTIM}"
    began = time.monotonic()
    cluster.cluster.terminate(name, _WAIT_S)
    stopped = time.monotonic() - began
    began = time.monotonic()
    cluster.cluster.restart(name, _WAIT_S)
    ready = time.monotonic() - began
    cluster.wait_in_sync()
    whole = time.monotonic() - began
    hosted = TOPICS * PARTITIONS_OF_TOPIC * REPLICAS // len(cluster.brokers)
    return [
        Row(group, f"clean stop of a broker with {hosted:,} replicas", extra={"s": stopped}),
        Row(group, "its start", extra={"ready_s": ready, "in_sync_s": whole}),
    ]


def failover(cluster: ScaledCluster, group: str) -> Row:
    """Kill -9 of a broker: until Metadata names other leaders for all that it led, and until a
    sample of them has acknowledged a write with acks=all.
    """
    name = f"broker-{VICTIM}"
    with cluster.admin() as admin:
        admin.elect_leaders()
    wait_long(lambda: any(one.leader_id == VICTIM for _, one in cluster.described()))
    led = [(topic, one) for topic, one in cluster.described() if one.leader_id == VICTIM]
    sample = [(topic, one.partition) for topic, one in led[:: max(1, len(led) // SAMPLE)]]
    began = time.monotonic()
    cluster.cluster.kill(name)
    written = time_of_writes(cluster, sample)
    wait_long(lambda: all(one.leader_id not in (VICTIM, -1) for _, one in cluster.described()))
    named = time.monotonic() - began
    cluster.cluster.restart(name, _WAIT_S)
    cluster.wait_in_sync()
    extra: dict[str, float | str] = {"led": len(led), "all_led_s": named}
    extra |= {"first_s": min(written) - began, "last_s": max(written) - began}
    return Row(group, f"kill -9 of a broker: acks=all on {len(sample)} partitions", extra=extra)


def time_of_writes(cluster: ScaledCluster, sample: Sequence[tuple[str, int]]) -> list[float]:
    """When each partition acknowledged a write with acks=all by another leader."""
    waiting, written = list(sample), []
    value = batch(b"after a failover", timestamp=time.time_ns() // 1_000_000)
    while waiting:
        topics = sorted({topic for topic, _ in waiting})
        with Wire(cluster.port("broker-1"), timeout_s=_WAIT_S) as wire:
            leaders = {
                (topic.topic, one.partition): one.leader_id
                for topic in wire.metadata(*topics).topics
                for one in topic.partitions
            }
        for place in list(waiting):
            leader = leaders.get(place, -1)
            if leader in (VICTIM, -1):
                continue
            topic, partition = place
            with Wire(cluster.port(f"broker-{leader}"), timeout_s=_WAIT_S) as wire:
                result = wire.produce(topic, value, partition=partition, acks=-1)
            if result.error_code == ErrorCode.NONE:
                waiting.remove(place)
                written.append(time.monotonic())
    return written
