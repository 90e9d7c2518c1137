"""The command line of ``sessions``."""

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from tidemark_spark.errors import OptionError

from tidemark_jobs.command import (
    add_kafka_properties,
    kafka_options,
    pairs_of,
    print_line,
    run_command,
    start_session,
)
from tidemark_jobs.keys import parse_key
from tidemark_jobs.sessions.figures import collect_report, write_report
from tidemark_jobs.sessions.frames import FORMATS
from tidemark_jobs.sessions.options import Options
from tidemark_jobs.sessions.queries import run

_DESCRIPTION: Final = "Compute user sessions and totals per user from a topic keyed by user."


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code: 0 caught up, 1 failed, 2 wrong option, 130 ^C."""
    return run_command("sessions", lambda: _sessions(arguments))


def _sessions(arguments: Sequence[str] | None) -> None:
    options = parse(arguments)
    spark = start_session(options.name)
    late = 0 if options.report_only else run(spark, options, print_line)
    if options.report is not None:
        write_report(options.report, collect_report(spark, options, late=late))
        print_line(f"report: {options.report.absolute()}")


def parse(arguments: Sequence[str] | None = None) -> Options:
    """Parse the command line. Raises OptionError."""
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
    _check(found)
    return Options(
        bootstrap_servers=found.bootstrap_servers,
        kafka=kafka_options(found),
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


def _check(found: argparse.Namespace) -> None:
    if found.gap < 1 or found.late < 0:
        raise OptionError(
            "--gap must be at least 1 and --late at least 0", "give both in whole seconds"
        )
    if not (found.checkpoint or found.report_only):
        raise OptionError("--checkpoint is missing", "give a directory used by this job only")
    if found.report_only and found.report is None:
        raise OptionError("--report-only needs --report", "--report sessions.html")
    if found.report is not None and not (found.available_now or found.report_only):
        raise OptionError(
            "--report is written when the job ends, and without --available-now it never ends",
            "run the job a second time with --report-only, as often as needed",
        )


def _source_options(found: argparse.Namespace) -> dict[str, str]:
    options = pairs_of("--source-option", found.source_option)
    if found.max_offsets_per_trigger is not None:
        options["maxOffsetsPerTrigger"] = str(found.max_offsets_per_trigger)
    return options


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="sessions", description=_DESCRIPTION)
    _add_inputs(parser)
    add = parser.add_argument
    add("--checkpoint", metavar="DIR", help="checkpoint directory of this job")
    add(
        "--sessions-topic",
        metavar="TOPIC",
        help="topic for closed sessions; default: SOURCE.sessions",
    )
    add(
        "--users-topic",
        metavar="TOPIC",
        help="compacted topic for totals per user; default: SOURCE.users",
    )
    add("--name", metavar="NAME", help="name of queries and sinks; default: sessions-SOURCE")
    add(
        "--gap",
        type=int,
        default=1_800,
        metavar="SECONDS",
        help="silence after which a session ends; default: 1800",
    )
    add(
        "--late",
        type=int,
        default=600,
        metavar="SECONDS",
        help="how late a record may arrive; default: 600",
    )
    add("--available-now", action="store_true", help="stop after all records present at start")
    add(
        "--max-offsets-per-trigger",
        type=int,
        metavar="COUNT",
        help="maximum number of offsets in a batch",
    )
    add(
        "--tasks",
        type=int,
        metavar="COUNT",
        help="number of tasks that hold state; fixed by the first run of a checkpoint",
    )
    add("--report", type=Path, metavar="FILE", help="write an HTML page when the job ends")
    add(
        "--report-only",
        action="store_true",
        help="write the report from what the topics hold, and run no query",
    )
    add("--title", default="", help="title of the report")
    return parser


def _add_inputs(parser: argparse.ArgumentParser) -> None:
    """Add the options for the source and the format of its records."""
    add = parser.add_argument
    add(
        "--bootstrap-servers",
        required=True,
        metavar="HOST:PORT,...",
        help="gRPC addresses of some brokers",
    )
    add_kafka_properties(parser)
    add(
        "--source",
        required=True,
        metavar="TOPIC",
        help="topic to read, keyed by user (such as the target of reshard)",
    )
    add(
        "--format",
        default="access-log",
        choices=list(FORMATS),
        help="format of the records; default: access-log",
    )
    add("--user", metavar="RULE", help="where the user is, if not in the key: field:3, json:id")
    add("--time", metavar="RULE", help="where the time is")
    add(
        "--time-pattern",
        metavar="PATTERN",
        help="format of the time, as in Spark's datetime patterns; '' is ISO 8601",
    )
    add("--page", metavar="RULE", help="where the page (or whatever is requested) is")
    add(
        "--source-option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="option of the source; repeatable",
    )
