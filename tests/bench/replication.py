"""Replication, acks=all, three replicas: what leader and followers cost, beside the floor."""

import json
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from bench.load import Outcome
from bench.processes import ENVIRONMENT, cpu_seconds
from bench.replication_cluster import BROKERS, FOLLOWERS, LEADER, ReplicatedCluster, wait_for
from bench.replication_load import Paced, ReplicatedPlan
from bench.report import Row, median_of
from free_ports import free_port

LEADER_CPU_S_PER_GB_MAX: Final = 1.0
FOLLOWER_CPU_S_PER_GB_MAX: Final = 0.5
BATCH_BYTES: Final = 64 << 10
REQUEST_BYTES: Final = 1 << 20
SMALL_BYTES: Final = 170
_GB: Final = 1e9


def run_load(plan: ReplicatedPlan) -> Outcome:
    """As fast as it goes, in a process of its own."""
    with started(plan) as load:
        return Outcome(**_output_of(load))


def paced_of(load: "subprocess.Popen[bytes]") -> Paced:
    """What a paced load found until now, or until it has sent all of its requests."""
    return Paced(**_output_of(load))


@contextmanager
def started(plan: ReplicatedPlan) -> Iterator["subprocess.Popen[bytes]"]:
    """A load in a process of its own, ended with the block."""
    command = [sys.executable, "-m", "bench.replication_load", json.dumps(asdict(plan))]
    process = subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.PIPE)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def _output_of(load: "subprocess.Popen[bytes]") -> dict[str, Any]:
    assert load.stdout is not None
    written = load.stdout.read()
    if load.wait() != 0:
        raise RuntimeError("the load failed: its error is above")
    found: dict[str, Any] = json.loads(written)
    return found


def settle(cluster: ReplicatedCluster, topic: str, partitions: int) -> None:
    """A write to each partition, acknowledged by all: a follower's fetch that waits at the leader
    when a topic is made does not name it yet.
    """
    run_load(ReplicatedPlan(cluster.port(LEADER), topic, SMALL_BYTES, partitions, 1))


def bench_replication(
    cluster: ReplicatedCluster, directory: Path, *, total: int, runs: int, where: str
) -> list[Row]:
    """Requests of 1 MB: batches of 64 KB for sixteen partitions of which one broker leads all."""
    number = 0

    def of_brokers() -> dict[str, float]:
        nonlocal number
        number += 1
        topic = f"replicated-{number}"
        cluster.create_topic(topic, REQUEST_BYTES // BATCH_BYTES)
        settle(cluster, topic, REQUEST_BYTES // BATCH_BYTES)
        try:
            return _flood(cluster, topic, total)
        finally:
            cluster.delete_topic(topic)

    floor = median_of(runs, _floor, directory, total)
    ours = median_of(runs, of_brokers)
    rows = [_role_row(role, ours, floor) for role in ("leader", "follower")]
    for row in rows:
        row.group = f"replication, acks=all, 3 replicas, 64 KB batches in 1 MB requests, {where}"
    return rows


def _plan(port: int, topic: str, total: int) -> ReplicatedPlan:
    return ReplicatedPlan(
        port, topic, BATCH_BYTES, REQUEST_BYTES // BATCH_BYTES, max(1, total // REQUEST_BYTES)
    )


def _flood(cluster: ReplicatedCluster, topic: str, total: int) -> dict[str, float]:
    before, had = cluster.cpu(), cluster.log_bytes(LEADER, topic)
    outcome = run_load(_plan(cluster.port(LEADER), topic, total))
    wanted = had + outcome.bytes
    wait_for(lambda: all(cluster.log_bytes(one, topic) == wanted for one in BROKERS))
    spent = {one: (used - before[one]) for one, used in cluster.cpu().items()}
    return _figures(outcome, spent[LEADER], [spent[one] for one in FOLLOWERS])


def _figures(outcome: Outcome, leader_s: float, followers_s: list[float]) -> dict[str, float]:
    gigabytes = outcome.bytes / _GB
    return {
        "mb_s": outcome.bytes / outcome.seconds / 1e6,
        "p50_ms": outcome.p50_ms,
        "p99_ms": outcome.p99_ms,
        "leader": leader_s / gigabytes,
        "follower": statistics.mean(followers_s) / gigabytes,
        "load": outcome.load_cpu_s / gigabytes,
    }


def _floor(directory: Path, total: int) -> dict[str, float]:
    port, followers_port = free_port(), free_port()
    module = [sys.executable, "-m", "bench.replication_floor"]
    batch = str(BATCH_BYTES)
    lead = [*module, "leader", str(port), str(followers_port), str(directory), batch]
    processes = [subprocess.Popen(lead, env=ENVIRONMENT, stdout=subprocess.PIPE)]
    try:
        assert processes[0].stdout is not None
        processes[0].stdout.readline()
        for number in FOLLOWERS:
            path = directory / f"floor-follower-{number}.log"
            follow = [*module, "follower", str(followers_port), str(path), batch]
            processes.append(subprocess.Popen(follow, env=ENVIRONMENT))
        before = [cpu_seconds(process.pid) for process in processes]
        outcome = run_load(_plan(port, "floor", total))
        after = [cpu_seconds(process.pid) for process in processes]
        spent = [used - earlier for used, earlier in zip(after, before, strict=True)]
        return _figures(outcome, spent[0], spent[1:])
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def _role_row(role: str, ours: dict[str, float], floor: dict[str, float]) -> Row:
    bound = LEADER_CPU_S_PER_GB_MAX if role == "leader" else FOLLOWER_CPU_S_PER_GB_MAX
    row = Row("", role, cpu_s_per_gb=ours[role], floor_cpu_s_per_gb=floor[role])
    row.ratio = ours[role] / floor[role]
    row.bound, row.held = f"<={bound} s/GB", ours[role] <= bound
    if role == "leader":
        row.mb_s, row.p50_ms, row.p99_ms = ours["mb_s"], ours["p50_ms"], ours["p99_ms"]
        row.extra = {"floor_mb_s": floor["mb_s"], "load_s_per_gb": ours["load"]}
    return row
