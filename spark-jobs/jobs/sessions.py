"""What users do, session by session: a streaming aggregation over a topic that is keyed by user.

    spark-submit --py-files tidemark_spark.zip sessions.py --bootstrap-servers broker-1:9292 \\
        --source access-by-user --format access-log --checkpoint /checkpoints/sessions \\
        --available-now --report sessions.html

Two queries, each exactly once. The first cuts each user's records into sessions (Spark's session
windows, closed by the watermark) and appends each closed one to ``--sessions-topic``, under the
user's key. The second keeps each user's totals in ``--users-topic``, a compacted topic: the newest
record of a key is what the user came to so far. The report is drawn from what these topics hold.
"""

import argparse
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery
from tidemark.client.admin_types import ConfigResource, NewTopic
from tidemark.client.sync import Admin
from tidemark_spark import register
from tidemark_spark.errors import OptionError
from tidemark_spark.job import ended, tell
from tidemark_spark.keys import parse_key
from tidemark_spark.progress import OBSERVED, Progress, ProgressListener
from tidemark_spark.report import LENGTH_NAMES, SessionsReport, to_html
from tidemark_spark.session_frames import (
    FORMATS,
    SESSION_SCHEMA,
    Format,
    as_records,
    by_hour,
    by_length,
    from_records,
    parse_records,
    top_pages,
    top_users,
    totals,
)

_QUERY_ID: Final = "sql.streaming.queryId"
_LAST_REPORT_SECONDS: Final = 10.0
Tell = Callable[[str], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the command line says."""

    bootstrap_servers: str
    source: str
    form: Format
    checkpoint: str
    sessions_topic: str
    users_topic: str
    name: str
    """Begins the sink ids and the queries' names."""
    gap_s: int = 1_800
    late_s: int = 600
    available_now: bool = False
    tasks: int | None = None
    report: Path | None = None
    report_only: bool = False
    title: str = ""
    source_options: Mapping[str, str] = field(default_factory=dict)


# ---- the frames


def transform(frame: DataFrame, form: Format, *, gap_s: int, late_s: int) -> DataFrame:
    """Rows of the source (batch or stream) to closed sessions, of SESSION_SCHEMA.

    A session is closed when the watermark (the latest time seen, less ``late_s``) has passed its
    end by ``gap_s``. Records without user or time are left out, and counted.
    """
    parsed = parse_records(frame, form)
    counted = parsed.observe(
        OBSERVED, f.count_if(f.isnull("user") | f.isnull("at")).alias("not_understood")
    )
    known = counted.where(f.isnotnull("user") & f.isnotnull("at"))
    window = f.session_window("at", f"{gap_s} seconds").alias("window")
    cut = (
        known.withWatermark("at", f"{late_s} seconds")
        .groupBy("user", window)
        .agg(
            f.max("at").alias("end"),
            f.count(f.lit(1)).alias("records"),
            f.size(f.collect_set("page")).alias("pages"),
            f.min_by("page", f.struct("at", "page")).alias("first_page"),
        )
    )
    start = f.col("window.start")
    seconds = f.unix_seconds("end") - f.unix_seconds(start)
    return cut.select(
        "user", start.alias("start"), "end", seconds.alias("seconds"), "records", "pages",
        "first_page",
    )  # fmt: skip


# ---- the queries


def start_sessions(spark: SparkSession, options: Options) -> StreamingQuery:
    """Source to sessions topic."""
    frame = _stream(spark, options, options.source).options(**options.source_options).load()
    closed = transform(frame, options.form, gap_s=options.gap_s, late_s=options.late_s)
    name = f"{options.name}-sessions"
    writer = (
        as_records(closed)
        .writeStream.format("tidemark")
        .queryName(name)
        .option("bootstrap.servers", options.bootstrap_servers)
        .option("topic", options.sessions_topic)
        .option("sink.id", name)
        .option("checkpointLocation", f"{options.checkpoint}/sessions")
    )
    return _started(writer, options)


def start_users(spark: SparkSession, options: Options) -> StreamingQuery:
    """Sessions topic to users topic: the users that a batch changed."""
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
    """Writes a batch of a query in update mode, which Spark's Python sinks do not take: a batch
    write that names the query and the batch, so that it takes effect once, replayed or not.
    """

    def __init__(self, options: Options, sink_id: str) -> None:
        self._options = options
        self._sink_id = sink_id

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        """What Spark calls, in the query's thread."""
        query_id = frame.sparkSession.sparkContext.getLocalProperty(_QUERY_ID)
        assert query_id, "Spark names the query in foreachBatch"
        (
            frame.write.format("tidemark")
            .mode("append")
            .option("bootstrap.servers", self._options.bootstrap_servers)
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
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
    )


def _started(writer: Any, options: Options) -> StreamingQuery:
    if options.available_now:
        return writer.trigger(availableNow=True).start()  # type: ignore[no-any-return]
    return writer.trigger(processingTime="1 second").start()  # type: ignore[no-any-return]


class LateRecords(ProgressListener):
    """Counts what came after the watermark had closed its session, and says so."""

    def __init__(self, progress: Progress, *, name: str, tell: Tell) -> None:
        super().__init__(progress, name=name, tell=tell)
        self._warn = tell
        self._lock = threading.Lock()
        self.dropped = 0

    def summary(self) -> str:
        """What the query did, for the end."""
        return self._progress.summary()

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802 - Spark's name
        """A batch was committed."""
        super().onQueryProgress(event)
        late = sum(each.numRowsDroppedByWatermark for each in event.progress.stateOperators)
        if late and event.progress.name == self._progress.query:
            with self._lock:
                self.dropped += late
            self._warn(
                f"batch {event.progress.batchId}: {late:,} records came too late for their session"
                " and are in none; --late allows more"
            )


def run(spark: SparkSession, options: Options, tell: Tell) -> int:
    """Both queries: one after the other until caught up, or side by side for ever. ``spark`` knows
    the format.

    Returns how many records were too late. Raises TidemarkSparkError, ClientError,
    StreamingQueryException.
    """
    with Admin(options.bootstrap_servers, transport="grpc") as admin:
        make_topics(admin, options, tell)
    names = [f"{options.name}-sessions", f"{options.name}-users"]
    listeners = [LateRecords(Progress(name), name=name, tell=tell) for name in names]
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
            listener.wait_ended(_LAST_REPORT_SECONDS)
    for listener in listeners:
        tell(listener.summary())
    return sum(listener.dropped for listener in listeners)


@contextmanager
def _tasks(spark: SparkSession, options: Options) -> Iterator[None]:
    """How many tasks share the state. A query keeps the settings that it was started with, and its
    checkpoint keeps this one.
    """
    name = "spark.sql.shuffle.partitions"
    before = spark.conf.get(name) or ""
    spark.conf.set(name, str(options.tasks or spark.sparkContext.defaultParallelism))
    try:
        yield
    finally:
        spark.conf.set(name, before)


def make_topics(admin: Admin, options: Options, tell: Tell) -> None:
    """Make what is missing, as wide as the source. Raises OptionError where the users topic is
    there and is not compacted, ClientError.
    """
    partitions = len(admin.describe_topics([options.source])[options.source].partitions)
    known = set(admin.list_topics())
    compacted = {"cleanup.policy": "compact"}
    wanted = [
        NewTopic(options.sessions_topic, partitions),
        NewTopic(options.users_topic, partitions, configs=compacted),
    ]
    missing = [topic for topic in wanted if topic.name not in known]
    if missing:
        admin.create_topics(missing)
        tell(f"made {', '.join(f'{each.name} ({partitions} partitions)' for each in missing)}")
    if options.users_topic in known:
        resource = ConfigResource("topic", options.users_topic)
        entries = admin.describe_configs([resource])[resource]
        policy = entries["cleanup.policy"].value or ""
        if "compact" not in policy:
            raise OptionError(
                f"{options.users_topic} has cleanup.policy={policy}: it would forget users",
                f"tidemark topic alter {options.users_topic} --config cleanup.policy=compact, or"
                " another --users-topic",
            )


# ---- the report


def collect_report(spark: SparkSession, options: Options, *, late: int = 0) -> SessionsReport:
    """What the topics hold now, as small numbers."""
    sessions = from_records(_batch(spark, options, options.sessions_topic), SESSION_SCHEMA).cache()
    try:
        return _report(spark, options, sessions, late)
    finally:
        sessions.unpersist()


def _report(
    spark: SparkSession, options: Options, sessions: DataFrame, late: int
) -> SessionsReport:
    sums = sessions.agg(
        f.count(f.lit(1)).alias("sessions"),
        f.count_distinct("user").alias("users"),
        f.coalesce(f.sum("records"), f.lit(0)).alias("records"),
        f.coalesce(f.avg("seconds"), f.lit(0.0)).alias("length"),
    ).collect()[0]
    lengths = {row["kind"]: row["count"] for row in by_length(sessions).collect()}
    notes = [f"{late:,} records came too late for their session and are in none."] if late else []
    return SessionsReport(
        title=options.title or f"Sessions in {options.source}",
        source=options.source,
        gap_s=options.gap_s,
        users=sums["users"],
        sessions=sums["sessions"],
        records=sums["records"],
        length_mean_s=sums["length"],
        per_hour={row["hour"]: row["count"] for row in by_hour(sessions).collect()},
        lengths=[lengths.get(kind, 0) for kind in range(len(LENGTH_NAMES))],
        top_users=top_users(_batch(spark, options, options.users_topic)),
        pages=top_pages(_batch(spark, options, options.source), options.form),
        page_word=options.form.page_word,
        notes=notes,
    )


def _batch(spark: SparkSession, options: Options, topic: str) -> DataFrame:
    return (
        spark.read.format("tidemark")
        .option("bootstrap.servers", options.bootstrap_servers)
        .option("subscribe", topic)
        .load()
    )


def write_report(path: Path, report: SessionsReport) -> None:
    """Replace the file whole: a browser never loads half of it."""
    draft = path.with_name(f".{path.name}.draft")
    draft.write_text(to_html(report), encoding="utf-8")
    draft.replace(path)


# ---- the command


def parse(arguments: Sequence[str] | None = None) -> Options:
    """Options of the command line. Raises OptionError."""
    found = _parser().parse_args(arguments)
    form = FORMATS[found.format]
    form = replace(
        form,
        user=parse_key(found.user) if found.user else form.user,
        time=parse_key(found.time) if found.time else form.time,
        page=parse_key(found.page) if found.page else form.page,
    )
    if found.time_pattern is not None:
        form = replace(form, time_pattern=found.time_pattern)
    if found.gap < 1 or found.late < 0:
        raise OptionError("--gap must be above zero, and --late not below", "seconds, both")
    if not (found.checkpoint or found.report_only):
        raise OptionError("--checkpoint is missing", "a directory of this job alone")
    if found.report_only and found.report is None:
        raise OptionError("--report-only needs a file", "--report sessions.html")
    if found.report is not None and not (found.available_now or found.report_only):
        raise OptionError(
            "--report is drawn at the end, and without --available-now there is none",
            "start another one with --report-only, as often as you like",
        )
    return Options(
        bootstrap_servers=found.bootstrap_servers,
        source=found.source,
        form=form,
        checkpoint=(found.checkpoint or "").rstrip("/"),
        sessions_topic=found.sessions_topic or f"{found.source}.sessions",
        users_topic=found.users_topic or f"{found.source}.users",
        name=found.name or f"sessions-{found.source}",
        gap_s=found.gap,
        late_s=found.late,
        available_now=found.available_now,
        tasks=found.tasks,
        report=found.report,
        report_only=found.report_only,
        title=found.title,
        source_options=_source_options(found),
    )


def _source_options(found: argparse.Namespace) -> dict[str, str]:
    wrong = [pair for pair in found.source_option if "=" not in pair]
    if wrong:
        raise OptionError(f"--source-option {wrong[0]} is not NAME=VALUE")
    options = dict(pair.split("=", 1) for pair in found.source_option)
    if found.max_offsets_per_trigger is not None:
        options["maxOffsetsPerTrigger"] = str(found.max_offsets_per_trigger)
    return options


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="sessions", description=(__doc__ or "").splitlines()[0])
    add = parser.add_argument
    add("--bootstrap-servers", required=True, metavar="HOST:PORT,...", help="brokers, gRPC")
    add("--source", required=True, metavar="TOPIC", help="keyed by user, as reshard leaves it")
    add("--format", default="access-log", choices=list(FORMATS))
    add("--user", metavar="RULE", help="where the user is, if not in the key: field:3, json:id")
    add("--time", metavar="RULE", help="where the time is")
    add("--time-pattern", metavar="PATTERN", help="Spark's datetime pattern; '' is ISO 8601")
    add("--page", metavar="RULE", help="where the page, or whatever is asked for, is")
    add("--checkpoint", metavar="DIR", help="of this job alone")
    add("--sessions-topic", metavar="TOPIC", help="closed sessions; default SOURCE.sessions")
    add("--users-topic", metavar="TOPIC", help="totals, compacted; default SOURCE.users")
    add("--name", metavar="NAME", help="names the sinks and queries; default sessions-SOURCE")
    add("--gap", type=int, default=1_800, metavar="SECONDS", help="of silence that end a session")
    add("--late", type=int, default=600, metavar="SECONDS", help="that records may be late")
    add("--available-now", action="store_true", help="end when caught up")
    add("--max-offsets-per-trigger", type=int, metavar="COUNT", help="records of a batch, at most")
    add("--tasks", type=int, metavar="COUNT", help="that keep state; fixed by the first run")
    add("--report", type=Path, metavar="FILE", help="write an HTML page at the end")
    add("--report-only", action="store_true", help="from what the topics hold; runs no query")
    add("--title", default="", help="of the report")
    add("--source-option", action="append", default=[], metavar="NAME=VALUE")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit code: 0 when caught up, 1 for what went wrong, 2 for a wrong option."""
    return ended("sessions", lambda: _sessions(arguments))


def _sessions(arguments: Sequence[str] | None) -> None:
    options = parse(arguments)
    spark = SparkSession.builder.appName(f"tidemark-{options.name}").getOrCreate()
    register(spark)
    late = 0 if options.report_only else run(spark, options, tell)
    if options.report is not None:
        write_report(options.report, collect_report(spark, options, late=late))
        tell(f"report: {options.report.absolute()}")


if __name__ == "__main__":
    sys.exit(main())
