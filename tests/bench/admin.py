"""List pages of REST and console over 10,000 topics, 40,000 partitions and 2,000 groups.

A real cluster has them: every partition is a log on a broker's disk, and figures come from the
brokers. The time is that of a client on the same machine, the CPU that of the controller's process.
"""

import http.client
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from bench.processes import cpu_seconds
from bench.report import Row
from e2e.clusters import Cluster, started_cluster
from tidemark.cli.dev.layout import HOST
from tidemark.client import NewTopic, TopicPartition, sync

TOPICS: Final = 10_000
PARTITIONS_OF_TOPIC: Final = 4
GROUPS: Final = 2_000
BROKERS: Final = 3
PAGE_MS_MAX: Final = 300.0
REQUESTS: Final = 40
_WARM: Final = 3
_PER_REQUEST: Final = 250
"""Topics of one request to create some."""
_WAIT_S: Final = 120
_PARTS: Final = {"x-part": "1"}

REST: Final = (
    "topics?page_size=100",
    "topics?page_size=1000",
    "topics?page_size=100&figures=true",
    "topics/-/configs?page_size=100",
    "topics/-/partitions/-/reassignment",
    "topics/bench-5000/partitions",
    "topics/bench-5000/partitions/-/offsets",
    "brokers",
    "brokers/1/partition-replicas?page_size=100",
    "consumer-groups?page_size=100",
    "consumer-groups?page_size=1000",
    "share-groups?page_size=100",
    "transactions?page_size=100",
    "health",
    "events",
)
"""Paths below the cluster's."""
CONSOLE: Final = (
    "/",
    "/parts/problems",
    "/parts/load",
    "/brokers",
    "/brokers/1",
    "/topics",
    "/topics?page=200",
    "/topics?sort=-partitions",
    "/topics?q=bench-99",
    "/topics/bench-5000",
    "/groups",
    "/groups?page=20&sort=-state",
    "/groups?q=group-19",
    "/share-groups",
    "/transactions",
    "/reassignments",
    "/parts/moving",
    "/operations",
    "/events",
)


def bench_admin(directory: Path, *, runs: int) -> list[Row]:
    """A row for each page."""
    with filled(directory) as cluster:
        pid = cluster.pid("controller-1")
        port = cluster.layout.member("controller-1").ports["rest"]
        connection = http.client.HTTPConnection(HOST, port, timeout=_WAIT_S)
        below = f"/v3/clusters/{_cluster_id(connection)}/"
        paths = [*((f"REST {path}", below + path) for path in REST)]
        paths += [(f"console {path}", path) for path in CONSOLE]
        rows = [_measured(connection, pid, name, path, runs=runs) for name, path in paths]
        connection.close()
    return rows


@contextmanager
def filled(directory: Path) -> Iterator[Cluster]:
    """A cluster with all topics and groups, ended with the block."""
    quick = {"offsets.topic.num.partitions": 4, "transaction.state.log.num.partitions": 4}
    cluster = started_cluster(
        directory,
        brokers=BROKERS,
        txn_coordinators=1,
        share_coordinators=1,
        overrides={"broker": quick, "controller": {"rest.rate.per.second": 100_000}},
    )
    try:
        with sync.Admin(cluster.kafka(), request_timeout_ms=_WAIT_S * 1_000) as admin:
            for first in range(0, TOPICS, _PER_REQUEST):
                numbers = range(first, min(first + _PER_REQUEST, TOPICS))
                admin.create_topics(
                    [NewTopic(f"bench-{one}", PARTITIONS_OF_TOPIC, 1) for one in numbers]
                )
            for number in range(GROUPS):
                at = TopicPartition(f"bench-{number}", 0)
                admin.alter_group_offsets(f"group-{number}", {at: 0})
        yield cluster
    finally:
        cluster.end()


def _get(connection: http.client.HTTPConnection, path: str) -> tuple[int, bytes]:
    headers = _PARTS if path.startswith("/parts/") else {}
    connection.request("GET", path, headers=headers)
    answer = connection.getresponse()
    return answer.status, answer.read()


def _cluster_id(connection: http.client.HTTPConnection) -> str:
    status, body = _get(connection, "/v3/clusters")
    assert status == http.client.OK, body
    return body.decode().partition('"cluster_id":"')[2].partition('"')[0]


def _measured(
    connection: http.client.HTTPConnection, pid: int, name: str, path: str, *, runs: int
) -> Row:
    """One after another: the time of each, and the CPU of all."""
    for _ in range(_WARM):
        status, body = _get(connection, path)
        assert status == http.client.OK, (path, status, body[:500])
    count = REQUESTS * runs // 5 or 1
    times_ms = []
    before = cpu_seconds(pid)
    for _ in range(count):
        began = time.perf_counter()
        _get(connection, path)
        times_ms.append((time.perf_counter() - began) * 1_000)
    cpu_ms = (cpu_seconds(pid) - before) * 1_000 / count
    row = Row("administration: pages", name)
    row.p50_ms = statistics.median(times_ms)
    row.p99_ms = sorted(times_ms)[min(count - 1, int(count * 0.99))]
    row.extra = {"cpu_ms": cpu_ms, "kb": len(body) / 1_024}
    row.bound, row.held = f"p99 <{PAGE_MS_MAX:.0f} ms", row.p99_ms < PAGE_MS_MAX
    return row
