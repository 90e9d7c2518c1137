"""The reshard query: settle the plan, take the sink over, start the stream and watch the target."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from tidemark.client.errors import ClientError
from tidemark.client.sync import Admin, SinkBatches
from tidemark.client.transactions.sink_batches import BatchId
from tidemark_spark.errors import TidemarkSparkError
from tidemark_spark.progress import Progress, ProgressListener, metrics_served
from tidemark_spark.security import client_security
from tidemark_spark.sink.foreach_batch import ForeachBatchWriter, Prepare

from tidemark_jobs.command import LAST_REPORT_SECONDS, Echo
from tidemark_jobs.reshard.options import Options
from tidemark_jobs.reshard.plan import (
    DeadLetters,
    Plan,
    check_unchanged,
    has_batches,
    read_plan,
    settle_query_id,
    write_plan,
)
from tidemark_jobs.reshard.transform import transform, transform_in_place

IN_PLACE_PAIRS_MAX: Final = 256
"""Pairs of a writing task and a target partition up to which rows are written by the tasks that
read them. Each pair costs a marker of the transaction and batches of its own; beyond this number a
shuffle, after which a partition is written by one task, costs less.
"""
_SPLITTING: Final = frozenset({"minpartitions", "maxrecordsperpartition"})
"""Options of the source that spread a source partition over several tasks."""
_SORTS_IN_STREAMS: Final = "spark.sql.streaming.unsupportedOperationCheck"


class GrownTopicError(TidemarkSparkError):
    """The number of partitions of the target has changed since the query's first start."""


class Target:
    """The target topic. ``count`` returns the current number of partitions of a topic."""

    def __init__(self, count: Callable[[str], int], options: Options) -> None:
        self._count = count
        self._options = options

    def plan(self) -> Plan:
        """Make a plan for the current numbers of partitions. Raises OptionError, ClientError."""
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
        """Raise GrownTopicError if the target's number of partitions is not the plan's.

        With ``--pin-partitions`` a larger number is accepted. Raises ClientError.
        """
        count = self._count(plan.target)
        if count == plan.partitions or (self._options.pin_partitions and count > plan.partitions):
            return
        raise GrownTopicError(
            f"{plan.target} has {count} partitions now; this query places keys over"
            f" {plan.partitions}, and another number would spread a key over two partitions",
            f"--pin-partitions to keep writing to the first {plan.partitions}, or drain the topic"
            " and start with a new --checkpoint",
        )


def settle_plan(spark: SparkSession, options: Options, target: Target, echo: Echo) -> Plan:
    """Return the plan stored in the checkpoint; store a new one if there is none.

    Raises OptionError if the stored plan contradicts the options, GrownTopicError, ClientError.
    """
    known = read_plan(spark, options.checkpoint)
    plan = target.plan()
    if known is not None:
        target.check(known)
        check_unchanged(known, plan)
        plan = replace(plan, partitions=known.partitions)
    if options.exactly_once and not has_batches(spark, options.checkpoint):
        _take_over(options, settle_query_id(spark, options.checkpoint), echo)
    if known is None:
        write_plan(spark, options.checkpoint, plan)
    return plan


def _take_over(options: Options, query_id: str, echo: Echo) -> None:
    """Take the sink over from any other query before the group's offsets are read.

    Otherwise a driver that is still running with another checkpoint could commit a batch after this
    query has read the group's offsets and before its first batch, and those records would be
    written twice. The takeover uses the id that this query will have, so a later driver can take
    over from it in the same way, even before its first batch.
    """
    batch = BatchId(options.sink_id, query_id, 0)
    with SinkBatches(options.bootstrap_servers, **client_security(options.kafka)) as sinks:
        with sinks.enlist(batch, "takeover") as writer:
            retired = writer.retired_query_id
        sinks.abort(batch)
    if retired:
        echo(f"sink {options.sink_id} taken over from query {retired}, which is retired")
    echo(
        f"new query: {options.checkpoint} contains no batch; it starts at the offsets committed by"
        f" group {options.group_id}"
    )


def start(spark: SparkSession, options: Options, plan: Plan) -> StreamingQuery:
    """Start the query, with the sink options that its delivery guarantee needs."""
    reader = (
        spark.readStream.format("tidemark")
        .option("bootstrap.servers", options.bootstrap_servers)
        .options(**options.kafka)
        .option("subscribe", options.source)
        .option("includeHeaders", "true")
        .option("startingOffsets", "committed")
        .option("group.id", options.group_id)
        .options(**options.source_options)
    )
    tasks = options.tasks or min(plan.slots, spark.sparkContext.defaultParallelism)
    in_place = is_in_place(options, plan, tasks)
    shape = transform_in_place if in_place else transform
    rows = shape(reader.load(), plan, tasks=tasks)
    fill = Fill(plan) if in_place and plan.partitioner.late else None
    query_id = settle_query_id(spark, options.checkpoint)
    writer = (
        rows.writeStream.foreachBatch(_writer(options, query_id, fill))
        .queryName(options.sink_id)
        .option("checkpointLocation", options.checkpoint)
    )
    if options.available_now:
        writer = writer.trigger(availableNow=True)
    else:
        writer = writer.trigger(processingTime=options.trigger_interval)
    with _sorts_allowed(spark):
        return writer.start()


def is_in_place(options: Options, plan: Plan, tasks: int) -> bool:
    """True if the tasks that read rows write them too; False if rows are shuffled in between.

    Without a shuffle, a source partition must be read by one task in a batch, and a batch must
    have few pairs of a task and a target partition.
    """
    if options.shuffle == "always" or tasks * plan.slots > IN_PLACE_PAIRS_MAX:
        return False
    return not any(name.lower() in _SPLITTING for name in options.source_options)


@dataclass(frozen=True, slots=True)
class Fill:
    """Function of the sink's tasks: fills the partitions that Spark has not computed."""

    plan: Plan

    def __call__(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Fill the column ``partition`` of some rows."""
        return self.plan.partitioner.fill(rows, self.plan.partitions)


def _writer(options: Options, query_id: str, fill: Prepare | None) -> ForeachBatchWriter:
    if options.exactly_once:
        sink = {
            "sink.id": options.sink_id,
            "group.id": options.group_id,
            "source.offsets": "true",
        }
    else:
        sink = {"delivery": "at-least-once"}
    shared = {"bootstrap.servers": options.bootstrap_servers, **options.kafka}
    return ForeachBatchWriter({**shared, **sink, **options.sink_options}, query_id, prepare=fill)


@contextmanager
def _sorts_allowed(spark: SparkSession) -> Iterator[None]:
    """Turn off Spark's check for unsupported operations while the query is started.

    Spark rejects a sort in a stream because it cannot sort the whole stream; this query sorts the
    rows of a batch within a task. A query keeps the settings that it was started with.
    """
    before = spark.conf.get(_SORTS_IN_STREAMS, "true") or "true"
    spark.conf.set(_SORTS_IN_STREAMS, "false")
    try:
        yield
    finally:
        spark.conf.set(_SORTS_IN_STREAMS, before)


def run(spark: SparkSession, options: Options, echo: Echo) -> Progress:
    """Reshard until caught up (``available_now``) or until stopped.

    ``spark`` has the format registered. Raises TidemarkSparkError, ClientError,
    StreamingQueryException.
    """
    progress = Progress(options.sink_id)
    listener = ProgressListener(progress, name=options.sink_id, echo=echo)
    with ExitStack() as ending:
        login = client_security(options.kafka)
        admin = ending.enter_context(Admin(options.bootstrap_servers, transport="grpc", **login))
        target = Target(lambda topic: _partition_count(admin, topic), options)
        plan = settle_plan(spark, options, target, echo)
        echo(f"{options.source} -> {plan}")
        if options.metrics_port is not None:
            port = ending.enter_context(metrics_served(progress, options.metrics_port))
            echo(f"metrics on port {port}")
        spark.streams.addListener(listener)
        ending.callback(spark.streams.removeListener, listener)

        def watch() -> None:
            try:
                target.check(plan)
            except (
                ClientError
            ) as problem:  # a running batch waits for the broker or fails by itself
                echo(f"could not check the partitions of {plan.target}: {problem}")

        query = start(spark, options, plan)
        _follow(query, watch, options.watch_seconds)
        listener.wait_ended(LAST_REPORT_SECONDS)
    echo(progress.summary())
    return progress


def _partition_count(admin: Admin, topic: str) -> int:
    return len(admin.describe_topics([topic])[topic].partitions)


def _follow(query: StreamingQuery, check: Callable[[], None], watch_seconds: int) -> None:
    """Wait for the query's end; stop it if ``check`` raises or this thread is interrupted."""
    try:
        while not query.awaitTermination(watch_seconds):
            check()
    finally:
        query.stop()
