"""The plan of a resharding query: settings that must not change, stored with its checkpoint.

The number of partitions, the key rule and the partitioner together determine the partition of a
key. If one of them changed, records of one key would be in two partitions and lose their order. So
the first start stores them in the directory ``reshard-plan`` of the checkpoint location. Hadoop's
classes write it, so it works on every file system that a checkpoint can be on.

This module also creates the query's id, in the file where Spark expects it, so that the sink can be
taken over under this id before the query is started.
"""

import json
import uuid
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from pyspark.sql import SparkSession
from tidemark_spark.errors import OptionError

from tidemark_jobs.keys import KeyRule, parse_key
from tidemark_jobs.reshard.partitioners import PartitionRule, parse_partitioner

DIRECTORY: Final = "reshard-plan"
_METADATA: Final = "metadata"
_OFFSETS: Final = "offsets"
_PLAN: Final = "plan.json"


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
    directory = CheckpointFiles(spark, f"{checkpoint}/{DIRECTORY}")
    names = directory.names()
    return plan_from_json(directory.read(names[0])) if names else None


def write_plan(spark: SparkSession, checkpoint: str, plan: Plan) -> None:
    """Store the plan in the checkpoint. Raises OptionError."""
    CheckpointFiles(spark, f"{checkpoint}/{DIRECTORY}").write(_PLAN, plan_to_json(plan))


def has_batches(spark: SparkSession, checkpoint: str) -> bool:
    """True if a batch was planned with this checkpoint: its offsets then replace the group's."""
    return bool(CheckpointFiles(spark, f"{checkpoint}/{_OFFSETS}").names())


def settle_query_id(spark: SparkSession, checkpoint: str) -> str:
    """Return the query id in the checkpoint; create and store one if there is none."""
    directory = CheckpointFiles(spark, checkpoint)
    if _METADATA in directory.names():
        return str(json.loads(directory.read(_METADATA))["id"])
    query_id = str(uuid.uuid4())
    directory.write(_METADATA, json.dumps({"id": query_id}))
    return query_id


class CheckpointFiles:
    """Small text files in a directory of a checkpoint, on any file system with a Hadoop connector.

    They are read and written without a Spark job, which takes seconds in a new session.
    """

    def __init__(self, spark: SparkSession, directory: str) -> None:
        context = spark.sparkContext
        # PySpark has no API for Hadoop's file systems.
        jvm, hadoop = context._jvm, context._jsc.hadoopConfiguration()  # noqa: SLF001
        assert jvm is not None
        self._directory = directory
        self._path = jvm.org.apache.hadoop.fs.Path
        self._utf8 = jvm.java.nio.charset.StandardCharsets.UTF_8
        self._streams = jvm.org.apache.commons.io.IOUtils
        self._files = self._path(directory).getFileSystem(hadoop)

    def names(self) -> list[str]:
        """Return the names of the non-empty, non-hidden files, sorted; [] without a directory."""
        path = self._path(self._directory)
        if not self._files.exists(path):
            return []
        found = [each for each in self._files.listStatus(path) if each.isFile() and each.getLen()]
        names = (str(each.getPath().getName()) for each in found)
        return sorted(name for name in names if not name.startswith((".", "_")))

    def read(self, name: str) -> str:
        """Return the text of a file without whitespace at its ends."""
        opened = self._files.open(self._path(f"{self._directory}/{name}"))
        try:
            return str(self._streams.toString(opened, self._utf8)).strip()
        finally:
            opened.close()

    def write(self, name: str, text: str) -> None:
        """Write a file atomically, if the file system's rename is atomic. Raises OptionError."""
        final = self._path(f"{self._directory}/{name}")
        scratch = self._path(f"{self._directory}/.{name}.{uuid.uuid4()}.tmp")
        out = self._files.create(scratch, True)  # noqa: FBT003 - Java's, to overwrite
        try:
            self._streams.write(text, out, self._utf8)
        finally:
            out.close()
        if not self._files.rename(scratch, final):
            raise OptionError(f"cannot write {final}", "use a --checkpoint that is writable")
