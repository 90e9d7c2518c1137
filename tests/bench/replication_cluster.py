"""Three real brokers under measurement, each its own process, and topics whose leaders are placed
by hand.
"""

import contextlib
import os
import re
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from bench.processes import cpu_seconds
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from e2e.kafka_wire import Wire
from tidemark.cli.dev.cluster import DevCluster
from tidemark.cli.dev.layout import Layout
from tidemark.kafka.metadata import MetadataResponse

BROKERS: Final = (1, 2, 3)
LEADER: Final = 1
FOLLOWERS: Final = (2, 3)
_WAIT_S: Final = 60.0
_POLL_S: Final = 0.02
_FETCHES: Final = re.compile(r'tidemark_request_seconds_count\{[^}]*request="Fetch"[^}]*\} (\S+)')


class ReplicatedCluster:
    """Who is where, and its topics."""

    def __init__(self, cluster: DevCluster) -> None:
        self.cluster = cluster

    @staticmethod
    def name(number: int) -> str:
        """Of a broker's process."""
        return f"broker-{number}"

    def port(self, number: int) -> int:
        """Of a broker's Kafka listener."""
        return self.cluster.layout.member(self.name(number)).ports["client"]

    def pid(self, number: int) -> int:
        """Of a broker's process now."""
        return self.cluster.pid(self.name(number))

    def cpu(self, numbers: Sequence[int] = BROKERS) -> dict[int, float]:
        """CPU seconds of these brokers so far."""
        return {number: cpu_seconds(self.pid(number)) for number in numbers}

    def fetches(self, number: int) -> int:
        """Fetch requests that a broker has answered so far."""
        address = self.cluster.layout.http_address(self.cluster.layout.member(self.name(number)))
        page = urllib.request.urlopen(f"http://{address}/metrics").read().decode()
        found = _FETCHES.search(page)
        return int(float(found[1])) if found else 0

    def log_bytes(self, number: int, topic: str) -> int:
        """What a broker has of a topic, all segments."""
        data, total = self.cluster.layout.data_path(self.name(number)), 0
        for name in os.listdir(data):
            if name.startswith(f"{topic}-"):
                with contextlib.suppress(FileNotFoundError):  # a deleted topic's files go meanwhile
                    total += sum(
                        file.stat().st_size
                        for file in os.scandir(data / name)
                        if file.name.endswith(".log")
                    )
        return total

    def create_topic(
        self, name: str, partitions: int = 1, configs: Mapping[str, str] | None = None
    ) -> None:
        """Three replicas each, broker 1 preferred, and in sync when this returns."""
        wanted = NewTopic(
            name,
            num_partitions=partitions,
            replica_assignment=[list(BROKERS)] * partitions,
            config={"min.insync.replicas": "2", **(configs or {})},
        )
        admin = self._admin()
        for made in admin.create_topics([wanted]).values():
            made.result(30)
        self.wait_in_sync(name)

    def delete_topic(self, name: str) -> None:
        """Delete, and wait until every broker's files of it are gone."""
        admin = self._admin()
        for gone in admin.delete_topics([name]).values():
            gone.result(30)
        wait_for(lambda: not any(self.log_bytes(number, name) for number in BROKERS))

    def metadata(self, topic: str, number: int = LEADER) -> MetadataResponse:
        """As one broker tells it."""
        with Wire(self.port(number)) as wire:
            return wire.metadata(topic)

    def wait_in_sync(self, topic: str, size: int = len(BROKERS), *, ask: int = LEADER) -> None:
        """Until every partition has a leader and so many replicas in sync."""

        def whole() -> bool:
            (found,) = self.metadata(topic, ask).topics
            return found.error_code == 0 and all(
                one.leader_id >= 0 and len(one.isr) == size for one in found.partitions
            )

        wait_for(whole)

    def _admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.cluster.bootstrap})


def wait_for(come: Callable[[], bool], *, poll_s: float = _POLL_S) -> None:
    """Ask again and again. Raises TimeoutError."""
    deadline = time.monotonic() + _WAIT_S
    while not come():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {_WAIT_S:g} s: {come}")
        time.sleep(poll_s)


@contextmanager
def replicated(
    directory: Path,
    overrides: Mapping[str, object] | None = None,
    *,
    of: type[DevCluster] = DevCluster,
) -> Iterator[ReplicatedCluster]:
    """A cluster of three brokers and one controller, stopped at the end."""
    layout = Layout.on_free_ports(directory, brokers=len(BROKERS), controllers=1)
    soon = {"log.segment.delete.delay.ms": 500, "log.retention.check.interval.ms": 500}
    cluster = of(layout, overrides={"broker": {**soon, **(overrides or {})}})
    try:
        cluster.start()
        yield ReplicatedCluster(cluster)
    finally:
        cluster.stop()
