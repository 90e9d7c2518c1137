"""DataFrames of the sessions job: parsing, sessions, totals, records of its topics, report figures.

Column expressions and plans that Spark compiles; no Python runs for a row.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from tidemark_spark.progress import OBSERVED

from tidemark_jobs.keys import KEY, TEXT, KeyRule, parse_key
from tidemark_jobs.sessions.report import HOUR_S, LENGTH_EDGES_S, TopUser

SESSION_SCHEMA: Final = (
    "user string, start timestamp, end timestamp, seconds long, records long, pages int,"
    " first_page string"
)
"""Schema of the JSON in the sessions topic. ``end`` is the time of the last record."""
USER_SCHEMA: Final = (
    "user string, sessions long, records long, seconds long, first_start timestamp,"
    " last_end timestamp"
)
"""Schema of the JSON in the users topic."""
_JSON_TIMES: Final = {"timeZone": "UTC", "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss'Z'"}
_TOP: Final = 10
_ASSETS: Final = r"\.(?:css|js|png|jpe?g|gif|svg|ico|webp|woff2?|ttf|eot|map)$"


@dataclass(frozen=True, slots=True)
class Format:
    """Rules (see tidemark_jobs.keys) for the user, the time and the page of a record."""

    user: KeyRule
    time: KeyRule
    page: KeyRule
    time_pattern: str = ""
    """Spark datetime pattern; '' is ISO 8601."""
    page_word: str = "page"


_OWN_KEY: Final = KeyRule("key")
FORMATS: Final[Mapping[str, Format]] = {
    "access-log": Format(
        user=_OWN_KEY,
        time=KeyRule("regex", r"\[([^\]]+)\]"),
        page=KeyRule("regex", r'"\S+ ([^ ?"]+)'),
        time_pattern="dd/MMM/yyyy:HH:mm:ss Z",
    ),
    "search-queries": Format(
        user=_OWN_KEY,
        time=parse_key("field:1"),
        page=parse_key("field:4"),
        page_word="query",
    ),
    "json": Format(user=_OWN_KEY, time=parse_key("json:time"), page=parse_key("json:page")),
}


def parse_records(frame: DataFrame, form: Format) -> DataFrame:
    """Convert rows of the source to (user, at, page); null for what a record does not contain."""
    text = frame.select(
        f.col(KEY), f.coalesce(f.col("value").cast("string"), f.lit("")).alias(TEXT)
    )
    pattern = [f.lit(form.time_pattern)] if form.time_pattern else []
    return text.select(
        _as_text(form.user).alias("user"),
        f.try_to_timestamp(_as_text(form.time), *pattern).alias("at"),
        f.coalesce(_as_text(form.page), f.lit("")).alias("page"),
    )


def _as_text(rule: KeyRule) -> Column:
    return rule.column().cast("string")


def transform(frame: DataFrame, form: Format, *, gap_s: int, late_s: int) -> DataFrame:
    """Convert rows of the source, of a batch or of a stream, to closed sessions (SESSION_SCHEMA).

    A session is closed when the watermark (the latest time seen minus ``late_s``) is ``gap_s`` past
    its end. Records without a user or a time are counted and left out.
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


# -- records of the job's topics


def totals(sessions: DataFrame) -> DataFrame:
    """Sum up sessions, of a batch or of a stream, by user (USER_SCHEMA)."""
    return sessions.groupBy("user").agg(
        f.count(f.lit(1)).alias("sessions"),
        f.sum("records").alias("records"),
        f.sum("seconds").alias("seconds"),
        f.min("start").alias("first_start"),
        f.max("end").alias("last_end"),
    )


def as_records(frame: DataFrame) -> DataFrame:
    """Convert rows with a user to rows of the sink: key is the user, value the row as JSON."""
    packed = f.to_json(f.struct(*frame.columns), dict(_JSON_TIMES))
    return frame.select(f.col("user").alias("key"), packed.alias("value"))


def from_records(frame: DataFrame, schema: str) -> DataFrame:
    """Convert rows that ``as_records`` wrote to a topic back to columns."""
    packed = f.from_json(f.col("value").cast("string"), schema, dict(_JSON_TIMES))
    return frame.select(packed.alias("row"), "partition", "offset").select(
        "row.*", "partition", "offset"
    )


# -- figures of the report


def by_hour(sessions: DataFrame) -> DataFrame:
    """Count sessions by the hour in which they started: (hour in seconds since 1970, count)."""
    hour = f.floor(f.unix_seconds("start") / f.lit(HOUR_S)).cast("long") * f.lit(HOUR_S)
    return sessions.groupBy(hour.alias("hour")).count()


def by_length(sessions: DataFrame) -> DataFrame:
    """Count sessions by the report's classes of length: (kind, count)."""
    kinds = [f.when(f.col("seconds") >= edge, 1).otherwise(0) for edge in LENGTH_EDGES_S]
    return sessions.groupBy(sum(kinds[1:], kinds[0]).alias("kind")).count()


def top_users(records: DataFrame) -> list[TopUser]:
    """Return the users with most records, from the newest record of each key."""
    rows = from_records(records, USER_SCHEMA)
    newest = rows.groupBy("user").agg(f.max_by(f.struct(*rows.columns), "offset").alias("row"))
    best = newest.select("row.*").orderBy(f.desc("records"), "user").limit(_TOP)
    return [TopUser(row["user"], row["records"], row["sessions"]) for row in best.collect()]


def top_pages(records: DataFrame, form: Format) -> list[tuple[str, int]]:
    """Return the most requested pages; parts of pages, such as pictures and styles, not counted."""
    pages = parse_records(records, form).where(
        (f.col("page") != "") & ~f.lower("page").rlike(_ASSETS)
    )
    best = pages.groupBy("page").count().orderBy(f.desc("count"), "page").limit(_TOP)
    return [(row["page"], row["count"]) for row in best.collect()]
