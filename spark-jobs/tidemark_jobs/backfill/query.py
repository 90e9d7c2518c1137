"""The backfill query: from Spark's file source to the exactly-once sink, until all is written."""

import json
from contextlib import ExitStack
from typing import Final

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType
from tidemark.client.errors import TransactionalIdNotFoundError
from tidemark.client.sync import SinkBatches
from tidemark_spark.errors import OptionError
from tidemark_spark.progress import Progress, ProgressListener
from tidemark_spark.security import client_security

from tidemark_jobs.backfill.options import Options
from tidemark_jobs.backfill.transform import transform
from tidemark_jobs.command import LAST_REPORT_SECONDS, Echo

_FOR_EVER: Final = "36500d"
"""Maximum age of a file. By default Spark's file source silently skips files that are a week older
than the newest one.
"""

_NO_COMMON_SCHEMA: Final = "CANNOT_MERGE_SCHEMAS"


def start(spark: SparkSession, options: Options) -> StreamingQuery:
    """Start the query. Raises OptionError if Spark finds no files."""
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
        .options(**options.kafka)
        .option("topic", options.topic)
        .option("sink.id", options.sink_id)
        .option("checkpointLocation", options.checkpoint)
        .trigger(availableNow=True)
        .start()
    )


def _schema(spark: SparkSession, options: Options) -> StructType | str:
    """Return the schema of all files, which a streaming query needs before it starts.

    It has the columns of every file. Spark would take those of one file, and leave out what only
    others have, such as headers.
    """
    if options.form == "text":
        return "value string"
    try:
        return spark.read.option("mergeSchema", "true").parquet(options.path).schema
    except Py4JJavaError as problem:
        if _NO_COMMON_SCHEMA not in str(problem.java_exception):
            raise
        raise OptionError(
            f"a column of the Parquet files in {options.path} has another type in some of them",
            "a backfill for each type: --path with a pattern, --sink-id and --checkpoint",
        ) from None
    except AnalysisException as problem:
        raise OptionError(
            f"Spark can read no Parquet files in {options.path}: {problem.getCondition()}",
            "use --format text, or a directory or pattern that matches Parquet files",
        ) from None


def check_sink(spark: SparkSession, options: Options, echo: Echo) -> None:
    """Raise OptionError if another query than the checkpoint's has written to the sink, because all
    files would be written again. With ``--again`` print a warning instead.
    """
    with SinkBatches(options.bootstrap_servers, **client_security(options.kafka)) as sinks:
        try:
            known = sinks.describe(options.sink_id)
        except TransactionalIdNotFoundError:
            return
    own = query_id_of(spark, options.checkpoint)
    if known.query_id in ("", own) or known.batch_id is None:
        return
    what = (
        f"sink {options.sink_id} has already written batch {known.batch_id} to {options.topic}, and"
        f" the checkpoint {options.checkpoint} is not the one it used"
    )
    if not options.again:
        raise OptionError(
            what,
            "use the checkpoint of that run to continue; --again to write every file a second"
            " time; another --sink-id to write other files",
        )
    echo(f"{what}: every file is written AGAIN")


def query_id_of(spark: SparkSession, checkpoint: str) -> str | None:
    """Return the query id in a checkpoint; None if no query has started with it."""
    try:
        lines = spark.read.text(f"{checkpoint}/metadata").collect()
    except AnalysisException as problem:
        if problem.getCondition() != "PATH_NOT_FOUND":
            raise
        return None
    return str(json.loads("".join(line.value for line in lines))["id"])


def run(spark: SparkSession, options: Options, echo: Echo) -> Progress:
    """Write all files that have not been written yet.

    ``spark`` has the format registered. Raises TidemarkSparkError, ClientError,
    StreamingQueryException.
    """
    check_sink(spark, options, echo)
    progress = Progress(options.sink_id)
    listener = ProgressListener(progress, name=options.sink_id, echo=echo)
    with ExitStack() as ending:
        spark.streams.addListener(listener)
        ending.callback(spark.streams.removeListener, listener)
        query = start(spark, options)
        ending.callback(query.stop)
        query.awaitTermination()
        listener.wait_ended(LAST_REPORT_SECONDS)
    echo(progress.summary())
    return progress
