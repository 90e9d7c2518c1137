"""Files into a topic, every record once: text (also .gz) by lines, Parquet by rows.

    spark-submit --py-files tidemark_spark.zip backfill.py --bootstrap-servers broker-1:9292 \\
        --path /logs/2026 --format text --key access-log:host --topic access-by-server \\
        --checkpoint /checkpoints/backfill

A streaming query from Spark's file source, which writes down in the checkpoint which files are in
which batch before it reads them, to the exactly-once sink, which knows which batches were written.
So it may be killed at any moment and started again; files that came meanwhile are taken too.
"""

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Final

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType
from tidemark.client.errors import TransactionalIdNotFoundError
from tidemark.client.sync import SinkBatches
from tidemark_spark import register
from tidemark_spark.errors import OptionError
from tidemark_spark.job import ended, tell
from tidemark_spark.keys import KEY, TEXT, KeyRule, parse_key
from tidemark_spark.progress import Progress, ProgressListener

_FOR_EVER: Final = "36500d"
"""Spark's file source forgets files that are a week older than the newest: they would be left out
without a word.
"""
_LAST_REPORT_SECONDS: Final = 10.0

Tell = Callable[[str], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the command line says."""

    bootstrap_servers: str
    path: str
    topic: str
    checkpoint: str
    sink_id: str
    form: str = "text"
    key: KeyRule | None = None
    """Of text; None: records have no key."""
    key_column: str | None = None
    """Of Parquet; None: the column key, where there is one."""
    as_json: bool = False
    keep_partitions: bool = False
    keep_timestamps: bool = False
    files_per_batch: int = 16
    again: bool = False


# ---- the frames


def from_lines(frame: DataFrame, key: KeyRule | None) -> DataFrame:
    """Rows of Spark's text source (a column value) to rows of the sink: a line is a record, its
    bytes as they were.
    """
    text = frame.select(f.col("value").alias(TEXT), f.lit(None).cast("binary").alias(KEY))
    keys = [] if key is None else [key.column().alias("key")]
    return text.select(*keys, f.col(TEXT).cast("binary").alias("value"))


def from_rows(frame: DataFrame, options: Options) -> DataFrame:
    """Rows of Parquet files to rows of the sink: key, value and headers as they are, or the whole
    row as JSON. Raises OptionError where a column is missing.
    """
    wanted = {
        "--key-column": options.key_column,
        "--keep-partitions": "partition" if options.keep_partitions else None,
        "--keep-timestamps": "timestamp" if options.keep_timestamps else None,
        "a record": None if options.as_json else "value",
    }
    for who, name in wanted.items():
        if name is not None and name not in frame.columns:
            raise OptionError(
                f"{who} needs a column {name}, and {options.path} has {', '.join(frame.columns)}",
                "--json makes a record of all columns" if name == "value" else "another column",
            )
    columns = [_value(frame, as_json=options.as_json).alias("value")]
    key = options.key_column or ("key" if "key" in frame.columns else None)
    if key is not None:
        kind = frame.schema[key].dataType.simpleString()
        own = f.col(key) if kind == "binary" else f.col(key).cast("string")
        columns.append(own.alias("key"))
    if "headers" in frame.columns and not options.as_json:
        columns.append(f.col("headers"))
    if options.keep_partitions:
        columns.append(f.col("partition").cast("int").alias("partition"))
    if options.keep_timestamps:
        columns.append(f.col("timestamp"))
    return frame.select(*columns)


def _value(frame: DataFrame, *, as_json: bool) -> Any:
    return f.to_json(f.struct(*frame.columns)) if as_json else f.col("value")


def transform(frame: DataFrame, options: Options) -> DataFrame:
    """Rows of files (batch or stream) to rows of the sink."""
    return from_lines(frame, options.key) if options.form == "text" else from_rows(frame, options)


# ---- the query


def start(spark: SparkSession, options: Options) -> StreamingQuery:
    """Start the query. Raises OptionError where there are no files."""
    reader = (
        spark.readStream.format(options.form)
        .schema(_schema(spark, options))
        .option("maxFilesPerTrigger", options.files_per_batch)
        .option("maxFileAge", _FOR_EVER)
    )
    if options.form == "text":
        reader = reader.option("recursiveFileLookup", "true")
    return (
        transform(reader.load(options.path), options)
        .writeStream.format("tidemark")
        .queryName(options.sink_id)
        .option("bootstrap.servers", options.bootstrap_servers)
        .option("topic", options.topic)
        .option("sink.id", options.sink_id)
        .option("checkpointLocation", options.checkpoint)
        .trigger(availableNow=True)
        .start()
    )


def _schema(spark: SparkSession, options: Options) -> StructType | str:
    """Of all files: a stream's must be known before."""
    if options.form == "text":
        return "value string"
    try:
        return spark.read.parquet(options.path).schema
    except AnalysisException as problem:
        raise OptionError(
            f"{options.path} has no Parquet files that Spark can read: {problem.getCondition()}",
            "--format text, or a directory or pattern with files",
        ) from None


def check_sink(spark: SparkSession, options: Options, tell: Tell) -> None:
    """Raise OptionError where the sink has been written by another query than the checkpoint's:
    its files would all come again. Unless they shall.
    """
    with SinkBatches(options.bootstrap_servers) as sinks:
        try:
            known = sinks.describe(options.sink_id)
        except TransactionalIdNotFoundError:
            return
    own = query_id_of(spark, options.checkpoint)
    if known.query_id in ("", own) or known.batch_id is None:
        return
    what = (
        f"{options.topic} has been filled through sink {options.sink_id}, up to batch"
        f" {known.batch_id}, and {options.checkpoint} knows nothing of it"
    )
    if not options.again:
        raise OptionError(
            what,
            "the checkpoint of that run goes on from there; --again writes every file once more;"
            " --sink-id names a backfill of other files",
        )
    tell(f"{what}: every file is written AGAIN")


def query_id_of(spark: SparkSession, checkpoint: str) -> str | None:
    """The id of a checkpoint's query; None where no query has begun."""
    try:
        lines = spark.read.text(f"{checkpoint}/metadata").collect()
    except AnalysisException as problem:
        if problem.getCondition() != "PATH_NOT_FOUND":
            raise
        return None
    return str(json.loads("".join(line.value for line in lines))["id"])


def run(spark: SparkSession, options: Options, tell: Tell) -> Progress:
    """Write all files that are there and were not written; ``spark`` knows the format.

    Raises TidemarkSparkError, ClientError, StreamingQueryException.
    """
    check_sink(spark, options, tell)
    progress = Progress(options.sink_id)
    listener = ProgressListener(progress, name=options.sink_id, tell=tell)
    with ExitStack() as ending:
        spark.streams.addListener(listener)
        ending.callback(spark.streams.removeListener, listener)
        query = start(spark, options)
        ending.callback(query.stop)
        query.awaitTermination()
        listener.wait_ended(_LAST_REPORT_SECONDS)
    tell(progress.summary())
    return progress


# ---- the command


def parse(arguments: Sequence[str] | None = None) -> Options:
    """Options of the command line. Raises OptionError."""
    found = _parser().parse_args(arguments)
    if found.format == "text":
        unfit = ["--key-column"] if found.key_column else []
        unfit += [
            f"--{name.replace('_', '-')}"
            for name in ("json", "keep_partitions", "keep_timestamps")
            if getattr(found, name)
        ]
    else:
        unfit = ["--key"] if found.key else []
    if unfit:
        raise OptionError(f"{unfit[0]} means nothing with --format {found.format}")
    key = parse_key(found.key) if found.key else None
    if key is not None and key.kind == "key":
        raise OptionError("a line of text has no key of its own", "--key field:1, or leave it out")
    if found.files_per_batch < 1:
        raise OptionError("--files-per-batch must be above zero")
    return Options(
        bootstrap_servers=found.bootstrap_servers,
        path=found.path,
        topic=found.topic,
        checkpoint=found.checkpoint.rstrip("/"),
        sink_id=found.sink_id or f"backfill-{found.topic}",
        form=found.format,
        key=key,
        key_column=found.key_column,
        as_json=found.json,
        keep_partitions=found.keep_partitions,
        keep_timestamps=found.keep_timestamps,
        files_per_batch=found.files_per_batch,
        again=found.again,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="backfill", description=(__doc__ or "").splitlines()[0])
    add = parser.add_argument
    add("--bootstrap-servers", required=True, metavar="HOST:PORT,...", help="brokers, gRPC")
    add("--path", required=True, help="directory, file or pattern, as Spark reads it")
    add("--format", default="text", choices=["text", "parquet"])
    add("--topic", required=True, help="it must exist")
    add("--checkpoint", required=True, metavar="DIR", help="of this backfill alone")
    add("--key", metavar="RULE", help="of text: access-log:host, json:user.id, field:3, ...")
    add("--key-column", metavar="NAME", help="of Parquet; default the column key, if there is one")
    add("--json", action="store_true", help="of Parquet: the value is the whole row as JSON")
    add("--keep-partitions", action="store_true", help="of Parquet: as the column partition says")
    add("--keep-timestamps", action="store_true", help="of Parquet: as the column timestamp says")
    add("--files-per-batch", type=int, default=16, help="in one transaction")
    add("--sink-id", metavar="NAME", help="names this backfill; default backfill-TOPIC")
    add("--again", action="store_true", help="write files again that another run has written")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit code: 0 when all is written, 1 for what went wrong, 2 for a wrong option."""
    return ended("backfill", lambda: _backfill(arguments))


def _backfill(arguments: Sequence[str] | None) -> None:
    options = parse(arguments)
    spark = SparkSession.builder.appName(f"tidemark-{options.sink_id}").getOrCreate()
    register(spark)
    run(spark, options, tell)


if __name__ == "__main__":
    sys.exit(main())
