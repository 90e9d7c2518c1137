"""Produce, acks=1: batches of 170 B to 1 MB into fresh segments, beside the floor."""

from pathlib import Path

from bench.broker import BrokerUnderTest
from bench.load import Plan
from bench.processes import floor_server, measure
from bench.report import Row, median_of

SMALL_BYTES = 170
SIZES = (SMALL_BYTES, 16 << 10, 64 << 10, 256 << 10, 1 << 20)
REQUESTS_S_MIN = 25_000
RATIO_MAX = 1.6
_GB = 1e9


def plan_for(size: int, total: int, port: int, topic: str, connections: int) -> Plan:
    """One partition a connection, five in flight."""
    small = size == SMALL_BYTES
    return Plan(
        "produce",
        port,
        topic,
        size,
        min(total, 100_000 * size) if small else total,
        connections=connections,
        in_flight=5,
        partitions=connections,
        producer_ids=[1_000_000 + index for index in range(connections)] if small else [],
    )


def figures(plan: Plan, pid: int) -> dict[str, float]:
    """One run."""
    outcome, cpu = measure(plan, pid)
    return {
        "mb_s": outcome.bytes / outcome.seconds / 1e6,
        "requests_s": outcome.requests / outcome.seconds,
        "cpu_s_per_gb": cpu / (outcome.bytes / _GB),
        "requests_per_cpu_s": outcome.requests / max(cpu, 0.01),
        "p50_ms": outcome.p50_ms,
        "p99_ms": outcome.p99_ms,
        "p999_ms": outcome.p999_ms,
    }


def bench_produce(
    broker: BrokerUnderTest, directory: Path, *, total: int, runs: int, where: str
) -> list[Row]:
    """A row a size and number of connections."""
    rows = []
    for connections in (1, 4):
        for size in SIZES:
            rows.append(
                one_size(
                    broker, directory, size=size, connections=connections, total=total, runs=runs
                )
            )
            rows[-1].group = f"produce acks=1, {where}"
    return rows


def one_size(
    broker: BrokerUnderTest, directory: Path, *, size: int, connections: int, total: int, runs: int
) -> Row:
    """Floor and broker in turn; every run of the broker writes into a fresh topic."""
    number = 0

    def of_broker() -> dict[str, float]:
        nonlocal number
        number += 1
        topic = f"produce-{size}-{connections}-{number}"
        broker.create_topic(topic, connections)
        try:
            plan = plan_for(size, total, broker.port, topic, connections)
            found = figures(plan, broker.pid)
            sent = max(1, plan.total_bytes // size) * size
            assert broker.stored_bytes(topic) == sent, "a batch was refused"
            return found
        finally:
            broker.delete_topic(topic)

    def of_floor() -> dict[str, float]:
        with floor_server("produce", directory, 0) as (port, pid):
            return figures(plan_for(size, total, port, "floor", connections), pid)

    floor = median_of(runs, of_floor)
    ours = median_of(runs, of_broker)
    ratio = ours["cpu_s_per_gb"] / max(floor["cpu_s_per_gb"], 1e-9)
    row = Row(
        "",
        f"{size:,} B x {connections} conn",
        mb_s=ours["mb_s"],
        requests_s=ours["requests_s"],
        cpu_s_per_gb=ours["cpu_s_per_gb"],
        floor_cpu_s_per_gb=floor["cpu_s_per_gb"],
        ratio=ratio,
        p50_ms=ours["p50_ms"],
        p99_ms=ours["p99_ms"],
        p999_ms=ours["p999_ms"],
        extra={
            "floor_req_s": floor["requests_s"],
            "req_per_cpu_s": ours["requests_per_cpu_s"],
        },
    )
    if size == SMALL_BYTES:
        row.bound = f">={REQUESTS_S_MIN:,} req/CPU s"
        row.held = ours["requests_per_cpu_s"] >= REQUESTS_S_MIN
    elif size >= 64 << 10:
        row.bound = f"ratio <={RATIO_MAX}"
        row.held = ratio <= RATIO_MAX
    return row
