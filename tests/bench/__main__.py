"""``python -m bench``: every figure, with its floor from the same run; a table and a JSON file."""

import argparse
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from bench.admin import bench_admin
from bench.broker import BrokerUnderTest, broker
from bench.controller_failover import bench_failover
from bench.deltas import bench_deltas
from bench.failover import STOPS, bench_cut_of_leader, bench_failover_of_leader
from bench.fetch import (
    bench_cold_reader_beside_hot_producer,
    bench_compaction_beside_hot_producer,
    bench_fetch,
)
from bench.groups import OVERRIDES as GROUP_OVERRIDES
from bench.groups import bench_groups
from bench.grpc_store import bench_grpc
from bench.memory import bench_many_large, bench_memory_and_restart
from bench.metering import bench_metering
from bench.processes import ROOT
from bench.produce import bench_produce
from bench.replication import bench_replication
from bench.replication_acks import bench_ack_stages, bench_acks
from bench.replication_catch_up import bench_catch_up
from bench.replication_cluster import ReplicatedCluster, replicated
from bench.report import Row, show, write_json
from bench.scale import bench_scale
from bench.secure import bench_secure
from bench.share import bench_share
from bench.share_core import bench_share_core
from bench.share_partitions import bench_share_partitions
from bench.spark import bench_spark
from bench.transactions import bench_highest, bench_steady
from bench.transactions_cluster import TransactionalCluster, transactional
from bench.transactions_small import bench_small
from e2e.netns import why_no_networks
from rich.console import Console

REPLICATED = ("replication", "acks", "catchup", "failover")
COORDINATED = ("transactions", "highest", "smalltxns", "groups", "spark")
GROUPS = (
    *("produce", "fetch", "cold", "compaction", "grpc", "large", "memory", "failover10k", "deltas"),
    "sharecore",
    "share",
    "admin",
    "metering",
    "secure",
    "scale",
    "cut",
    *REPLICATED,
    *COORDINATED,
)
REPLICATED_BYTES_MAX = 512 << 20
"""Of a run: three copies are kept."""
CATCH_UPS_MAX = 3
SECURE_BYTES_MAX = 256 << 20
"""Of a run: a client encrypts as much as the broker."""
SPARK_BYTES_MAX = 256 << 20
"""Of a run: a row goes through Python's and Java's memory, not only through the page cache."""


def options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument("--only", default=",".join(GROUPS), help=f"of {','.join(GROUPS)}")
    parser.add_argument("--runs", type=int, default=5, help="runs of each; medians are shown")
    parser.add_argument("--megabytes", type=int, default=1_024, help="a run; at most 4096")
    parser.add_argument("--where", default="tmpfs,disk", help="tmpfs, disk or both")
    parser.add_argument("--rate", type=float, default=100, help="MB/s of steady writes")
    parser.add_argument("--seconds", type=float, default=15, help="of steady writes")
    parser.add_argument("--failovers", type=int, default=20, help="runs of each kind of failover")
    parser.add_argument(
        "--stops",
        type=lambda names: names.split(","),
        default=list(STOPS),
        help="kinds of failover, such as 'power loss,SIGSTOP'",
    )
    parser.add_argument("--strict", action="store_true", help="exit 1 when a bound is missed")
    return parser.parse_args()


def main() -> int:
    """Run what was asked for."""
    asked = options()
    only = asked.only.split(",")
    total = min(asked.megabytes, 4_096) << 20
    places = {"tmpfs": "/dev/shm", "disk": None}
    console = Console(width=200)
    rows: list[Row] = []
    for where in asked.where.split(","):
        directory = Path(tempfile.mkdtemp(prefix="tidemark-bench-", dir=places[where]))
        try:
            for group in run_groups(directory, where, only, total=total, runs=asked.runs):
                show(group, console)
                rows += group
            for group in run_replicated(directory, where, only, asked):
                show(group, console)
                rows += group
            for group in run_coordinated(directory, where, only, asked):
                show(group, console)
                rows += group
        finally:
            shutil.rmtree(directory, ignore_errors=True)
    path = write_json(rows, ROOT / "bench-results", vars(asked))
    missed = [row for row in rows if row.held is False]
    console.print(f"{len(rows)} rows in {path.relative_to(ROOT)}; {len(missed)} bounds missed")
    return 1 if missed and asked.strict else 0


def run_groups(
    directory: Path, where: str, only: list[str], *, total: int, runs: int
) -> "list[list[Row]]":
    """All groups in one place."""
    floor_directory = directory / "floor"
    floor_directory.mkdir()
    overrides = {"log.segment.delete.delay.ms": 1_000, "log.retention.check.interval.ms": 1_000}
    overrides["log.cleaner.backoff.ms"] = 500
    steps: dict[str, Callable[[BrokerUnderTest], list[Row]]] = {
        "produce": lambda one: bench_produce(
            one, floor_directory, total=total, runs=runs, where=where
        ),
        "fetch": lambda one: bench_fetch(one, floor_directory, total=total, runs=runs, where=where),
        "cold": lambda one: bench_cold_reader_beside_hot_producer(
            one, total=total, runs=runs, where=where
        ),
        "compaction": lambda one: bench_compaction_beside_hot_producer(
            one, total=total, runs=runs, where=where
        ),
        "grpc": lambda one: bench_grpc(one, total=min(total, 512 << 20), where=where),
        "large": lambda one: bench_many_large(one, floor_directory),
    }
    if where == "tmpfs":
        steps.pop("cold")  # no page of a tmpfs is ever cold
    groups = []
    if set(steps) & set(only):
        with broker(directory / "cluster", overrides) as one:
            groups += [step(one) for name, step in steps.items() if name in only]
    if "memory" in only and where == "disk":
        groups.append(bench_memory_and_restart(directory / "memory", total=min(total, 1 << 30)))
    if where == "tmpfs":
        groups += in_memory(directory, only, total=total, runs=runs)
    if "share" in only:
        shared = directory / "share"
        groups.append(bench_share(shared, total=min(total, 1 << 30), runs=runs, where=where))
    if "failover10k" in only and where == "disk":
        groups.append(bench_failover(directory / "failover"))
    return groups


def in_memory(directory: Path, only: list[str], *, total: int, runs: int) -> "list[list[Row]]":
    """The groups that no disk plays a part in."""
    groups = []
    if "deltas" in only:
        groups.append(bench_deltas())
    if "sharecore" in only:
        groups += [bench_share_core(), bench_share_partitions()]
    if "admin" in only:
        groups.append(bench_admin(directory / "admin", runs=runs))
    if "metering" in only:
        groups.append(bench_metering(directory / "metering", runs=runs))
    if "secure" in only:
        secured = directory / "secure"
        groups.append(bench_secure(secured, total=min(total, SECURE_BYTES_MAX), runs=runs))
    return groups


def run_replicated(
    directory: Path, where: str, only: list[str], asked: argparse.Namespace
) -> "Iterator[list[Row]]":
    """The groups that need three brokers. How long something takes is measured on disk alone."""
    steps: dict[str, Callable[[ReplicatedCluster], list[Row]]] = {
        "replication": lambda cluster: bench_replication(
            cluster,
            directory / "floor",
            total=min(asked.megabytes << 20, REPLICATED_BYTES_MAX),
            runs=asked.runs,
            where=where,
        ),
        "acks": lambda cluster: bench_acks(cluster, runs=asked.runs, where=where),
        "catchup": lambda cluster: bench_catch_up(
            cluster,
            total=min(asked.megabytes << 20, REPLICATED_BYTES_MAX),
            runs=min(asked.runs, CATCH_UPS_MAX),
            where=where,
        ),
        "failover": lambda cluster: bench_failover_of_leader(
            cluster, asked.stops, runs=asked.failovers, where=where
        ),
    }
    wanted = [name for name in steps if name in only and (where == "disk" or name == "replication")]
    if wanted:
        with replicated(directory / "replicated") as cluster:
            for name in wanted:
                yield steps[name](cluster)
    if "acks" in wanted:
        yield bench_ack_stages(directory / "stages", where)
    if "cut" in only and where == "disk":
        if why := why_no_networks():
            print(f"no cut of a leader: {why}")
        else:
            yield bench_cut_of_leader(directory / "cut", runs=asked.failovers, where=where)
    if "scale" in only and where == "disk":
        yield from bench_scale(directory, seconds=asked.seconds)


def run_coordinated(
    directory: Path, where: str, only: list[str], asked: argparse.Namespace
) -> "Iterator[list[Row]]":
    """The groups that need coordinators, on disk alone."""
    short_s = asked.seconds / 3
    steps: dict[str, Callable[[TransactionalCluster], list[Row]]] = {
        "transactions": lambda cluster: bench_steady(
            cluster, rate_mb_s=asked.rate, seconds=asked.seconds, where=where
        ),
        "highest": lambda cluster: bench_highest(cluster, seconds=short_s, where=where),
        "smalltxns": lambda cluster: bench_small(cluster, seconds=short_s, where=where),
        "groups": lambda cluster: bench_groups(cluster, seconds=short_s, where=where),
        "spark": lambda cluster: bench_spark(
            cluster,
            directory / "spark",
            records=min(asked.megabytes << 20, SPARK_BYTES_MAX) // 1_024,
            runs=asked.runs,
            where=where,
        ),
    }
    wanted = [name for name in steps if name in only and where == "disk"]
    if wanted:
        with transactional(directory / "coordinated", GROUP_OVERRIDES) as cluster:
            for name in wanted:
                yield steps[name](cluster)


if __name__ == "__main__":
    raise SystemExit(main())
