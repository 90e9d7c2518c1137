"""Rows of files to rows of the sink. Column expressions only; nothing here reads or writes."""

from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from tidemark_spark.errors import OptionError

from tidemark_jobs.backfill.options import Options
from tidemark_jobs.keys import KEY, TEXT, KeyRule


def from_lines(frame: DataFrame, key: KeyRule | None) -> DataFrame:
    """Convert rows of Spark's text source: each line is a record with the same bytes."""
    text = frame.select(f.col("value").alias(TEXT), f.lit(None).cast("binary").alias(KEY))
    keys = [] if key is None else [key.column().alias("key")]
    return text.select(*keys, f.col(TEXT).cast("binary").alias("value"))


def from_rows(frame: DataFrame, options: Options) -> DataFrame:
    """Convert rows of Parquet files: key, value and headers unchanged, or the whole row as JSON.

    Raises OptionError if a column is missing.
    """
    wanted = {
        "--key-column": options.key_column,
        "--keep-partitions": "partition" if options.keep_partitions else None,
        "--keep-timestamps": "timestamp" if options.keep_timestamps else None,
        "--format parquet": None if options.as_json else "value",
    }
    for option, name in wanted.items():
        if name is not None and name not in frame.columns:
            raise OptionError(
                f"{option} needs a column {name}; the columns of {options.path} are"
                f" {', '.join(frame.columns)}",
                "--json, to write all columns as one record"
                if name == "value"
                else "give the name of one of these columns, or leave the option out",
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
    """Convert rows of files, of a batch or of a stream, to rows of the sink."""
    return from_lines(frame, options.key) if options.form == "text" else from_rows(frame, options)
