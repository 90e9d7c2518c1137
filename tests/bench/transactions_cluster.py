"""Three brokers, a txn-coordinator and a controller under measurement, with topics whose partitions
are led by all brokers in turn.
"""

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from bench.processes import ENVIRONMENT, cpu_seconds
from bench.replication_cluster import BROKERS, ReplicatedCluster
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from e2e.kafka_wire import Wire, end_of
from tidemark.cli.dev.cluster import DevCluster
from tidemark.cli.dev.layout import Layout

SERVICES: Final = (
    *(ReplicatedCluster.name(number) for number in BROKERS),
    "txn-coordinator-1",
    "controller-1",
)
BROKER_NAMES: Final = tuple(ReplicatedCluster.name(number) for number in BROKERS)
Cpu = dict[str, float]


class TransactionalCluster(ReplicatedCluster):
    """Three brokers and their coordinator."""

    def create_spread(self, name: str, partitions: int, *, replicas: int = len(BROKERS)) -> None:
        """Partition 0 is led by the first broker, 1 by the second, and so on; in sync when this
        returns.
        """
        places = [
            [BROKERS[(number + place) % len(BROKERS)] for place in range(replicas)]
            for number in range(partitions)
        ]
        config = {"min.insync.replicas": str(min(2, replicas))}
        wanted = NewTopic(name, num_partitions=partitions, replica_assignment=places, config=config)
        admin = AdminClient({"bootstrap.servers": self.cluster.bootstrap})
        for made in admin.create_topics([wanted]).values():
            made.result(60)
        self.wait_in_sync(name, replicas)

    def led(self, topic: str) -> dict[str, list[int]]:
        """The partitions of each broker, by its Kafka port."""
        (found,) = self.metadata(topic).topics
        led: dict[str, list[int]] = {}
        for one in sorted(found.partitions, key=lambda one: one.partition):
            led.setdefault(str(self.port(one.leader_id)), []).append(one.partition)
        return led

    def ends(self, topic: str, led: Mapping[str, Sequence[int]]) -> dict[str, int]:
        """Where each partition ends now, by its number."""
        found: dict[str, int] = {}
        for port, partitions in led.items():
            with Wire(int(port)) as wire:
                found |= {str(one): end_of(wire, topic, one) for one in partitions}
        return found

    def service_cpu(self) -> Cpu:
        """CPU seconds of each service so far."""
        return {name: cpu_seconds(self.cluster.pid(name)) for name in SERVICES}


@contextmanager
def transactional(
    directory: Path, overrides: Mapping[str, object] | None = None
) -> Iterator[TransactionalCluster]:
    """Started, and stopped at the end."""
    layout = Layout.on_free_ports(
        directory, brokers=len(BROKERS), controllers=1, txn_coordinators=1
    )
    soon = {"log.segment.delete.delay.ms": 500, "log.retention.check.interval.ms": 500}
    cluster = DevCluster(layout, overrides={"broker": {**soon, **(overrides or {})}})
    try:
        cluster.start()
        yield TransactionalCluster(cluster)
    finally:
        cluster.stop()


def since(before: Cpu, after: Cpu) -> Cpu:
    """What each service used between."""
    return {name: after[name] - before[name] for name in before}


def brokers_of(cpu: Cpu) -> float:
    """All brokers together."""
    return sum(cpu[name] for name in BROKER_NAMES)


@contextmanager
def load(module: str, plan: Mapping[str, object]) -> Iterator[subprocess.Popen[bytes]]:
    """A load in its own process, killed at the end if it still runs."""
    command = [sys.executable, "-m", module, json.dumps(plan)]
    with subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            process.kill()


def outcome_of(process: subprocess.Popen[bytes]) -> dict[str, Any]:
    """Wait for a load. Raises ChildProcessError when it failed; its own words are on standard
    error.
    """
    output, _ = process.communicate()
    if process.returncode:
        raise ChildProcessError(f"the load ended with {process.returncode}")
    content: dict[str, Any] = json.loads(output)
    return content


def run_load(module: str, plan: Mapping[str, object]) -> dict[str, Any]:
    """Start a load and wait for it. Raises ChildProcessError."""
    with load(module, plan) as process:
        return outcome_of(process)


def at_part(values: Sequence[float], part: float) -> float:
    """A percentile of unsorted values; 0 of none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))] if ordered else 0.0
