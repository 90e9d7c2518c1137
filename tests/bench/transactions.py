"""What transactions cost: the same steady writes into 100 partitions with a commit every half
second and without; and the highest steady rate of both.

The run without transactions is the floor of the run with them: same process, same requests, same
readers but for the isolation level.
"""

import itertools
from dataclasses import asdict
from typing import Any, Final, NamedTuple

from bench.report import Row
from bench.transactions_cluster import (
    Cpu,
    TransactionalCluster,
    at_part,
    brokers_of,
    load,
    outcome_of,
    run_load,
    since,
)
from bench.transactions_load import SteadyPlan
from bench.transactions_reader import ReaderPlan
from bench.transactions_wire import stamped_batch

PARTITIONS: Final = 100
COMMIT_EVERY_S: Final = 0.5
TICK_S: Final = 0.05
RAMP_MB_S: Final = (10.0, 25.0, 50.0, 100.0, 150.0, 200.0, 300.0, 400.0)
BEHIND_S_MAX: Final = 1.0
"""A rate is held when the last acknowledgement comes so soon after the last creation."""
_WARM_UP_S: Final = 1.0
_WARM_UP_MB_S: Final = 2.0
_DRAIN_S: Final = 60.0
_serial = itertools.count(1)


class Mode(NamedTuple):
    """With transactions, or without."""

    name: str
    commit_every_s: float


WITHOUT: Final = Mode("without transactions", 0)
WITH: Final = Mode("a commit every 0.5 s", COMMIT_EVERY_S)


class Steady(NamedTuple):
    """One run: what the writer and the reader saw, and what the services used."""

    writer: dict[str, Any]
    reader: dict[str, Any]
    cpu: Cpu

    @property
    def seconds(self) -> float:
        return float(self.writer["seconds"])

    @property
    def gigabytes(self) -> float:
        return float(self.writer["bytes"]) / 1e9

    @property
    def is_held(self) -> bool:
        return float(self.writer["behind_s"]) <= BEHIND_S_MAX


def bench_steady(
    cluster: TransactionalCluster, *, rate_mb_s: float, seconds: float, where: str
) -> list[Row]:
    """Both modes at one rate."""
    group = f"steady writes, {PARTITIONS} partitions, {rate_mb_s:g} MB/s, acks=all, {where}"
    plain = run_steady(cluster, WITHOUT, rate_mb_s, seconds)
    inside = run_steady(cluster, WITH, rate_mb_s, seconds)
    floor = brokers_of(plain.cpu) / plain.gigabytes
    return [
        *_rows(group, WITHOUT, plain, None),
        *_rows(group, WITH, inside, floor),
    ]


def bench_highest(cluster: TransactionalCluster, *, seconds: float, where: str) -> list[Row]:
    """Rates in steps, until one is not held."""
    rows = []
    for mode in (WITHOUT, WITH):
        row = Row(f"highest steady rate, {PARTITIONS} partitions, {where}", mode.name)
        for rate in RAMP_MB_S:
            try:
                found = run_steady(cluster, mode, rate, seconds)
            except ChildProcessError:
                row.extra["refused_at_mb_s"] = rate
                break
            if not found.is_held:
                row.extra["not_held_mb_s"] = rate
                row.extra["behind_s"] = float(found.writer["behind_s"])
                break
            row.mb_s = rate
            row.cpu_s_per_gb = brokers_of(found.cpu) / found.gigabytes
            row.p50_ms, row.p99_ms, row.p999_ms = _percentiles(found.writer["acked_ms"])
            row.extra["load_cpu_share"] = float(found.writer["load_cpu_s"]) / found.seconds
        rows.append(row)
    return rows


def run_steady(
    cluster: TransactionalCluster, mode: Mode, rate_mb_s: float, seconds: float
) -> Steady:
    """One run on a topic of its own, after a short one there: a new topic's first writes, and a
    coordinator's, take longer. Raises ChildProcessError.
    """
    topic = f"steady-{next(_serial)}"
    cluster.create_spread(topic, PARTITIONS)
    led = cluster.led(topic)
    warm = SteadyPlan(
        topic, led, _batch_bytes(_WARM_UP_MB_S), TICK_S, _WARM_UP_S, mode.commit_every_s
    )
    run_load("bench.transactions_load", asdict(warm))
    write = SteadyPlan(topic, led, _batch_bytes(rate_mb_s), TICK_S, seconds, mode.commit_every_s)
    read = _reader_of(cluster, write)
    before = cluster.service_cpu()
    with (
        load("bench.transactions_reader", asdict(read)) as reading,
        load("bench.transactions_load", asdict(write)) as writing,
    ):
        written = outcome_of(writing)
        received = outcome_of(reading)
    used = since(before, cluster.service_cpu())
    cluster.delete_topic(topic)
    return Steady(written, received, used)


def _batch_bytes(rate_mb_s: float) -> int:
    return int(rate_mb_s * 1e6 * TICK_S / PARTITIONS)


def _reader_of(cluster: TransactionalCluster, write: SteadyPlan) -> ReaderPlan:
    transactional = write.commit_every_s > 0
    batch = stamped_batch(write.batch_bytes, transactional=transactional)
    return ReaderPlan(
        write.topic,
        write.led,
        cluster.ends(write.topic, write.led),
        records=write.ticks * write.partitions * batch.records,
        tick_records=batch.records,
        tick_s=write.tick_s,
        stamp_position=batch.stamp_position,
        committed=transactional,
        within_s=write.seconds + _DRAIN_S,
    )


def _percentiles(values: list[float]) -> tuple[float, float, float]:
    return at_part(values, 0.5), at_part(values, 0.99), at_part(values, 0.999)


def _rows(group: str, mode: Mode, found: Steady, floor: float | None) -> list[Row]:
    """Acknowledgements with the cost, what the reader saw, and commits."""
    writer, reader = found.writer, found.reader
    acked = Row(group, f"{mode.name}: created to acknowledged")
    acked.mb_s = writer["bytes"] / 1e6 / found.seconds
    acked.cpu_s_per_gb = brokers_of(found.cpu) / found.gigabytes
    acked.floor_cpu_s_per_gb = floor
    acked.ratio = None if floor is None else acked.cpu_s_per_gb / floor
    acked.p50_ms, acked.p99_ms, acked.p999_ms = _percentiles(writer["acked_ms"])
    acked.extra = {f"{name}_cpu_share": used / found.seconds for name, used in found.cpu.items()}
    acked.extra |= {
        f"{name}_s_per_gb": found.cpu[name] / found.gigabytes
        for name in ("txn-coordinator-1", "controller-1")
    }
    acked.extra["late_ms_max"] = writer["late_ms_max"]
    answered = Row(group, f"{mode.name}: sent to acknowledged")
    answered.p50_ms, answered.p99_ms, answered.p999_ms = _percentiles(writer["answered_ms"])
    received = Row(group, f"{mode.name}: created to received")
    received.p50_ms, received.p99_ms, received.p999_ms = _percentiles(reader["received_ms"])
    received.extra = {
        "batches_per_fetch": reader["batches"] / max(1, reader["fetches"]),
    }
    rows = [acked, answered, received]
    if mode.commit_every_s:
        rows += _commit_rows(group, writer)
    return rows


def _commit_rows(group: str, writer: dict[str, Any]) -> list[Row]:
    rows = []
    for name, key in (("commit due to answered", "commit_ms"), ("EndTxn", "end_ms")):
        row = Row(group, name)
        row.p50_ms, row.p99_ms, row.p999_ms = _percentiles(writer[key])
        rows.append(row)
    rows[0].extra = {"commits": float(len(writer["commit_ms"])), "refused": writer["refused"]}
    return rows
