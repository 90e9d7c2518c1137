"""Topic to topic under another key, each record once, in the order of its source partition.

    spark-submit --py-files tidemark_spark.zip reshard.py --bootstrap-servers broker-1:9292 \\
        --source queries-by-server --target queries-by-user --key field:3 \\
        --checkpoint /checkpoints/reshard [--available-now]

The key is found in the record (tidemark_spark/keys.py), its partition by a rule
(tidemark_spark/partitioners.py). The records, and how far the source was read, are committed in
one transaction a batch. docs/spark/reshard.md has the whole story.
"""

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.streaming.query import StreamingQuery
from tidemark.client.errors import ClientError
from tidemark.client.sink_batches import BatchId
from tidemark.client.sync import Admin, SinkBatches
from tidemark_spark import register
from tidemark_spark.errors import OptionError, TidemarkSparkError
from tidemark_spark.job import ended, tell
from tidemark_spark.keys import TEXT, KeyRule, parse_key
from tidemark_spark.partitioners import PartitionRule, parse_partitioner
from tidemark_spark.progress import OBSERVED, Progress, ProgressListener, metrics_served
from tidemark_spark.reshard_plan import (
    DeadLetters,
    Plan,
    check_unchanged,
    has_batches,
    read_plan,
    settle_query_id,
    write_plan,
)

_NO_KEY: Final = "no-key"
_NO_PARTITION: Final = "no-partition"
_SLOT: Final = "__slot"
_REASON: Final = "__reason"
_OWN_KEY: Final = "__own_key"
_LAST_REPORT_SECONDS: Final = 10.0
_SORTS_IN_STREAMS: Final = "spark.sql.streaming.unsupportedOperationCheck"

Tell = Callable[[str], object]


class GrownTopicError(TidemarkSparkError):
    """The target has another number of partitions than the one that keys were placed by."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the command line says."""

    bootstrap_servers: str
    source: str
    target: str
    key: KeyRule
    partitioner: PartitionRule
    checkpoint: str
    group_id: str
    sink_id: str
    dead_letters: str | None = None
    pin_partitions: bool = False
    tasks: int | None = None
    available_now: bool = False
    exactly_once: bool = True
    trigger_interval: str = "1 second"
    watch_seconds: int = 5
    metrics_port: int | None = None
    source_options: Mapping[str, str] = field(default_factory=dict)
    sink_options: Mapping[str, str] = field(default_factory=dict)


# ---- the frame


def transform(frame: DataFrame, plan: Plan, *, tasks: int) -> DataFrame:
    """Rows of the ``tidemark`` source (batch or stream) to rows of its sink.

    Every row comes out once, with its target ``topic`` and ``partition`` and with where it came
    from (``source_topic``, ``source_partition``, ``source_offset``). One partition of the target is
    in one of ``tasks`` tasks, and its rows are sorted by where they came from: a total order, so
    that a task that is tried again writes the same.
    """
    placed = _count(_place(_find_keys(frame, plan), plan))
    addressed = _address(placed, plan)
    # A shuffle into a given number of partitions, each row's named: adaptive execution neither
    # merges nor splits them, however small or skewed they are.
    task = sf.pmod(sf.col(_SLOT), sf.lit(tasks)).cast("int")
    shuffled = addressed.repartitionById(tasks, task).sortWithinPartitions(
        "topic", "partition", "source_topic", "source_partition", "source_offset"
    )
    return shuffled.withColumn("partition", _checked_task(task)).drop(_SLOT)


def _find_keys(frame: DataFrame, plan: Plan) -> DataFrame:
    kept = [sf.col(name) for name in ("value", "timestamp", "headers") if name in frame.columns]
    source = [sf.col(name).alias(f"source_{name}") for name in ("topic", "partition", "offset")]
    text = frame.withColumn(TEXT, sf.col("value").cast("string"))
    return text.select(
        sf.col("key").alias(_OWN_KEY), plan.key.column().alias("key"), *kept, *source
    )


def _place(keyed: DataFrame, plan: Plan) -> DataFrame:
    placed = keyed.withColumn("partition", plan.partitioner.column(plan.partitions))
    reason = sf.when(sf.col("key").isNull(), sf.lit(_NO_KEY)).when(
        sf.col("partition").isNull(), sf.lit(_NO_PARTITION)
    )
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
    # In the order of their source too: a source partition's dead letters are all in one partition.
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
    nothing = sf.array().cast("array<struct<key:string,value:binary>>")
    headers = sf.coalesce(sf.col("headers"), nothing)
    return sf.when(dead, sf.concat(headers, added)).otherwise(sf.col("headers"))


def _refusal() -> Column:
    """Fails the task: the query ends with a line that names the record."""
    message = sf.format_string(
        "%s-%d@%d has %s: give --dead-letters TOPIC to set such records aside, or change --key",
        "source_topic",
        "source_partition",
        "source_offset",
        sf.regexp_replace(sf.col(_REASON), "-", " "),
    )
    return sf.raise_error(message).cast("int")


def _checked_task(task: Column) -> Column:
    """The partition, once it is certain that the rows are in the task that they belong to."""
    stray = sf.raise_error(sf.lit("a bug: Spark moved rows of a partition to another task"))
    at_home = sf.spark_partition_id() == task
    return sf.when(at_home, sf.col("partition")).otherwise(stray.cast("int"))


# ---- the query


class Target:
    """Where records go; ``count`` says how many partitions a topic has now."""

    def __init__(self, count: Callable[[str], int], options: Options) -> None:
        self._count = count
        self._options = options

    def plan(self) -> Plan:
        """By the partitions that there are now. Raises OptionError, ClientError."""
        options = self._options
        names = [options.target, *filter(None, [options.dead_letters])]
        counts = {name: self._count(name) for name in names}
        options.partitioner.check(counts[options.target])
        dead = options.dead_letters
        return Plan(
            target=options.target,
            partitions=counts[options.target],
            key=options.key,
            partitioner=options.partitioner,
            dead_letters=None if dead is None else DeadLetters(dead, counts[dead]),
        )

    def check(self, plan: Plan) -> None:
        """Raise GrownTopicError where the plan's number is not the topic's any more, unless it is
        pinned.
        """
        count = self._count(plan.target)
        if count == plan.partitions or (self._options.pin_partitions and count > plan.partitions):
            return
        raise GrownTopicError(
            f"{plan.target} has {count} partitions now, and keys are placed by {plan.partitions}:"
            " with another number the records of a key would be in two partitions",
            "--pin-partitions to go on with the first"
            f" {plan.partitions}, or drain the topic and start with a new --checkpoint",
        )


def settle_plan(spark: SparkSession, options: Options, target: Target, tell: Tell) -> Plan:
    """The plan that the checkpoint remembers, or a new one, which it then remembers.

    Raises OptionError where the checkpoint is of another plan, GrownTopicError, ClientError.
    """
    known = read_plan(spark, options.checkpoint)
    plan = target.plan()
    if known is not None:
        target.check(known)
        check_unchanged(known, plan)
        plan = replace(plan, partitions=known.partitions)
    if options.exactly_once and not has_batches(spark, options.checkpoint):
        _take_over(options, settle_query_id(spark, options.checkpoint), tell)
    if known is None:
        write_plan(spark, options.checkpoint, plan)
    return plan


def _take_over(options: Options, query_id: str, tell: Tell) -> None:
    """Retire whoever writes through the sink, before the group's offsets are read.

    A driver that is still alive, with another checkpoint, could otherwise commit a batch between
    our reading of the group's offsets and our first batch, which would come twice. In the same way
    who comes after us retires us, by the query's own id, however late our first batch is.
    """
    batch = BatchId(options.sink_id, query_id, 0)
    with SinkBatches(options.bootstrap_servers) as sinks:
        with sinks.enlist(batch, "takeover") as writer:
            retired = writer.retired_query_id
        sinks.abort(batch)
    if retired:
        tell(f"sink {options.sink_id} is taken over from query {retired}, which is retired")
    tell(
        f"a new query: {options.checkpoint} has no batch. It goes on from the offsets that group"
        f" {options.group_id} has committed"
    )


def start(spark: SparkSession, options: Options, plan: Plan) -> StreamingQuery:
    """Start the query."""
    reader = (
        spark.readStream.format("tidemark")
        .option("bootstrap.servers", options.bootstrap_servers)
        .option("subscribe", options.source)
        .option("includeHeaders", "true")
        .option("startingOffsets", "committed")
        .option("group.id", options.group_id)
        .options(**options.source_options)
    )
    tasks = options.tasks or min(plan.slots, spark.sparkContext.defaultParallelism)
    rows = transform(reader.load(), plan, tasks=tasks)
    if options.exactly_once:
        sink = {
            "sink.id": options.sink_id,
            "group.id": options.group_id,
            "source.offsets": "true",
        }
    else:
        sink = {"delivery": "at-least-once"}
    writer = (
        rows.writeStream.format("tidemark")
        .queryName(options.sink_id)
        .option("bootstrap.servers", options.bootstrap_servers)
        .option("checkpointLocation", options.checkpoint)
        .options(**sink, **options.sink_options)
    )
    if options.available_now:
        writer = writer.trigger(availableNow=True)
    else:
        writer = writer.trigger(processingTime=options.trigger_interval)
    with _sorts_allowed(spark):
        return writer.start()


@contextmanager
def _sorts_allowed(spark: SparkSession) -> Iterator[None]:
    """Spark refuses a sort in a stream, because it cannot sort all of it; ours sorts a batch's rows
    within a task. A query keeps the settings that it was started with.
    """
    before = spark.conf.get(_SORTS_IN_STREAMS, "true") or "true"
    spark.conf.set(_SORTS_IN_STREAMS, "false")
    try:
        yield
    finally:
        spark.conf.set(_SORTS_IN_STREAMS, before)


def run(spark: SparkSession, options: Options, tell: Tell) -> Progress:
    """Reshard until caught up (``available_now``) or for ever; ``spark`` knows the format.

    Raises TidemarkSparkError, ClientError, StreamingQueryException.
    """
    progress = Progress(options.sink_id)
    listener = ProgressListener(progress, name=options.sink_id, tell=tell)
    with ExitStack() as ending:
        admin = ending.enter_context(Admin(options.bootstrap_servers, transport="grpc"))
        target = Target(lambda topic: _partition_count(admin, topic), options)
        plan = settle_plan(spark, options, target, tell)
        tell(f"{options.source} -> {plan}")
        if options.metrics_port is not None:
            port = ending.enter_context(metrics_served(progress, options.metrics_port))
            tell(f"metrics on port {port}")
        spark.streams.addListener(listener)
        ending.callback(spark.streams.removeListener, listener)

        def watch() -> None:
            try:
                target.check(plan)
            except ClientError as problem:  # a broker is away: the batch waits for it, or fails
                tell(f"{plan.target} could not be looked at: {problem}")

        query = start(spark, options, plan)
        _follow(query, watch, options.watch_seconds)
        listener.wait_ended(_LAST_REPORT_SECONDS)
    tell(progress.summary())
    return progress


def _partition_count(admin: Admin, topic: str) -> int:
    return len(admin.describe_topics([topic])[topic].partitions)


def _follow(query: StreamingQuery, check: Callable[[], None], watch_seconds: int) -> None:
    """Until the query ends; stops it where a check fails, or this thread is interrupted."""
    try:
        while not query.awaitTermination(watch_seconds):
            check()
    finally:
        query.stop()


# ---- the command


def parse(arguments: Sequence[str] | None = None) -> Options:
    """Options of the command line. Raises OptionError."""
    found = _parser().parse_args(arguments)
    group_id = found.group_id or f"reshard-{found.source.replace(',', '-')}-{found.target}"
    source_options = _named("--source-option", found.source_option)
    if found.max_offsets_per_trigger is not None:
        source_options["maxOffsetsPerTrigger"] = str(found.max_offsets_per_trigger)
    if found.target in found.source.split(","):
        raise OptionError(f"{found.target} is source and target", "another topic for --target")
    if found.dead_letters in (found.target, *found.source.split(",")):
        raise OptionError(
            f"--dead-letters {found.dead_letters} is source or target", "a topic of its own"
        )
    if found.tasks is not None and found.tasks < 1:
        raise OptionError(f"--tasks {found.tasks} must be above zero", "leave it out")
    return Options(
        bootstrap_servers=found.bootstrap_servers,
        source=found.source,
        target=found.target,
        key=parse_key(found.key),
        partitioner=parse_partitioner(found.partitioner),
        checkpoint=found.checkpoint.rstrip("/"),
        group_id=group_id,
        sink_id=found.sink_id or group_id,
        dead_letters=found.dead_letters,
        pin_partitions=found.pin_partitions,
        tasks=found.tasks,
        available_now=found.available_now,
        exactly_once=found.delivery == "exactly-once",
        trigger_interval=found.trigger_interval,
        metrics_port=found.metrics_port,
        source_options=source_options,
        sink_options=_named("--sink-option", found.sink_option),
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="reshard", description=(__doc__ or "").splitlines()[0])
    add = parser.add_argument
    add("--bootstrap-servers", required=True, metavar="HOST:PORT,...", help="brokers, gRPC")
    add("--source", required=True, metavar="TOPIC,...")
    add("--target", required=True, metavar="TOPIC", help="it must exist")
    add("--key", default="key", metavar="RULE", help="json:user.id, access-log:ip, field:3, ...")
    add("--partitioner", default="murmur2", metavar="RULE", help="crc32, case, ranges:a-z=0, ...")
    add("--checkpoint", required=True, metavar="DIR", help="of this query alone")
    add("--group-id", metavar="NAME", help="commits how far the source was read")
    add("--sink-id", metavar="NAME", help="names the writer; the group's name by default")
    add("--dead-letters", metavar="TOPIC", help="for records without key; else they are an error")
    add("--pin-partitions", action="store_true", help="go on when the target grows")
    add("--available-now", action="store_true", help="end when caught up")
    add("--trigger-interval", default="1 second", metavar="TIME", help="between batches")
    add("--max-offsets-per-trigger", type=int, metavar="COUNT", help="records of a batch, at most")
    add("--tasks", type=int, metavar="COUNT", help="that write; by default as many as cores")
    add("--delivery", default="exactly-once", choices=["exactly-once", "at-least-once"])
    add("--metrics-port", type=int, metavar="PORT", help="Prometheus metrics; 0 is any free port")
    add("--source-option", action="append", default=[], metavar="NAME=VALUE")
    add("--sink-option", action="append", default=[], metavar="NAME=VALUE")
    return parser


def _named(flag: str, pairs: Sequence[str]) -> dict[str, str]:
    wrong = [pair for pair in pairs if "=" not in pair]
    if wrong:
        raise OptionError(f"{flag} {wrong[0]} is not NAME=VALUE", f"{flag} name=value")
    return dict(pair.split("=", 1) for pair in pairs)


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit code: 0 when caught up, 1 for what went wrong, 2 for a wrong option."""
    return ended("reshard", lambda: _reshard(arguments))


def _reshard(arguments: Sequence[str] | None) -> None:
    options = parse(arguments)
    spark = SparkSession.builder.appName(f"tidemark-{options.sink_id}").getOrCreate()
    register(spark)
    run(spark, options, tell)


if __name__ == "__main__":
    sys.exit(main())
