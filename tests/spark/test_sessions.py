"""Sessions of users: what the job makes of records, exactly once, and the page it draws."""

import json
import uuid
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from e2e.clusters import Cluster
from pyspark.sql import SparkSession
from search_queries import search_queries
from spark.spark_records import create, produce, reader
from tidemark.client.sync import Admin
from tidemark_jobs.sessions.command import main, parse
from tidemark_jobs.sessions.frames import FORMATS, parse_records, transform
from tidemark_jobs.sessions.options import Options
from tidemark_jobs.sessions.queries import make_topics, run, start_sessions, start_users
from tidemark_spark.errors import OptionError

START = datetime(2026, 3, 1, 12, tzinfo=UTC)


def line(user: str, minutes: float, page: str = "/") -> bytes:
    """A line of an access log."""
    at = START + timedelta(minutes=minutes)
    return f'{user} - - [{at:%d/%b/%Y:%H:%M:%S +0000}] "GET {page} HTTP/1.1" 200 5'.encode()


def options_for(cluster: Cluster, source: str, tmp_path: Path, *more: str) -> Options:
    return parse(
        [
            *("--bootstrap-servers", cluster.grpc(), "--source", source, "--available-now"),
            *("--checkpoint", str(tmp_path / "checkpoint"), "--late", "60", *more),
        ]
    )


def feed(cluster: Cluster, topic: str, lines: Iterable[bytes]) -> None:
    by_user: dict[bytes, list[bytes]] = {}
    for each in lines:
        by_user.setdefault(each.split(b" ")[0], []).append(each)
    for user, theirs in by_user.items():
        produce(cluster, topic, theirs, key=user, partition=user[-1] % 2)


def values(spark: SparkSession, cluster: Cluster, topic: str) -> list[dict[str, Any]]:
    """Every record of a topic, in the order of its partitions."""
    rows = reader(spark, cluster, topic).load().orderBy("partition", "offset").collect()
    return [json.loads(row.value) for row in rows]


def newest(rows: Iterable[dict[str, Any]]) -> dict[str, tuple[int, int]]:
    """What a compacted topic of users comes to: sessions and records by user."""
    return {row["user"]: (row["sessions"], row["records"]) for row in rows}


class Counted(NamedTuple):
    """What the job came to, after records came twice, and a batch of each query came again."""

    options: Options
    first_users: list[dict[str, Any]]
    sessions: list[dict[str, Any]]
    users: list[dict[str, Any]]


@pytest.fixture(scope="module")
def counted(
    spark: SparkSession, cluster: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> Counted:
    topic = create(cluster, f"access-{uuid.uuid4().hex[:8]}", 2)
    options = options_for(cluster, topic, tmp_path_factory.mktemp("sessions"))
    feed(cluster, topic, [line("u1", 0, "/a"), line("u1", 5, "/b"), line("u2", 6), line("u1", 90)])
    feed(cluster, topic, [line("end", 600)])
    run(spark, options, print)
    first = values(spark, cluster, options.users_topic)
    forget_last_commit(options, "sessions", "users")
    feed(cluster, topic, [line("u2", 601), line("end", 900)])
    run(spark, options, print)
    return Counted(
        options,
        first,
        values(spark, cluster, options.sessions_topic),
        values(spark, cluster, options.users_topic),
    )


def forget_last_commit(options: Options, *queries: str) -> None:
    """As if the driver had died after the sink's commit, before Spark noted its own."""
    for query in queries:
        commits = Path(options.checkpoint) / query / "commits"
        last = max(int(each.name) for each in commits.iterdir() if each.name.isdecimal())
        (commits / str(last)).unlink()
        (commits / f".{last}.crc").unlink(missing_ok=True)


@pytest.mark.feature("R09")
def test_sessions_are_cut_where_users_are_silent_and_written_once(counted: Counted) -> None:
    shapes = sorted((row["user"], row["records"], row["seconds"]) for row in counted.sessions)
    assert shapes == [("end", 1, 0), ("u1", 1, 0), ("u1", 2, 300), ("u2", 1, 0), ("u2", 1, 0)]


@pytest.mark.feature("R09")
def test_a_session_says_what_it_was(counted: Counted) -> None:
    (one,) = [row for row in counted.sessions if row["seconds"] == 300]
    assert (one["pages"], one["first_page"], one["start"]) == (2, "/a", "2026-03-01T12:00:00Z")


@pytest.mark.feature("R09")
def test_the_users_topic_keeps_what_each_user_came_to(counted: Counted) -> None:
    assert newest(counted.first_users) == {"u1": (2, 3), "u2": (1, 1)}
    assert newest(counted.users) == {"u1": (2, 3), "u2": (2, 2), "end": (1, 1)}


@pytest.mark.feature("R09")
def test_a_batch_of_users_that_came_again_was_written_once(counted: Counted) -> None:
    assert sorted(row["user"] for row in counted.users) == ["end", "u1", "u2", "u2"]


@pytest.mark.feature("R09")
def test_the_report_is_drawn_from_the_topics(
    counted: Counted, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "sessions.html"
    command = ["--bootstrap-servers", counted.options.bootstrap_servers, "--report-only"]
    command += ["--source", counted.options.source, "--report", str(page), "--title", "Who came"]
    assert main(command) == 0
    assert f"report: {page}" in capsys.readouterr().out
    text = page.read_text()
    shown = ["<h1>Who came</h1>", "<b>5</b><span>sessions</span>", ">u1</text>", ">/b</text>"]
    assert [each for each in shown if each not in text] == []


@pytest.mark.feature("R09")
def test_both_queries_run_side_by_side(
    spark: SparkSession, cluster: Cluster, topic_name: Callable[[str], str], tmp_path: Path
) -> None:
    topic = create(cluster, topic_name("access"), 1)
    options = replace(options_for(cluster, topic, tmp_path, "--tasks", "1"), available_now=False)
    with Admin(cluster.grpc(), transport="grpc") as admin:
        make_topics(admin, options, print)
    with ExitStack() as ending:
        queries = [start(spark, options) for start in (start_sessions, start_users)]
        for query in queries:
            ending.callback(query.stop)
        produce(cluster, topic, [line("u1", 0), line("end", 600)], key=b"u1")
        produce(cluster, topic, [line("end", 601)], key=b"end")
        for query in queries:
            query.processAllAvailable()
    assert newest(values(spark, cluster, options.users_topic)) == {"u1": (1, 1)}


def test_every_format_finds_user_time_and_page(spark: SparkSession) -> None:
    (query,) = search_queries(1, seed=7)
    found = {}
    for name, value in (
        ("access-log", line("ip", 0, "/a?b=c")),
        ("search-queries", query.encode()),
        ("json", b'{"time": "2026-03-01T12:00:00Z", "page": "/a"}'),
    ):
        frame = spark.createDataFrame([(b"u", value)], "key binary, value binary")
        (row,) = parse_records(frame, FORMATS[name]).collect()
        found[name] = (row.user, row.at is not None, row.page)
    assert found == {
        "access-log": ("u", True, "/a"),
        "search-queries": ("u", True, query.split("\t")[3]),
        "json": ("u", True, "/a"),
    }


def test_what_is_not_understood_is_counted_and_left_out(
    spark: SparkSession,
) -> None:
    rows = [(b"u", b"no log line"), (None, line("u", 0)), (b"u", line("u", 1)), (b"u", None)]
    frame = spark.createDataFrame(rows, "key binary, value binary")
    cut = transform(frame, FORMATS["access-log"], gap_s=60, late_s=0)
    assert [(row.user, row.records) for row in cut.collect()] == [("u", 1)]


def test_a_users_topic_that_would_forget_is_refused(
    cluster: Cluster, topic_name: Callable[[str], str], tmp_path: Path
) -> None:
    topic = create(cluster, topic_name("access"), 1)
    users = create(cluster, topic_name("users"), 1)
    options = options_for(cluster, topic, tmp_path, "--users-topic", users)
    with (
        Admin(cluster.grpc(), transport="grpc") as admin,
        pytest.raises(OptionError, match=r"cleanup\.policy=delete"),
    ):
        make_topics(admin, options, print)


@pytest.mark.parametrize(
    ("more", "what"),
    [
        (["--gap", "0"], "--gap must be at least 1"),
        (["--report", "r.html"], "without --available-now"),
        (["--report-only"], "--report-only needs --report"),
        (["--user", "nonsense:1"], "no key rule"),
    ],
)
def test_wrong_options_are_said(more: list[str], what: str) -> None:
    with pytest.raises(OptionError, match=what):
        parse(["--bootstrap-servers", "h:1", "--source", "s", "--checkpoint", "c", *more])
