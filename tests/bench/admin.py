"""List pages of REST and console over 10,000 topics, 40,000 partitions and 2,000 groups, and a
producer beside them.

A real cluster has them: every partition is a log on a broker's disk, and figures come from the
brokers. The time is that of a client on the same machine, the CPU that of the controller's process.
"""

import concurrent.futures
import http.client
import itertools
import statistics
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from bench.processes import cpu_seconds
from bench.replication import SMALL_BYTES, paced_of, started
from bench.replication_catch_up import percentile
from bench.replication_load import ReplicatedPlan
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
PAGES_S: Final = 10
"""Pages asked for in a second beside the producer: all of them in turns."""
PRODUCE_RATE_S: Final = 200
PRODUCE_S: Final = 8
PRODUCE_P99_TIMES: Final = 1.25
PRODUCE_P99_MORE_MS: Final = 1.0
"""The producer's p99 may differ by this factor and this much: two equal runs differ as much."""
_PACED: Final = "paced"
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
        connection = connected(cluster)
        below = f"/v3/clusters/{_cluster_id(connection)}/"
        paths = [*((f"REST {path}", below + path) for path in REST)]
        paths += [(f"console {path}", path) for path in CONSOLE]
        rows = [_measured(connection, pid, name, path, runs=runs) for name, path in paths]
        connection.close()
        rows += bench_produce_beside(cluster, [path for _, path in paths], runs=runs)
    return rows


def connected(cluster: Cluster) -> http.client.HTTPConnection:
    """A connection to the REST listener of the controller."""
    port = cluster.layout.member("controller-1").ports["rest"]
    return http.client.HTTPConnection(HOST, port, timeout=_WAIT_S)


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
        has_own_zookeeper=True,
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


def bench_produce_beside(cluster: Cluster, paths: Sequence[str], *, runs: int) -> list[Row]:
    """A producer with acks=all at a fixed rate, alone and while pages are asked for. Both in turns;
    the median of the runs.
    """
    with sync.Admin(cluster.kafka()) as admin:
        admin.create_topics([NewTopic(_PACED, assignments=[[1, 2, 3]])])
    plan = ReplicatedPlan(
        cluster.layout.member("broker-1").ports["client"],
        _PACED,
        SMALL_BYTES,
        batches=1,
        requests=PRODUCE_RATE_S * PRODUCE_S,
        rate_s=PRODUCE_RATE_S,
    )
    paced(plan)  # the first requests of a topic wait for its replicas
    found: dict[bool, list[dict[str, float]]] = {False: [], True: []}
    for _ in range(runs):
        for asked in (False, True):
            with asking(cluster, paths if asked else ()) as pages:
                latencies = paced(plan)
            found[asked].append({**latencies, "pages_s": len(pages) / PRODUCE_S})
    alone, beside = (
        {key: statistics.median(one[key] for one in found[asked]) for key in found[asked][0]}
        for asked in (False, True)
    )
    rows = [_produce_row("pages are not asked for", alone)]
    rows.append(_produce_row(f"{PAGES_S} pages a second are asked for", beside))
    most = alone["p99"] * PRODUCE_P99_TIMES + PRODUCE_P99_MORE_MS
    rows[1].bound, rows[1].held = f"p99 <{most:.1f} ms", beside["p99"] < most
    rows[1].ratio = beside["p99"] / alone["p99"]
    return rows


def _produce_row(name: str, found: dict[str, float]) -> Row:
    row = Row(
        f"administration: acks=all, {SMALL_BYTES} B x {PRODUCE_RATE_S}/s, 3 replicas",
        name,
        requests_s=PRODUCE_RATE_S,
        p50_ms=found["p50"],
        p99_ms=found["p99"],
    )
    row.extra = {"pages_s": found["pages_s"], "load_late_ms": found["late"]}
    return row


def paced(plan: ReplicatedPlan) -> dict[str, float]:
    """Latencies of one load, without its first half second."""
    with started(plan) as load:
        done = paced_of(load)
    took = done.took_ms[PRODUCE_RATE_S // 2 :]
    return {
        "p50": statistics.median(took),
        "p99": percentile(took, 0.99),
        "late": done.late_ms_max,
    }


@contextmanager
def asking(cluster: Cluster, paths: Sequence[str]) -> Iterator[list[str]]:
    """Ask for pages, one after another, at ``PAGES_S``, in a thread. Yields those answered."""
    over, answered = threading.Event(), list[str]()

    def ask() -> None:
        connection = connected(cluster)
        due = time.perf_counter()
        for path in itertools.cycle(paths):
            due = max(due + 1 / PAGES_S, time.perf_counter())
            if over.wait(due - time.perf_counter()):
                break
            status, _ = _get(connection, path)
            assert status == http.client.OK, (path, status)
            answered.append(path)
        connection.close()

    with concurrent.futures.ThreadPoolExecutor(max_workers=1) as pool:
        asked = pool.submit(ask)
        try:
            yield answered
        finally:
            over.set()
        asked.result()


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
