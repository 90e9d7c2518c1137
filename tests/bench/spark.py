"""Spark's reader and writer against Spark's own Kafka connector in the same session, and
``reshard`` from end to end.

The connector is the floor: the same rows, the same brokers, the same JVM. Where Maven does not
reach a registry, there is no floor.
"""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from bench.processes import ENVIRONMENT, ROOT
from bench.report import Row
from bench.spark_load import KAFKA, SparkPlan
from bench.transactions_cluster import TransactionalCluster
from conformance.spark.connector_jars import ConnectorMissingError, resolve
from tidemark.cli.dev.layout import HOST
from tidemark.client import Producer

RECORD_BYTES: Final = 1_024
SOURCE_PARTITIONS: Final = 4
TARGET_PARTITIONS: Final = 12
BATCHES: Final = 5
RUNS_MAX: Final = 3
_SECONDS_MAX: Final = 1_800
_PHASES: Final = (
    *("latestOffset", "getBatch", "queryPlanning", "walCommit", "addBatch", "commitBatch"),
    *("commitOffsets", "triggerExecution"),
)
Found = Mapping[str, Any]


def bench_spark(
    cluster: TransactionalCluster, directory: Path, *, records: int, runs: int, where: str
) -> list[Row]:
    """Reads, writes and reshardings of ``records`` records of 1 KB."""
    directory.mkdir(parents=True)
    version, jars = _connector()
    plan = _plan(cluster, directory, jars, records=records, runs=min(runs, RUNS_MAX))
    asyncio.run(fill(plan))
    found = _measure(plan)
    gigabytes = records * RECORD_BYTES / 1e9
    group = f"Spark on two cores, records of {RECORD_BYTES} bytes, {where}"
    rows = []
    for name, figure in found.items():
        floor = found.get(f"{name.split()[0]} {KAFKA}")
        rows.append(_row(group, name, figure, floor, gigabytes=gigabytes, records=records))
    rows[0].extra["connector"] = version or "not found"
    return rows


async def fill(plan: SparkPlan) -> None:
    """The source: keys, and values of the wanted size, evenly over its partitions."""
    filler = os.urandom(plan.record_bytes // 2).hex().encode()
    async with Producer(plan.kafka, linger_ms=20, batch_size=256 * 1024) as producer:
        for number in range(plan.records):
            key = b"%d" % number
            value = filler[len(key) : plan.record_bytes]
            await producer.enqueue(plan.source, value, key, partition=number % SOURCE_PARTITIONS)
        await producer.flush()


def _plan(
    cluster: TransactionalCluster, directory: Path, jars: str, *, records: int, runs: int
) -> SparkPlan:
    writers = ["exactly-once", "at-least-once", "reshard", *([KAFKA] if jars else [])]
    targets = {name: f"spark-{name}" for name in writers}
    cluster.create_spread("spark-source", SOURCE_PARTITIONS)
    for topic in targets.values():
        cluster.create_spread(topic, TARGET_PARTITIONS)
    shape = cluster.cluster.layout.shape
    grpc = ",".join(f"{HOST}:{shape.ports.grpc + place}" for place in range(shape.brokers))
    return SparkPlan(
        cluster.cluster.bootstrap,
        grpc,
        "spark-source",
        records=records,
        record_bytes=RECORD_BYTES,
        targets=targets,
        jars=jars,
        directory=str(directory),
        runs=runs,
        batches=BATCHES,
        partitions=TARGET_PARTITIONS,
    )


def _connector() -> tuple[str, str]:
    try:
        found = resolve()
    except ConnectorMissingError:
        return "", ""
    return found.version, found.spark_jars


def _measure(plan: SparkPlan) -> dict[str, Found]:
    path = [str(ROOT / part) for part in ("tests", "spark-jobs")]
    environment = {
        **ENVIRONMENT,
        "PYTHONPATH": os.pathsep.join(path),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYTHONWARNINGS": "ignore",
    }
    done = subprocess.run(
        [sys.executable, "-m", "bench.spark_load", json.dumps(asdict(plan))],
        env=environment,
        stdout=subprocess.PIPE,
        timeout=_SECONDS_MAX,
        check=True,
    )
    content: dict[str, Found] = json.loads(done.stdout.splitlines()[-1])
    return content


def _row(
    group: str,
    name: str,
    figure: Found,
    floor: Found | None,
    *,
    gigabytes: float,
    records: int,
) -> Row:
    """``requests_s`` are rows. ``rows_core_s``: of one core that does nothing else."""
    row = Row(group, name)
    row.mb_s = gigabytes * 1e3 / figure["seconds"]
    row.requests_s = records / figure["seconds"]
    row.cpu_s_per_gb = figure["cpu_s"] / gigabytes
    if floor is not None:
        row.floor_cpu_s_per_gb = floor["cpu_s"] / gigabytes
        row.ratio = figure["cpu_s"] / floor["cpu_s"]
    row.extra["rows_core_s"] = records / max(figure["cpu_s"], 0.01)
    row.extra["mb_core_s"] = gigabytes * 1e3 / max(figure["cpu_s"], 0.01)
    for phase in _PHASES:
        if phase in figure["phases_ms"]:
            row.extra[f"{phase}_s"] = figure["phases_ms"][phase] / 1_000
    return row
