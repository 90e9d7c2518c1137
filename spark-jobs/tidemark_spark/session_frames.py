"""The sessions job's columns: where they are in a record, how results travel, what a report asks.

All are column expressions and plans that Spark compiles: no Python runs for a row.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from tidemark_spark.keys import KEY, TEXT, KeyRule, parse_key
from tidemark_spark.report import HOUR_S, LENGTH_EDGES_S, TopUser

SESSION_SCHEMA: Final = (
    "user string, start timestamp, end timestamp, seconds long, records long, pages int,"
    " first_page string"
)
"""Of the JSON in the sessions topic. ``end``: the last record's time."""
USER_SCHEMA: Final = (
    "user string, sessions long, records long, seconds long, first_start timestamp,"
    " last_end timestamp"
)
"""Of the JSON in the users topic."""
_JSON_TIMES: Final = {"timeZone": "UTC", "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss'Z'"}
_TOP: Final = 10
_ASSETS: Final = r"\.(?:css|js|png|jpe?g|gif|svg|ico|webp|woff2?|ttf|eot|map)$"


@dataclass(frozen=True, slots=True)
class Format:
    """Where in a record the user, the time and the page are: rules as tidemark_spark.keys has."""

    user: KeyRule
    time: KeyRule
    page: KeyRule
    time_pattern: str = ""
    """Spark's datetime pattern; '' is ISO 8601."""
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
    """Rows of the source to (user, at, page); null where a record does not say."""
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


# ---- results as records of a topic


def totals(sessions: DataFrame) -> DataFrame:
    """Sessions (batch or stream) to what each user came to, of USER_SCHEMA."""
    return sessions.groupBy("user").agg(
        f.count(f.lit(1)).alias("sessions"),
        f.sum("records").alias("records"),
        f.sum("seconds").alias("seconds"),
        f.min("start").alias("first_start"),
        f.max("end").alias("last_end"),
    )


def as_records(frame: DataFrame) -> DataFrame:
    """Rows with a user to rows of the sink: the user is the key, all of it the JSON value."""
    packed = f.to_json(f.struct(*frame.columns), dict(_JSON_TIMES))
    return frame.select(f.col("user").alias("key"), packed.alias("value"))


def from_records(frame: DataFrame, schema: str) -> DataFrame:
    """Rows of a topic of ours back to columns."""
    packed = f.from_json(f.col("value").cast("string"), schema, dict(_JSON_TIMES))
    return frame.select(packed.alias("row"), "partition", "offset").select(
        "row.*", "partition", "offset"
    )


# ---- what a report asks


def by_hour(sessions: DataFrame) -> DataFrame:
    """Sessions by the hour in which they began: (hour, count), seconds since 1970."""
    hour = f.floor(f.unix_seconds("start") / f.lit(HOUR_S)).cast("long") * f.lit(HOUR_S)
    return sessions.groupBy(hour.alias("hour")).count()


def by_length(sessions: DataFrame) -> DataFrame:
    """Sessions in each class of the report: (kind, count)."""
    kinds = [f.when(f.col("seconds") >= edge, 1).otherwise(0) for edge in LENGTH_EDGES_S]
    return sessions.groupBy(sum(kinds[1:], kinds[0]).alias("kind")).count()


def top_users(records: DataFrame) -> list[TopUser]:
    """Of the users topic's records the newest of each key, those with most records."""
    rows = from_records(records, USER_SCHEMA)
    newest = rows.groupBy("user").agg(f.max_by(f.struct(*rows.columns), "offset").alias("row"))
    best = newest.select("row.*").orderBy(f.desc("records"), "user").limit(_TOP)
    return [TopUser(row["user"], row["records"], row["sessions"]) for row in best.collect()]


def top_pages(records: DataFrame, form: Format) -> list[tuple[str, int]]:
    """What the source's records ask for most; not what pages are made of (pictures, styles)."""
    pages = parse_records(records, form).where(
        (f.col("page") != "") & ~f.lower("page").rlike(_ASSETS)
    )
    best = pages.groupBy("page").count().orderBy(f.desc("count"), "page").limit(_TOP)
    return [(row["page"], row["count"]) for row in best.collect()]
