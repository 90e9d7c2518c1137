"""What a resharding query must not change during its life, kept beside its checkpoint.

Keys are placed by the number of partitions, the key's rule and the partitioner: with another of
any, the records of one key would be in two partitions, in no order. So the first start writes them
down, in the directory ``reshard-plan`` of the checkpoint location, by Spark itself: wherever the
checkpoint can be, the plan can be.

The query's id is made here too, in the file in which Spark looks for it, so that the sink can be
taken over under this id before the query exists.
"""

import json
import uuid
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from tidemark_spark.errors import OptionError
from tidemark_spark.keys import KeyRule, parse_key
from tidemark_spark.partitioners import PartitionRule, parse_partitioner

DIRECTORY: Final = "reshard-plan"
_METADATA: Final = "metadata"
_OFFSETS: Final = "offsets"
_NOT_FOUND: Final = "PATH_NOT_FOUND"


class DeadLetters(NamedTuple):
    """Where records without a key or a partition go."""

    topic: str
    partitions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How every record of a query is placed."""

    target: str
    partitions: int
    key: KeyRule
    partitioner: PartitionRule
    dead_letters: DeadLetters | None = None

    @property
    def slots(self) -> int:
        """Partitions that are written, dead letters' included."""
        return self.partitions + (self.dead_letters.partitions if self.dead_letters else 0)

    def __str__(self) -> str:
        dead = f", dead letters in {self.dead_letters.topic}" if self.dead_letters else ""
        return (
            f"{self.target}: {self.partitions} partitions by {self.partitioner} of {self.key}{dead}"
        )


def check_unchanged(known: Plan, wanted: Plan) -> None:
    """Raise OptionError where a restarted query would place a key otherwise than before.

    The number of partitions is not looked at: growth has rules of its own.
    """
    for name in ("target", "key", "partitioner"):
        before, now = str(getattr(known, name)), str(getattr(wanted, name))
        if before != now:
            raise OptionError(
                f"the checkpoint's query has the {name} {before}, and not {now}: the records of a"
                " key would be in two partitions",
                "the same as before, or a --checkpoint of its own for the other query",
            )


def plan_to_json(plan: Plan) -> str:
    """One line."""
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
    """What ``plan_to_json`` gave. Raises OptionError."""
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
            f"the checkpoint's {DIRECTORY} is of another release, or damaged: {text[:200]}",
            "the release that wrote it, or a new --checkpoint",
        ) from None


def read_plan(spark: SparkSession, checkpoint: str) -> Plan | None:
    """The plan of the query that began here; None where none has. Raises OptionError."""
    lines = _lines(spark, f"{checkpoint}/{DIRECTORY}")
    return plan_from_json(lines[0]) if lines else None


def write_plan(spark: SparkSession, checkpoint: str, plan: Plan) -> None:
    """Remember it. One that a killed driver left half-written is replaced."""
    # A literal, not createDataFrame: that starts Python workers for one row.
    frame = spark.range(1).select(sf.lit(plan_to_json(plan)).alias("value")).coalesce(1)
    frame.write.mode("overwrite").text(f"{checkpoint}/{DIRECTORY}")


def has_batches(spark: SparkSession, checkpoint: str) -> bool:
    """Whether a batch was ever planned here: then its offsets count, and no group's."""
    return bool(_lines(spark, f"{checkpoint}/{_OFFSETS}"))


def settle_query_id(spark: SparkSession, checkpoint: str) -> str:
    """The id of the query that began here, or that of one that will."""
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
    """Whole or not at all, where a rename is."""
    context = spark.sparkContext
    # PySpark has no other door to Hadoop's file systems; a DataFrame writes directories.
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
        raise OptionError(f"{path} could not be written", "a --checkpoint that is writable")
