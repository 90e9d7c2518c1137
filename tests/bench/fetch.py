"""Fetch: 64 KB to 8 MB a request, hot and cold, 1 to 200 readers, beside the sendfile floor."""

import shutil
import statistics
import time
from dataclasses import replace
from pathlib import Path
from typing import Final

from bench.broker import BrokerUnderTest
from bench.frames import batch_of
from bench.load import Plan
from bench.processes import (
    background_load,
    drop_from_page_cache,
    floor_server,
    measure,
    resident_share,
)
from bench.report import Row, median_of

BATCH_BYTES: Final = 64 << 10
SIZES: Final = (64 << 10, 1 << 20, 8 << 20)
READERS: Final = (1, 4, 200)
RATIO_MAX: Final = 1.6
COLD_P99_RATIO_MAX: Final = 2.0
COLD_MB_S: Final = 150
COLD_BYTES_MAX: Final = 1 << 30
READING_SHARE: Final = 0.02
READING_WITHIN_S: Final = 10.0
_GB: Final = 1e9
TOPIC: Final = "fetch"


def records_a_batch() -> int:
    """How many records the load's 64 KB batch holds."""
    return int.from_bytes(batch_of(BATCH_BYTES)[57:61], "big")


def fill(broker: BrokerUnderTest, topic: str, total: int) -> None:
    """A partition of ``total`` bytes in 64 KB batches."""
    broker.create_topic(topic)
    measure(Plan("produce", broker.port, topic, BATCH_BYTES, total), broker.pid)


def fetch_plan(port: int, topic: str, size: int, total: int, readers: int) -> Plan:
    """Every reader from offset 0, one request in flight."""
    return Plan(
        "fetch",
        port,
        topic,
        size,
        total,
        connections=readers,
        in_flight=1,
        batch_bytes=BATCH_BYTES,
        batch_records=records_a_batch(),
    )


def figures(plan: Plan, pid: int) -> dict[str, float]:
    """One run."""
    outcome, cpu = measure(plan, pid)
    return {
        "mb_s": outcome.bytes / outcome.seconds / 1e6,
        "requests_s": outcome.requests / outcome.seconds,
        "cpu_s_per_gb": cpu / (outcome.bytes / _GB),
        "p50_ms": outcome.p50_ms,
        "p99_ms": outcome.p99_ms,
        "p999_ms": outcome.p999_ms,
    }


def bench_fetch(
    broker: BrokerUnderTest, directory: Path, *, total: int, runs: int, where: str
) -> list[Row]:
    """Hot rows for every size and number of readers; cold ones for one reader."""
    stored = min(total, 1 << 29)
    fill(broker, TOPIC, stored)
    shutil.copyfile(broker.segments(TOPIC)[0], directory / "floor.log")
    rows = []
    for size in SIZES:
        with floor_server("fetch", directory, size) as (port, pid):
            floor = median_of(runs, figures, fetch_plan(port, "floor", size, total, 1), pid)
        for readers in READERS:
            plan = fetch_plan(broker.port, TOPIC, size, total, readers)
            ours = median_of(runs, figures, plan, broker.pid)
            rows.append(row(f"{size >> 10:,} KB x {readers} readers, hot", where, ours, floor))
            if size == 1 << 20:
                rows[-1].bound = f"ratio <={RATIO_MAX}"
                rows[-1].held = (rows[-1].ratio or 0) <= RATIO_MAX
        rows.append(cold(broker, size, where, stored))
    broker.delete_topic(TOPIC)
    return rows


def row(name: str, where: str, ours: dict[str, float], floor: dict[str, float] | None) -> Row:
    """Figures as a row."""
    floor_cpu = None if floor is None else floor["cpu_s_per_gb"]
    made = Row(f"fetch, {where}", name, **ours, floor_cpu_s_per_gb=floor_cpu)  # type: ignore[arg-type]
    made.ratio = None if floor_cpu is None else ours["cpu_s_per_gb"] / max(floor_cpu, 1e-9)
    return made


def cold(broker: BrokerUnderTest, size: int, where: str, stored: int) -> Row:
    """One reader over pages that are not in memory; how many were is said."""
    segments = broker.segments(TOPIC)
    drop_from_page_cache(segments)
    share = resident_share(segments)
    ours = figures(fetch_plan(broker.port, TOPIC, size, stored, 1), broker.pid)
    made = row(f"{size >> 10:,} KB x 1 reader, cold", where, ours, None)
    made.extra["resident_before_%"] = 100 * share
    return made


def bench_cold_reader_beside_hot_producer(
    broker: BrokerUnderTest, *, total: int, runs: int, where: str
) -> list[Row]:
    """A hot producer's p99 alone, then beside a cold reader."""
    fill(broker, "cold", min(total, COLD_BYTES_MAX))
    broker.create_topic("hot")
    # Paced by one request in flight: latency, not throughput.
    hot = Plan("produce", broker.port, "hot", 16 << 10, 512 << 20, in_flight=1)
    segments = broker.segments("cold")
    read_shares: list[float] = []

    def beside() -> dict[str, float]:
        drop_from_page_cache(segments)
        # Slow enough that every page it asks for is still cold, and that both share two cores.
        reader = replace(fetch_plan(broker.port, "cold", 1 << 20, 1 << 40, 1), pace_mb_s=COLD_MB_S)
        with background_load(reader):
            _await_reading(segments)
            found = figures(hot, broker.pid)
            # How much came from the disk meanwhile: a reader that stands still disturbs nobody.
            read_shares.append(resident_share(segments))
            return found

    # In turns, so that a machine that becomes slower or faster meanwhile changes both.
    pairs = [(figures(hot, broker.pid), beside()) for _ in range(runs)]
    alone, disturbed = (
        {key: statistics.median(pair[at][key] for pair in pairs) for key in pairs[0][at]}
        for at in (0, 1)
    )
    ratios = [after["p99_ms"] / max(before["p99_ms"], 1e-6) for before, after in pairs]
    ratio = statistics.median(ratios)
    group = f"hot producer and cold reader, {where}"
    first = Row(group, "producer alone, 16 KB, 1 in flight", **alone)  # type: ignore[arg-type]
    second = Row(group, "beside a cold reader", **disturbed)  # type: ignore[arg-type]
    second.bound, second.held = f"p99 ratio <={COLD_P99_RATIO_MAX}", ratio <= COLD_P99_RATIO_MAX
    second.extra["p99_ratio"] = ratio
    second.extra["p99_ratio_of_runs"] = f"{min(ratios):.2f}..{max(ratios):.2f}"
    second.extra["reader_MB_s"] = float(COLD_MB_S)
    second.extra["cold_MB_read"] = min(read_shares) * sum(map(_size, segments)) / 1e6
    return [first, second]


def _size(path: Path) -> int:
    return path.stat().st_size


def _await_reading(segments: list[Path]) -> None:
    """Until the reader has begun: what is measured beside it must be beside it all the time."""
    deadline = time.monotonic() + READING_WITHIN_S
    while resident_share(segments) < READING_SHARE and time.monotonic() < deadline:
        time.sleep(0.01)


def bench_compaction_beside_hot_producer(
    broker: BrokerUnderTest, *, total: int, runs: int, where: str
) -> list[Row]:
    """A hot producer's p99 alone, then while another topic is being compacted."""
    stored = min(total, 1 << 29)
    broker.create_topic("to-compact", configs={"segment.bytes": str(64 << 20)})
    filling = Plan("produce", broker.port, "to-compact", BATCH_BYTES, stored, keyed=True)
    measure(filling, broker.pid)
    broker.create_topic("hot-too")
    hot = Plan("produce", broker.port, "hot-too", 16 << 10, 64 << 20, in_flight=1)
    alone = median_of(runs, figures, hot, broker.pid)
    broker.alter_topic("to-compact", "min.cleanable.dirty.ratio", "0.01")
    broker.alter_topic("to-compact", "cleanup.policy", "compact")
    log = broker.cluster.layout.log_path("broker-1")
    beside: list[dict[str, float]] = []
    while "compacted" not in log.read_text() and len(beside) < 100:
        beside.append(figures(hot, broker.pid))
    during = max(len(beside) - 1, 0)  # compaction ended during the last one
    disturbed = {
        key: statistics.median(one[key] for one in beside[:during] or beside) for key in alone
    }
    group = f"hot producer and compaction, {where}"
    ratio = disturbed["p99_ms"] / max(alone["p99_ms"], 1e-6)
    first = Row(group, "producer alone, 16 KB, 1 in flight", **alone)  # type: ignore[arg-type]
    second = Row(group, "while compaction runs", **disturbed)  # type: ignore[arg-type]
    second.bound, second.held = f"p99 ratio <={COLD_P99_RATIO_MAX}", ratio <= COLD_P99_RATIO_MAX
    second.extra["p99_ratio"] = ratio
    second.extra["runs_during"] = float(during)
    return [first, second]
