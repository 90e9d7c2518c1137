"""A follower that was stopped comes back far behind: how fast it catches up, and what a producer
feels of it.
"""

import itertools
import statistics
import threading
import time
from typing import Final, NamedTuple

from bench.processes import cpu_seconds
from bench.replication import (
    BATCH_BYTES,
    REQUEST_BYTES,
    SMALL_BYTES,
    paced_of,
    run_load,
    started,
)
from bench.replication_cluster import BROKERS, LEADER, ReplicatedCluster
from bench.replication_load import ReplicatedPlan
from bench.report import Row, median_of
from tidemark.cli.failure import CommandError

RATE_S: Final = 500
LAGGING: Final = 3
_WARM_UP_S: Final = 1.0
_QUIET_S: Final = 3.0
_REQUESTS_MAX: Final = 120 * RATE_S
_SAMPLE_S: Final = 0.01
_serial = itertools.count(1)


class Sample(NamedTuple):
    """Where the follower was at one time."""

    at_s: float
    log_bytes: int
    leader_cpu_s: float
    follower_cpu_s: float


class Watch(threading.Thread):
    """Samples of a follower from its start until it has all."""

    def __init__(self, cluster: ReplicatedCluster, topic: str, wanted: int) -> None:
        super().__init__(name="watch")
        self.samples: list[Sample] = []
        self.stop = threading.Event()
        self._cluster = cluster
        self._topic = topic
        self._wanted = wanted

    def run(self) -> None:
        """Until it has all, or ``stop``."""
        while not self.stop.wait(_SAMPLE_S):
            sample = self._look()
            if sample is not None:
                self.samples.append(sample)
                if sample.log_bytes >= self._wanted:
                    return

    def _look(self) -> Sample | None:
        cluster = self._cluster
        try:
            pid = cluster.pid(LAGGING)
        except CommandError:
            return None  # not started yet
        return Sample(
            time.perf_counter(),
            cluster.log_bytes(LAGGING, self._topic),
            cpu_seconds(cluster.pid(LEADER)),
            cpu_seconds(pid),
        )

    def span(self) -> tuple[Sample, Sample]:
        """The last sample without records, and the first with all."""
        assert self.samples[-1].log_bytes >= self._wanted, "it did not catch up"
        before = [one for one in self.samples if one.log_bytes == 0]
        return before[-1], self.samples[-1]


def bench_catch_up(cluster: ReplicatedCluster, *, total: int, runs: int, where: str) -> list[Row]:
    """``total`` bytes behind, beside a producer of small requests."""
    found = median_of(runs, _catch_up, cluster, total)
    group = f"a follower that comes back {total >> 20} MB behind, {where}"
    row = Row(group, "catching up", mb_s=found["mb_s"], cpu_s_per_gb=found["follower"])
    row.extra = {
        "leader_busy_before": found["busy_before"],
        "leader_busy_meanwhile": found["busy_meanwhile"],
        "seconds": found["seconds"],
        "restart_to_in_sync_s": found["in_sync_s"],
    }
    before = Row(group, f"produce, {SMALL_BYTES} B x {RATE_S}/s, acks=all: before")
    before.p50_ms, before.p99_ms = found["quiet_p50"], found["quiet_p99"]
    beside = Row(
        group, "the same while it catches up", ratio=found["busy_p99"] / found["quiet_p99"]
    )
    beside.p50_ms, beside.p99_ms = found["busy_p50"], found["busy_p99"]
    return [row, before, beside]


def _catch_up(cluster: ReplicatedCluster, total: int) -> dict[str, float]:
    number = next(_serial)
    large, small = f"behind-{number}", f"beside-{number}"
    batches = REQUEST_BYTES // BATCH_BYTES
    cluster.create_topic(large, batches)
    cluster.create_topic(small)
    lagging = cluster.name(LAGGING)
    try:
        cluster.cluster.terminate(lagging)
        for topic in (large, small):
            cluster.wait_in_sync(topic, len(BROKERS) - 1)
        plan = ReplicatedPlan(
            cluster.port(LEADER), large, BATCH_BYTES, batches, max(1, total // REQUEST_BYTES)
        )
        return _come_back(cluster, large, small, run_load(plan).bytes)
    finally:
        if lagging not in cluster.cluster.running():
            cluster.cluster.restart(lagging)
        cluster.delete_topic(large)
        cluster.delete_topic(small)


def _come_back(cluster: ReplicatedCluster, large: str, small: str, wanted: int) -> dict[str, float]:
    """The small produces begin before the restart and go on until all is in sync."""
    plan = ReplicatedPlan(cluster.port(LEADER), small, SMALL_BYTES, 1, _REQUESTS_MAX, rate_s=RATE_S)
    watch = Watch(cluster, large, wanted)
    with started(plan) as load:
        time.sleep(_WARM_UP_S)
        leader = cluster.pid(LEADER)
        quiet_from, quiet_cpu = time.perf_counter(), cpu_seconds(leader)
        time.sleep(_QUIET_S)
        restarted, idle_cpu = time.perf_counter(), (cpu_seconds(leader) - quiet_cpu) / _QUIET_S
        try:
            watch.start()
            cluster.cluster.restart(cluster.name(LAGGING))
            cluster.wait_in_sync(large)
            in_sync = time.perf_counter()
            watch.join()
        finally:
            watch.stop.set()
            watch.join()
        load.terminate()
        paced = paced_of(load)
    first, last = watch.span()
    seconds, gigabytes = last.at_s - first.at_s, wanted / 1e9
    leader_s = last.leader_cpu_s - first.leader_cpu_s
    latencies = list(zip(paced.sent_at_s, paced.took_ms, strict=True))
    quiet = [took for at, took in latencies if quiet_from <= at < restarted]
    busy = [took for at, took in latencies if first.at_s <= at < last.at_s]
    return {
        "mb_s": wanted / 1e6 / seconds,
        "seconds": seconds,
        "in_sync_s": in_sync - restarted,
        "busy_before": idle_cpu,
        "busy_meanwhile": leader_s / seconds,
        "follower": (last.follower_cpu_s - first.follower_cpu_s) / gigabytes,
        "quiet_p50": statistics.median(quiet),
        "quiet_p99": percentile(quiet, 0.99),
        "busy_p50": statistics.median(busy),
        "busy_p99": percentile(busy, 0.99),
    }


def percentile(values: list[float], part: float) -> float:
    """Of a list in any order."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))]
