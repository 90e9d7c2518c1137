"""Figures of the report: read them from the topics, and write the page."""

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from tidemark_jobs.sessions.frames import (
    SESSION_SCHEMA,
    by_hour,
    by_length,
    from_records,
    top_pages,
    top_users,
)
from tidemark_jobs.sessions.options import Options
from tidemark_jobs.sessions.report import LENGTH_NAMES, SessionsReport, to_html


def collect_report(spark: SparkSession, options: Options, *, late: int = 0) -> SessionsReport:
    """Read the figures of the report from what the topics contain now."""
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
    notes = [f"At least {late:,} records arrived too late and are in no session."] if late else []
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
        .options(**options.kafka)
        .option("subscribe", topic)
        .load()
    )


def write_report(path: Path, report: SessionsReport) -> None:
    """Write the page and replace the file atomically."""
    draft = path.with_name(f".{path.name}.draft")
    draft.write_text(to_html(report), encoding="utf-8")
    draft.replace(path)
