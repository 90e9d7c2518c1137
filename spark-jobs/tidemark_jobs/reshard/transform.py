"""Rows of the source to rows of the sink: extract keys, choose partitions, keep the order.

Column expressions only; nothing here reads or writes a topic.
"""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from tidemark_spark.progress import OBSERVED

from tidemark_jobs.keys import TEXT
from tidemark_jobs.reshard.plan import Plan

_NO_KEY: Final = "no-key"
_NO_PARTITION: Final = "no-partition"
_SLOT: Final = "__slot"
_REASON: Final = "__reason"
_OWN_KEY: Final = "__own_key"


def transform(frame: DataFrame, plan: Plan, *, tasks: int) -> DataFrame:
    """Convert rows of the source, of a batch or of a stream, to rows of the sink.

    Every row is kept. It gets its target ``topic`` and ``partition``, and keeps its origin in
    ``source_topic``, ``source_partition`` and ``source_offset``. All rows of a target partition are
    in the same one of ``tasks`` tasks, sorted by origin. This is a total order, so a task that is
    retried writes the same rows in the same order.
    """
    placed = _count(_place(_find_keys(frame, plan), plan))
    addressed = _address(placed, plan)
    # Adaptive execution merges and splits only shuffles whose number of partitions Spark chose.
    # This one names a number, so its partitions stay as they are, however small or skewed.
    task = sf.pmod(sf.col(_SLOT), sf.lit(tasks)).cast("int")
    shuffled = addressed.repartitionById(tasks, task).sortWithinPartitions(
        "topic", "partition", "source_topic", "source_partition", "source_offset"
    )
    return shuffled.withColumn("partition", _checked_task(task)).drop(_SLOT)


def transform_in_place(frame: DataFrame, plan: Plan, *, tasks: int) -> DataFrame:
    """Convert rows as ``transform`` does, in the tasks that read them: nothing is moved or sorted.

    A task that reads a whole source partition, from its first row of a batch to its last, writes
    the rows of each key in that order, and so does its next attempt. Where ``plan.partitioner`` is
    ``late``, the partition of rows for the target is null; see ``PartitionRule.fill``. At most
    ``tasks`` tasks write: each of them reads several source partitions, one after the other.
    """
    placed = _place(_find_keys(frame, plan), plan, late=plan.partitioner.late)
    return _address(_count(placed), plan).coalesce(tasks).drop(_SLOT)


def _find_keys(frame: DataFrame, plan: Plan) -> DataFrame:
    kept = [sf.col(name) for name in ("value", "timestamp") if name in frame.columns]
    if "headers" in frame.columns:
        # Not null: Spark and Arrow's Java library take quadratic time for a column of null lists.
        kept.append(sf.coalesce(sf.col("headers"), _no_headers()).alias("headers"))
    source = [sf.col(name).alias(f"source_{name}") for name in ("topic", "partition", "offset")]
    text = frame.withColumn(TEXT, sf.col("value").cast("string"))
    return text.select(
        sf.col("key").alias(_OWN_KEY), plan.key.column().alias("key"), *kept, *source
    )


def _place(keyed: DataFrame, plan: Plan, *, late: bool = False) -> DataFrame:
    without_key = sf.when(sf.col("key").isNull(), sf.lit(_NO_KEY))
    if late:
        nowhere = sf.lit(None).cast("int")
        return keyed.withColumn("partition", nowhere).withColumn(_REASON, without_key)
    placed = keyed.withColumn("partition", plan.partitioner.column(plan.partitions))
    reason = without_key.when(sf.col("partition").isNull(), sf.lit(_NO_PARTITION))
    return placed.withColumn(_REASON, reason)


def _count(placed: DataFrame) -> DataFrame:
    return placed.observe(
        OBSERVED,
        sf.count_if(sf.col(_REASON) == _NO_KEY).alias("without_key"),
        sf.count_if(sf.col(_REASON) == _NO_PARTITION).alias("without_partition"),
    )


def _address(placed: DataFrame, plan: Plan) -> DataFrame:
    if plan.dead_letters is None:
        partition = sf.when(sf.col(_REASON).isNull(), sf.col("partition")).otherwise(_refusal())
        return placed.select(
            "*", sf.lit(plan.target).alias("topic"), partition.alias(_SLOT)
        ).select(*_sink_columns(placed, sf.col(_SLOT)), "topic", _SLOT)
    dead = sf.col(_REASON).isNotNull()
    # All dead letters of a source partition go to one partition, so that they keep their order.
    spare = sf.pmod(sf.col("source_partition"), sf.lit(plan.dead_letters.partitions))
    topic = sf.when(dead, sf.lit(plan.dead_letters.topic)).otherwise(sf.lit(plan.target))
    slot = sf.when(dead, spare + sf.lit(plan.partitions)).otherwise(sf.col("partition"))
    partition = sf.when(dead, spare).otherwise(sf.col("partition"))
    with_reasons = placed
    if "headers" in placed.columns:
        with_reasons = placed.withColumn("headers", _headers_of_dead(dead))
    with_keys = with_reasons.withColumn(
        "key", sf.when(dead, sf.col(_OWN_KEY)).otherwise(sf.col("key"))
    )
    return with_keys.select(
        *_sink_columns(placed, partition), topic.alias("topic"), slot.alias(_SLOT)
    )


def _sink_columns(placed: DataFrame, partition: Column) -> list[Column]:
    left_out = (_OWN_KEY, _REASON, "partition")
    kept = [sf.col(name) for name in placed.columns if name not in left_out]
    return [*kept, partition.cast("int").alias("partition")]


def _headers_of_dead(dead: Column) -> Column:
    origin = sf.format_string("%s-%d@%d", "source_topic", "source_partition", "source_offset")
    why = [("reshard.reason", sf.col(_REASON)), ("reshard.source", origin)]
    added = sf.array(
        *(
            sf.struct(sf.lit(name).alias("key"), value.cast("binary").alias("value"))
            for name, value in why
        )
    )
    return sf.when(dead, sf.concat(sf.col("headers"), added)).otherwise(sf.col("headers"))


def _no_headers() -> Column:
    return sf.array().cast("array<struct<key:string,value:binary>>")


def _refusal() -> Column:
    """Return an expression that fails the task, with a message that names the record."""
    message = sf.format_string(
        "%s-%d@%d has %s: give --dead-letters TOPIC to keep such records there, or change --key",
        "source_topic",
        "source_partition",
        "source_offset",
        sf.regexp_replace(sf.col(_REASON), "-", " "),
    )
    return sf.raise_error(message).cast("int")


def _checked_task(task: Column) -> Column:
    """Return the partition column; it fails if Spark put a row into another task than ``task``."""
    stray = sf.raise_error(sf.lit("bug: Spark moved rows of a partition to another task"))
    at_home = sf.spark_partition_id() == task
    return sf.when(at_home, sf.col("partition")).otherwise(stray.cast("int"))
