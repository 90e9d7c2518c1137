"""Commits per second of small transactions: one and ten partitions, one producer and many."""

from dataclasses import asdict
from typing import Any, Final

from bench.report import Row
from bench.transactions_cluster import (
    BROKER_NAMES,
    Cpu,
    TransactionalCluster,
    at_part,
    run_load,
    since,
)
from bench.transactions_small_load import SmallPlan

TOPIC: Final = "small"
PARTITIONS: Final = 100
PRODUCERS: Final = (1, 32)
PARTITIONS_EACH: Final = (1, 10)
_WARM_UP_S: Final = 1.0


def bench_small(cluster: TransactionalCluster, *, seconds: float, where: str) -> list[Row]:
    """Each combination."""
    cluster.create_spread(TOPIC, PARTITIONS)
    rows = []
    for partitions in PARTITIONS_EACH:
        for producers in PRODUCERS:
            plan = SmallPlan(TOPIC, cluster.led(TOPIC), producers, partitions, _WARM_UP_S)
            run_load("bench.transactions_small_load", asdict(plan))
            plan.seconds = seconds
            before = cluster.service_cpu()
            found = run_load("bench.transactions_small_load", asdict(plan))
            rows.append(_row(where, plan, found, since(before, cluster.service_cpu())))
    cluster.delete_topic(TOPIC)
    return rows


def _row(where: str, plan: SmallPlan, found: dict[str, Any], cpu: Cpu) -> Row:
    took, commits = found["took_ms"], len(found["took_ms"])
    words = f"{plan.partitions_each} partitions, {plan.producers} producers"
    row = Row(f"small transactions, req/s are commits/s, {where}", words)
    row.requests_s = commits / found["seconds"]
    row.p50_ms, row.p99_ms, row.p999_ms = (at_part(took, part) for part in (0.5, 0.99, 0.999))
    row.extra = {
        "end_p50_ms": at_part(found["end_ms"], 0.5),
        "end_p99_ms": at_part(found["end_ms"], 0.99),
        "refused_per_commit": found["refused"] / max(1, commits),
        "brokers_us_per_commit": 1e6 * sum(cpu[name] for name in BROKER_NAMES) / max(1, commits),
        "coordinator_us_per_commit": 1e6 * cpu["txn-coordinator-1"] / max(1, commits),
        "load_cpu_share": found["load_cpu_s"] / found["seconds"],
    }
    return row
