"""Groups of many members, of both protocols, and offset commits. All members are one process's, so
that the coordinator's part of the time is what shows; clients add their heartbeat intervals.
"""

import itertools
from dataclasses import asdict
from typing import Any, Final

from bench.groups_load import GroupPlan
from bench.report import Row
from bench.transactions_cluster import Cpu, TransactionalCluster, at_part, run_load, since
from bench.transactions_wire import coordinator_port

MEMBERS: Final = 500
TOPIC: Final = "grouped"
COMMITTERS: Final = 50
COMMIT_PARTITIONS: Final = (1, 10)
HEARTBEAT_S: Final = 0.5
INITIAL_DELAY_MS: Final = 1_000
"""A classic group's first generation waits so long for more members, and again while more come
(Kafka's and our default: 3,000).
"""
OVERRIDES: Final = {"group.initial.rebalance.delay.ms": INITIAL_DELAY_MS}
_serial = itertools.count(1)


def bench_groups(cluster: TransactionalCluster, *, seconds: float, where: str) -> list[Row]:
    """Joining, leaving, coming back; then commits."""
    cluster.create_spread(TOPIC, MEMBERS, replicas=1)
    rows = []
    for kind in ("classic", "consumer"):
        plan = _plan(cluster, kind, MEMBERS)
        plan.heartbeat_s = HEARTBEAT_S
        found, cpu = _run(cluster, plan)
        rows += _membership_rows(f"groups of {MEMBERS} members, {where}", plan, found, cpu)
    for partitions in COMMIT_PARTITIONS:
        plan = _plan(cluster, "commits", COMMITTERS)
        plan.partitions_each, plan.seconds = partitions, seconds
        found, cpu = _run(cluster, plan)
        rows.append(_commit_row(f"offset commits of one group, {where}", plan, found, cpu))
    cluster.delete_topic(TOPIC)
    return rows


def _plan(cluster: TransactionalCluster, kind: str, members: int) -> GroupPlan:
    group = f"group-{next(_serial)}"
    port = coordinator_port(cluster.port(1), group, of_group=True)
    return GroupPlan(kind, port, group, TOPIC, MEMBERS, members)


def _run(cluster: TransactionalCluster, plan: GroupPlan) -> tuple[dict[str, Any], Cpu]:
    before = cluster.service_cpu()
    found = run_load("bench.groups_load", asdict(plan))
    return found, since(before, cluster.service_cpu())


def _coordinator(cluster_cpu: Cpu) -> float:
    """The broker that did most: all others only follow."""
    return max(cluster_cpu.values())


def _membership_rows(group: str, plan: GroupPlan, found: dict[str, Any], cpu: Cpu) -> list[Row]:
    rows = [
        Row(group, f"{plan.kind}: {what}", extra={"seconds": float(found[key])})
        for what, key in (
            ("all join", "joined_s"),
            ("one leaves", "left_s"),
            ("one comes back", "returned_s"),
        )
    ]
    if plan.kind == "classic":
        rows[0].extra["initial_delay_s"] = INITIAL_DELAY_MS / 1e3
    else:
        rows[0].extra["heartbeat_s"] = plan.heartbeat_s
    rows[0].extra["requests"] = float(found["joins"])
    rows[-1].extra["coordinator_cpu_s_in_all"] = _coordinator(cpu)
    rows[-1].extra["requests_in_all"] = float(found["requests"])
    rows[-1].extra["load_cpu_s"] = float(found["load_cpu_s"])
    return rows


def _commit_row(group: str, plan: GroupPlan, found: dict[str, Any], cpu: Cpu) -> Row:
    took, commits = found["commit_ms"], len(found["commit_ms"])
    row = Row(group, f"{plan.members} members, {plan.partitions_each} partitions each time")
    row.requests_s = commits / found["seconds"]
    row.p50_ms, row.p99_ms, row.p999_ms = (at_part(took, part) for part in (0.5, 0.99, 0.999))
    row.extra = {
        "coordinator_us_per_commit": 1e6 * _coordinator(cpu) / max(1, commits),
        "load_cpu_share": found["load_cpu_s"] / found["seconds"],
    }
    return row
