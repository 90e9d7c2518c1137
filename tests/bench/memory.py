"""Size and restart: an idle broker, a thousand partitions, a gigabyte, 200 large requests."""

import time
from dataclasses import replace
from pathlib import Path
from typing import Final

from bench.broker import BrokerUnderTest, broker
from bench.load import Plan
from bench.processes import cpu_seconds, floor_server, measure, rss_bytes
from bench.report import Row

MB: Final = 1e6
IDLE_MB_MAX: Final = 120
THOUSAND_PARTITIONS_MB_MAX: Final = 250
RESTART_SECONDS_MAX: Final = 5
PARTITIONS: Final = 1_000
LAST_TO_FIRST_MAX: Final = 3
SPREAD: Final = 100  # partitions that hold the gigabyte


def bench_memory_and_restart(directory: Path, *, total: int) -> list[Row]:
    """One broker through all of it."""
    group = "size and restart"
    with broker(directory) as one:
        idle = rss_bytes(one.pid) / MB
        rows = [Row(group, "idle broker", extra={"rss_MB": idle})]
        rows[0].bound, rows[0].held = f"<{IDLE_MB_MAX} MB", idle < IDLE_MB_MAX
        one.create_topic("many", PARTITIONS)
        many = rss_bytes(one.pid) / MB
        rows.append(Row(group, f"{PARTITIONS:,} partitions", extra={"rss_MB": many}))
        rows[1].bound = f"<{THOUSAND_PARTITIONS_MB_MAX} MB"
        rows[1].held = many < THOUSAND_PARTITIONS_MB_MAX
        plan = Plan(
            "produce", one.port, "many", 16 << 10, total, connections=SPREAD, partitions=SPREAD
        )
        measure(plan, one.pid)
        rows.append(restart(one, group, "restart after a clean stop", kill=False))
        rows.append(restart(one, group, "restart after kill -9", kill=True))
    return rows


def restart(one: BrokerUnderTest, group: str, name: str, *, kill: bool) -> Row:
    """Stop or kill, start, wait until it is ready and serves every partition."""
    if kill:
        one.cluster.kill("broker-1")
    else:
        one.cluster.terminate("broker-1")
    started = time.monotonic()
    one.cluster.restart("broker-1")
    seconds = time.monotonic() - started
    row = Row(group, name, extra={"seconds": seconds, "cpu_s": cpu_seconds(one.pid)})
    row.extra["rss_MB"] = rss_bytes(one.pid) / MB
    row.bound, row.held = f"<{RESTART_SECONDS_MAX} s", seconds < RESTART_SECONDS_MAX
    return row


def bench_many_large(one: BrokerUnderTest, floor_directory: Path) -> list[Row]:
    """200 connections, each with ten requests of 1 MB: memory stays bounded, nobody starves.

    All have the same to do, so that how long the first and the last needed says how fair it is;
    the floor, which reads once from each socket in turn, says how fair the load is.
    """
    one.create_topic("large", 8)
    before = rss_bytes(one.pid) / MB
    plan = Plan("produce", one.port, "large", 1 << 20, 2_000 << 20, connections=200, partitions=8)
    outcome, cpu = measure(plan, one.pid)
    with floor_server("produce", floor_directory, 0) as (port, pid):
        floor, _ = measure(replace(plan, port=port), pid)
    ratio = outcome.last_done_s / outcome.first_done_s
    row = Row(
        "200 connections x 1 MB, 5 in flight",
        "produce",
        mb_s=outcome.bytes / outcome.seconds / MB,
        cpu_s_per_gb=cpu / (outcome.bytes / 1e9),
        p50_ms=outcome.p50_ms,
        p99_ms=outcome.p99_ms,
        p999_ms=outcome.p999_ms,
        bound=f"last <={LAST_TO_FIRST_MAX} x first",
        held=ratio <= LAST_TO_FIRST_MAX,
        extra={
            "rss_before_MB": before,
            "rss_after_MB": rss_bytes(one.pid) / MB,
            "first_done_s": outcome.first_done_s,
            "last_done_s": outcome.last_done_s,
            "fewest_of_10_at_first_done": float(outcome.fewest_at_first_done),
            "floor_last_to_first": floor.last_done_s / floor.first_done_s,
        },
    )
    one.delete_topic("large")
    return [row]
