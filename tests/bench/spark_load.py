"""A Spark session under measurement, in a process of its own: one figure after the other, as JSON.

Two cores, one JVM; the CPU seconds are those of the JVM and of every process that it started.
"""

import json
import os
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.listener import StreamingQueryListener

KAFKA: Final = "kafka"
TIDEMARK: Final = "tidemark"
_TICK_S: Final = 1 / os.sysconf("SC_CLK_TCK")


Work = Callable[[int], dict[str, float]]
"""Takes the number of the run, gives the milliseconds of its phases, if it knows them."""


@dataclass(frozen=True, slots=True)
class SparkPlan:
    """What is measured, with how much."""

    kafka: str
    """Kafka addresses of the brokers."""
    grpc: str
    source: str
    """A topic that is filled already."""
    records: int
    record_bytes: int
    targets: Mapping[str, str]
    """Empty topics by what is written into them; without ``kafka`` the connector is left out."""
    jars: str
    directory: str
    runs: int
    batches: int
    partitions: int
    """Of a resharding's target."""


@dataclass(slots=True)
class Figure:
    """One measurement: medians over the runs but for the first, which warms up."""

    seconds: float
    cpu_s: float
    phases_ms: dict[str, float] = field(default_factory=dict)


def session(plan: SparkPlan) -> SparkSession:
    """With the data source, and with the connector if there are jars of it."""
    builder = SparkSession.builder.master("local[2]").appName("bench")
    conf = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "2g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.shuffle.partitions": "4",
        "spark.log.level": "ERROR",
        "spark.local.dir": f"{plan.directory}/local",
        "spark.jars": plan.jars,
    }
    for name, value in conf.items():
        builder = builder.config(name, value)
    spark: SparkSession = builder.getOrCreate()
    from tidemark_spark import register

    register(spark)
    return spark


# -- processes


def family_cpu_seconds(pid: int) -> float:
    """Of a process, of what it started, and of what that has waited for."""
    stats = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            text = (entry / "stat").read_text(encoding="utf-8", errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            continue
        stats[int(entry.name)] = text.rpartition(")")[2].split()
    family = {pid}
    grown = True
    while grown:
        more = {one for one, words in stats.items() if int(words[1]) in family} - family
        family |= more
        grown = bool(more)
    ticks = sum(sum(map(int, stats[one][11:15])) for one in family if one in stats)
    return ticks * _TICK_S


def jvm_pid() -> int:
    """Of the session's."""
    gateway = SparkContext._gateway
    assert gateway is not None, "a session was started"
    return int(gateway.proc.pid)


def measured(work: Work, runs: int) -> Figure:
    """Once to warm up, then ``runs`` times."""
    pid = jvm_pid()
    figures: list[Figure] = []
    for number in range(runs + 1):
        cpu, began = family_cpu_seconds(pid), time.monotonic()
        phases = work(number)
        seconds = time.monotonic() - began
        figures.append(Figure(seconds, family_cpu_seconds(pid) - cpu, phases))
    kept = figures[1:]
    middle = sorted(kept, key=lambda figure: figure.seconds)[len(kept) // 2]
    return Figure(
        statistics.median(one.seconds for one in kept),
        statistics.median(one.cpu_s for one in kept),
        middle.phases_ms,
    )


# -- what is measured


def read(spark: SparkSession, plan: SparkPlan, form: str, _run: int) -> dict[str, float]:
    """Every column, to nowhere."""
    reader = spark.read.format(form).option("subscribe", plan.source)
    if form == KAFKA:
        reader = reader.option("kafka.bootstrap.servers", plan.kafka)
        reader = reader.option("kafka.isolation.level", "read_committed")
    else:
        reader = reader.option("bootstrap.servers", plan.grpc)
    reader.load().write.format("noop").mode("overwrite").save()
    return {}


def made(spark: SparkSession, plan: SparkPlan) -> DataFrame:
    """Rows that Spark makes up: a key, and a value of the wanted size."""
    padding = "p" * max(1, plan.record_bytes - 20)
    return spark.range(plan.records, numPartitions=2).selectExpr(
        "cast(cast(id as string) as binary) as key",
        f"cast(concat(lpad(cast(id as string), 20, '0'), '{padding}') as binary) as value",
    )


def make(spark: SparkSession, plan: SparkPlan, _run: int) -> dict[str, float]:
    """What of a write is not the writing."""
    made(spark, plan).write.format("noop").mode("overwrite").save()
    return {}


def write(spark: SparkSession, plan: SparkPlan, name: str, _run: int) -> dict[str, float]:
    """All of them into a topic."""
    form = KAFKA if name == KAFKA else TIDEMARK
    writer = made(spark, plan).write.format(form).mode("append").option("topic", plan.targets[name])
    if form == KAFKA:
        writer = writer.option("kafka.bootstrap.servers", plan.kafka)
    else:
        writer = writer.option("bootstrap.servers", plan.grpc).option("delivery", name)
    writer.save()
    return {}


class _Phases(StreamingQueryListener):
    """Spark's own clock of a batch's phases, added up."""

    def __init__(self) -> None:
        self.spent_ms: Counter[str] = Counter()

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802 - Spark's name
        """Nothing yet."""

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        """A batch."""
        self.spent_ms.update(json.loads(event.progress.json).get("durationMs") or {})

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        """Nothing to read."""

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        """The end."""


def reshard(spark: SparkSession, plan: SparkPlan, delivery: str, number: int) -> dict[str, float]:
    """The whole source under another key; where the time went, in ms by phase."""
    from tidemark_jobs.reshard.command import parse
    from tidemark_jobs.reshard.query import run

    name = f"{delivery}-{number}"
    options = parse(
        [
            *("--bootstrap-servers", plan.grpc, "--source", plan.source),
            *("--target", plan.targets["reshard"], "--key", "key"),
            *("--checkpoint", f"{plan.directory}/{name}", "--group-id", f"bench-{name}"),
            *("--max-offsets-per-trigger", str(-(-plan.records // plan.batches))),
            *("--delivery", delivery, "--available-now"),
        ]
    )
    listener = _Phases()
    lines: list[str] = []
    spark.streams.addListener(listener)
    try:
        progress = run(spark, options, lines.append)
    finally:
        spark.streams.removeListener(listener)
    assert progress.records == plan.records, lines
    return {key: float(spent) for key, spent in listener.spent_ms.items()}


def reshard_by_connector(spark: SparkSession, plan: SparkPlan, number: int) -> dict[str, float]:
    """The same pipeline on Spark's own connector, which writes at least once: batches of the same
    offsets, the record's key, Kafka's default partitioner.
    """
    kafka = {"kafka.bootstrap.servers": plan.kafka}
    rows = (
        spark.readStream.format(KAFKA)
        .options(**kafka)
        .option("kafka.isolation.level", "read_committed")
        .option("subscribe", plan.source)
        .option("startingOffsets", "earliest")
        .option("includeHeaders", "true")
        .option("maxOffsetsPerTrigger", str(-(-plan.records // plan.batches)))
        .load()
        .selectExpr("key", "value", "headers")
    )
    listener = _Phases()
    spark.streams.addListener(listener)
    try:
        query = (
            rows.writeStream.format(KAFKA)
            .options(**kafka)
            .option("topic", plan.targets["reshard"])
            .option("checkpointLocation", f"{plan.directory}/connector-{number}")
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        copied = sum(progress["numInputRows"] for progress in query.recentProgress)
    finally:
        spark.streams.removeListener(listener)
    assert copied == plan.records, copied
    return {key: float(spent) for key, spent in listener.spent_ms.items()}


def figures(plan: SparkPlan) -> dict[str, Figure]:
    """All of them, by name."""
    spark = session(plan)
    works: dict[str, Work] = {}
    for form in [KAFKA, TIDEMARK] if KAFKA in plan.targets else [TIDEMARK]:
        works[f"read {form}"] = partial(read, spark, plan, form)
    works["make rows"] = partial(make, spark, plan)
    for name in plan.targets:
        if name != "reshard":
            works[f"write {name}"] = partial(write, spark, plan, name)
    for delivery in ("exactly-once", "at-least-once"):
        works[f"reshard {delivery}"] = partial(reshard, spark, plan, delivery)
    if KAFKA in plan.targets:
        works[f"reshard {KAFKA}"] = partial(reshard_by_connector, spark, plan)
    found = {name: measured(work, plan.runs) for name, work in works.items()}
    spark.stop()
    return found


def main() -> None:
    """One plan as the argument, the figures on standard output."""
    plan = SparkPlan(**json.loads(sys.argv[1]))
    found = figures(plan)
    print(json.dumps({name: asdict(figure) for name, figure in found.items()}))


if __name__ == "__main__":
    main()
