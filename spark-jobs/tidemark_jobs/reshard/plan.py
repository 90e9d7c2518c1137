"""The plan of a resharding query: settings that must not change, stored with its checkpoint.

The number of partitions, the key rule and the partitioner together determine the partition of a
key. If one of them changed, records of one key would be in two partitions and lose their order. So
the first start stores them in the directory ``reshard-plan`` of the checkpoint location. Spark
writes it, so it works on every file system that a checkpoint can be on.

This module also creates the query's id, in the file where Spark expects it, so that the sink can be
taken over under this id before the query is started.
"""

import json
import uuid
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf
from tidemark_spark.errors import OptionError

from tidemark_jobs.keys import KeyRule, parse_key
from tidemark_jobs.reshard.partitioners import PartitionRule, parse_partitioner

DIRECTORY: Final = "reshard-plan"
_METADATA: Final = "metadata"
_OFFSETS: Final = "offsets"
_NOT_FOUND: Final = "PATH_NOT_FOUND"


class DeadLetters(NamedTuple):
    """Topic for records without a key or a partition."""

    topic: str
    partitions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Rules that determine topic and partition of every record of a query."""

    target: str
    partitions: int
    key: KeyRule
    partitioner: PartitionRule
    dead_letters: DeadLetters | None = None

    @property
    def slots(self) -> int:
        """Number of partitions that are written, including those for dead letters."""
        return self.partitions + (self.dead_letters.partitions if self.dead_letters else 0)

    def __str__(self) -> str:
        dead = f", dead letters in {self.dead_letters.topic}" if self.dead_letters else ""
        return (
            f"{self.target}: {self.partitions} partitions by {self.partitioner} of {self.key}{dead}"
        )


def check_unchanged(known: Plan, wanted: Plan) -> None:
    """Raise OptionError if a restarted query would place keys in another way than before.

    The number of partitions is not compared here: see ``Target.check``.
    """
    for name in ("target", "key", "partitioner"):
        before, now = str(getattr(known, name)), str(getattr(wanted, name))
        if before != now:
            raise OptionError(
                f"the checkpoint's query has the {name} {before}, not {now}: records of one key"
                " would be in two partitions",
                f"use the same {name}, or another --checkpoint for another query",
            )


def plan_to_json(plan: Plan) -> str:
    """Encode the plan as one line of JSON."""
    dead = plan.dead_letters
    return json.dumps(
        {
            "version": 1,
            "target": plan.target,
            "partitions": plan.partitions,
            "key": str(plan.key),
            "partitioner": str(plan.partitioner),
            "dead_letters": None if dead is None else dead._asdict(),
        }
    )


def plan_from_json(text: str) -> Plan:
    """Decode what ``plan_to_json`` wrote. Raises OptionError."""
    try:
        parsed: dict[str, Any] = json.loads(text)
        dead = parsed["dead_letters"]
        if parsed["version"] != 1:
            raise ValueError
        return Plan(
            target=parsed["target"],
            partitions=int(parsed["partitions"]),
            key=parse_key(parsed["key"]),
            partitioner=parse_partitioner(parsed["partitioner"]),
            dead_letters=None if dead is None else DeadLetters(dead["topic"], dead["partitions"]),
        )
    except (KeyError, TypeError, ValueError):
        raise OptionError(
            f"{DIRECTORY} in the checkpoint is damaged or from another release: {text[:200]}",
            "use the release that wrote it, or a new --checkpoint",
        ) from None


def read_plan(spark: SparkSession, checkpoint: str) -> Plan | None:
    """Return the plan stored in a checkpoint; None if there is none. Raises OptionError."""
    lines = _lines(spark, f"{checkpoint}/{DIRECTORY}")
    return plan_from_json(lines[0]) if lines else None


def write_plan(spark: SparkSession, checkpoint: str, plan: Plan) -> None:
    """Store the plan in the checkpoint, replacing one that a killed driver wrote partially."""
    # A literal, because createDataFrame would start Python workers for one row.
    frame = spark.range(1).select(sf.lit(plan_to_json(plan)).alias("value")).coalesce(1)
    frame.write.mode("overwrite").text(f"{checkpoint}/{DIRECTORY}")


def has_batches(spark: SparkSession, checkpoint: str) -> bool:
    """True if a batch was planned with this checkpoint: its offsets then replace the group's."""
    return bool(_lines(spark, f"{checkpoint}/{_OFFSETS}"))


def settle_query_id(spark: SparkSession, checkpoint: str) -> str:
    """Return the query id in the checkpoint; create and store one if there is none."""
    lines = _lines(spark, f"{checkpoint}/{_METADATA}")
    if lines:
        return str(json.loads(lines[0])["id"])
    query_id = str(uuid.uuid4())
    _write_file(spark, f"{checkpoint}/{_METADATA}", json.dumps({"id": query_id}))
    return query_id


def _lines(spark: SparkSession, path: str) -> list[str]:
    try:
        return [row[0] for row in spark.read.text(path).collect()]
    except AnalysisException as problem:
        if problem.getCondition() != _NOT_FOUND:
            raise
        return []


def _write_file(spark: SparkSession, path: str, text: str) -> None:
    """Write a file atomically, if the file system's rename is atomic."""
    context = spark.sparkContext
    # PySpark has no API for Hadoop's file systems, and a DataFrame writes directories.
    jvm, hadoop = context._jvm, context._jsc.hadoopConfiguration()  # noqa: SLF001
    assert jvm is not None
    final = jvm.org.apache.hadoop.fs.Path(path)
    scratch = jvm.org.apache.hadoop.fs.Path(f"{path}.{uuid.uuid4()}.tmp")
    files = final.getFileSystem(hadoop)
    out = files.create(scratch, True)  # noqa: FBT003 - Java's, to overwrite
    try:
        out.writeBytes(text)
    finally:
        out.close()
    if not files.rename(scratch, final):
        raise OptionError(f"cannot write {path}", "use a --checkpoint that is writable")
