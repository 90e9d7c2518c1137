"""The two streaming queries of the sessions job, and the topics that they need."""

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from tidemark.client.admin.types import ConfigResource, NewTopic
from tidemark.client.sync import Admin
from tidemark_spark.errors import OptionError
from tidemark_spark.progress import Progress, ProgressListener
from tidemark_spark.security import client_security

from tidemark_jobs.command import LAST_REPORT_SECONDS, Echo
from tidemark_jobs.sessions.frames import (
    SESSION_SCHEMA,
    as_records,
    from_records,
    totals,
    transform,
)
from tidemark_jobs.sessions.options import Options

_QUERY_ID: Final = "sql.streaming.queryId"
_COMPACT: Final = "compact"


def start_sessions(spark: SparkSession, options: Options) -> StreamingQuery:
    """Start the query from the source to the sessions topic."""
    frame = _stream(spark, options, options.source).options(**options.source_options).load()
    closed = transform(frame, options.form, gap_s=options.gap_s, late_s=options.late_s)
    name = f"{options.name}-sessions"
    writer = (
        as_records(closed)
        .writeStream.format("tidemark")
        .queryName(name)
        .option("bootstrap.servers", options.bootstrap_servers)
        .options(**options.kafka)
        .option("topic", options.sessions_topic)
        .option("sink.id", name)
        .option("checkpointLocation", f"{options.checkpoint}/sessions")
    )
    return _started(writer, options)


def start_users(spark: SparkSession, options: Options) -> StreamingQuery:
    """Start the query from the sessions topic to the users topic: the users changed by a batch."""
    frame = _stream(spark, options, options.sessions_topic).load()
    changed = totals(from_records(frame, SESSION_SCHEMA))
    name = f"{options.name}-users"
    writer = (
        as_records(changed)
        .writeStream.foreachBatch(BatchOfUsers(options, name))
        .outputMode("update")
        .queryName(name)
        .option("checkpointLocation", f"{options.checkpoint}/users")
    )
    return _started(writer, options)


class BatchOfUsers:
    """Writer of each batch of a query in update mode, which Spark's Python sinks do not support.

    A batch is a batch write under the query id and the batch id, so it takes effect once even if
    the batch is replayed.
    """

    def __init__(self, options: Options, sink_id: str) -> None:
        self._options = options
        self._sink_id = sink_id

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        """Write one batch. Spark calls it in the query's thread."""
        query_id = frame.sparkSession.sparkContext.getLocalProperty(_QUERY_ID)
        assert query_id, "Spark sets the query id in foreachBatch"
        (
            frame.write.format("tidemark")
            .mode("append")
            .option("bootstrap.servers", self._options.bootstrap_servers)
            .options(**self._options.kafka)
            .option("topic", self._options.users_topic)
            .option("sink.id", self._sink_id)
            .option("query.id", query_id)
            .option("batch.id", str(batch_id))
            .save()
        )


def _stream(spark: SparkSession, options: Options, topic: str) -> Any:
    return (
        spark.readStream.format("tidemark")
        .option("bootstrap.servers", options.bootstrap_servers)
        .options(**options.kafka)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
    )


def _started(writer: Any, options: Options) -> StreamingQuery:
    if options.available_now:
        return writer.trigger(availableNow=True).start()  # type: ignore[no-any-return]
    return writer.trigger(processingTime="1 second").start()  # type: ignore[no-any-return]


class LateRecords(ProgressListener):
    """Counter and log of records that arrive after the watermark has closed their session.

    The numbers are lower bounds: Spark counts what it drops after it has combined the records of a
    user that a task read with the same time.
    """

    def __init__(self, progress: Progress, *, name: str, echo: Echo) -> None:
        super().__init__(progress, name=name, echo=echo)
        self._warn = echo
        self._lock = threading.Lock()
        self.dropped = 0

    def summary(self) -> str:
        """Return one line that sums up the query."""
        return self._progress.summary()

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802 - Spark's name
        """Count the late records of a committed batch."""
        super().onQueryProgress(event)
        late = sum(each.numRowsDroppedByWatermark for each in event.progress.stateOperators)
        if late and event.progress.name == self._progress.query:
            with self._lock:
                self.dropped += late
            self._warn(
                f"batch {event.progress.batchId}: at least {late:,} records arrived too late and"
                " are in no session; a larger --late would include them"
            )


def run(spark: SparkSession, options: Options, echo: Echo) -> int:
    """Run both queries, one after the other until caught up, or both until they are stopped.

    ``spark`` has the format registered. Returns at least how many records were late. Raises
    TidemarkSparkError, ClientError, StreamingQueryException.
    """
    login = client_security(options.kafka)
    with Admin(options.bootstrap_servers, transport="grpc", **login) as admin:
        make_topics(admin, options, echo)
    names = [f"{options.name}-sessions", f"{options.name}-users"]
    listeners = [LateRecords(Progress(name), name=name, echo=echo) for name in names]
    with ExitStack() as ending:
        for listener in listeners:
            spark.streams.addListener(listener)
            ending.callback(spark.streams.removeListener, listener)
        ending.enter_context(_tasks(spark, options))
        spark.streams.resetTerminated()
        for start in (start_sessions, start_users):
            query = start(spark, options)
            ending.callback(query.stop)
            if options.available_now:
                query.awaitTermination()
        if not options.available_now:
            spark.streams.awaitAnyTermination()
        for listener in listeners:
            listener.wait_ended(LAST_REPORT_SECONDS)
    for listener in listeners:
        echo(listener.summary())
    return sum(listener.dropped for listener in listeners)


@contextmanager
def _tasks(spark: SparkSession, options: Options) -> Iterator[None]:
    """Set the number of tasks that share the state while queries are started.

    A query keeps the settings that it was started with, and its checkpoint keeps this one.
    """
    name = "spark.sql.shuffle.partitions"
    before = spark.conf.get(name) or ""
    spark.conf.set(name, str(options.tasks or spark.sparkContext.defaultParallelism))
    try:
        yield
    finally:
        spark.conf.set(name, before)


def make_topics(admin: Admin, options: Options, echo: Echo) -> None:
    """Create the missing topics, with as many partitions as the source.

    Raises OptionError if the users topic exists and is not only compacted, ClientError.
    """
    partitions = len(admin.describe_topics([options.source])[options.source].partitions)
    known = set(admin.list_topics())
    compacted = {"cleanup.policy": _COMPACT}
    wanted = [
        NewTopic(options.sessions_topic, partitions),
        NewTopic(options.users_topic, partitions, configs=compacted),
    ]
    missing = [topic for topic in wanted if topic.name not in known]
    if missing:
        admin.create_topics(missing)
        echo(f"created {', '.join(f'{each.name} ({partitions} partitions)' for each in missing)}")
    if options.users_topic in known:
        resource = ConfigResource("topic", options.users_topic)
        entries = admin.describe_configs([resource])[resource]
        policy = entries["cleanup.policy"].value or ""
        if policy != _COMPACT:  # with compact,delete users go who have been quiet for long
            raise OptionError(
                f"{options.users_topic} has cleanup.policy={policy} and would lose users",
                f"tidemark topic alter {options.users_topic} --config cleanup.policy=compact, or"
                " use another --users-topic",
            )
