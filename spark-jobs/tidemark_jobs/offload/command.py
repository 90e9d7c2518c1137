"""The command line of ``offload``."""

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from tidemark.client.sync import Admin
from tidemark.runtime.clock import Clock
from tidemark_spark.errors import OptionError, TidemarkSparkError
from tidemark_spark.security import client_security

from tidemark_jobs.command import (
    DONE,
    add_kafka_properties,
    kafka_options,
    pairs_of,
    print_line,
    run_command,
    start_session,
)
from tidemark_jobs.offload.manifest import shown, to_json
from tidemark_jobs.offload.manifest_directory import ManifestDirectory
from tidemark_jobs.offload.options import Options
from tidemark_jobs.offload.parquet_files import LAYOUT_COLUMNS
from tidemark_jobs.offload.rounds import find_ends, offload
from tidemark_jobs.offload.staged_files import StagedFiles

_DESCRIPTION: Final = (
    "Copy topics into Parquet files, one task a topic partition, every record exactly once."
)
_OF_THE_JOB: Final = frozenset(
    (
        "bootstrap.servers",
        "subscribe",
        "subscribepattern",
        "assign",
        "startingoffsets",
        "startingtimestamp",
        "startingoffsetsbytimestamp",
        "endingoffsets",
        "endingtimestamp",
        "endingoffsetsbytimestamp",
        "topicids",
        "isolation.level",
        "failondataloss",
        "includeheaders",
    )
)
"""Options of the source that say what is read, in lower case. The manifest promises that a covered
range has every committed record once, so only the job sets them.
"""


class RoundFailedError(TidemarkSparkError):
    """Spark could not write a round; the manifest does not contain any of it."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code: 0 caught up, 1 failed, 2 wrong option, 130 ^C."""
    return run_command("offload", lambda: _offload(arguments))


def _offload(arguments: Sequence[str] | None) -> int:
    options, found = parse(arguments)
    if found.show or found.verify:
        return show(options, found)
    login = client_security(options.kafka)
    with Admin(options.bootstrap_servers, transport="grpc", **login) as admin:
        ends = find_ends(admin, options)
    spark = start_session("offload")
    spark.dataSource.register(StagedFiles)
    try:
        written = offload(spark, options, ends, clock=Clock())
    except (PySparkException, Py4JJavaError) as problem:
        what = str(problem).partition("\n\tat ")[0]
        raise RoundFailedError(
            f"a round failed and was discarded: {what}",
            "start the job again; it continues after the last committed version",
        ) from None
    print_line(f"caught up: {written:,} records written, {len(ends.bounds)} partitions covered")
    return DONE


def show(options: Options, found: argparse.Namespace) -> int:
    """Run ``--show`` or ``--verify``, which need neither Spark nor a cluster."""
    manifest = ManifestDirectory(options.output)
    if found.verify:
        problems = list(manifest.problems())
        print_line("\n".join(problems) or "all committed files are present and complete")
        return 1 if problems else 0
    versions = manifest.versions()
    if found.json and versions:
        sys.stdout.write(to_json(versions[-1]))
    else:
        print_line(shown(versions, with_files=found.files))
    return 0


def parse(arguments: Sequence[str] | None = None) -> tuple[Options, argparse.Namespace]:
    """Parse the command line: options, and the namespace with --show and --verify.

    Raises OptionError.
    """
    found = _parser().parse_args(arguments)
    options = Options(
        output=found.output,
        bootstrap_servers=found.bootstrap_servers,
        kafka=kafka_options(found),
        topics=tuple(filter(None, found.topics.split(","))),
        topic_pattern=found.topic_pattern,
        layout=tuple(found.layout.split(",")),
        offsets_max=found.offsets_per_round,
        rows_max=found.rows_per_file,
        compression=found.compression,
        text=found.text,
        headers=found.headers,
        skip_lost=found.skip_lost,
        source_options=pairs_of("--option", found.option),
    )
    if not (found.show or found.verify):
        _check(options)
    return options, found


def _check(options: Options) -> None:
    if not options.bootstrap_servers:
        raise OptionError(
            "--bootstrap-servers is missing", hint="give the gRPC addresses of some brokers"
        )
    if bool(options.topics) == bool(options.topic_pattern):
        raise OptionError("exactly one of --topics and --topic-pattern is required")
    unknown = [name for name in options.layout if name not in LAYOUT_COLUMNS]
    if unknown or "topic" not in options.layout:
        raise OptionError(
            f"--layout is {','.join(options.layout)}: it must contain topic, and may contain"
            f" {', '.join(LAYOUT_COLUMNS[1:])}",
            hint="--layout topic,date",
        )
    if "://" in str(options.output) or re.match(r"\w+:/", str(options.output)):
        raise OptionError(
            f"--output {options.output} is an address, not a path",
            hint="mount the file system on the driver and all workers (see docs/spark/offload.md)",
        )
    own = [name for name in options.source_options if name.lower() in _OF_THE_JOB]
    if own:
        raise OptionError(
            f"--option {own[0]} would change what is read, and the manifest would not know",
            hint="--topics, --topic-pattern, --headers and --skip-lost say what is read",
        )
    if min(options.offsets_max, options.rows_max) < 1:
        raise OptionError("--offsets-per-round and --rows-per-file must be at least 1")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="offload", description=_DESCRIPTION)
    add = parser.add_argument
    add(
        "--output",
        required=True,
        type=Path,
        help="output directory, mounted at this path by the driver and all workers",
    )
    add(
        "--bootstrap-servers",
        default="",
        metavar="HOST:PORT,...",
        help="gRPC addresses of some brokers",
    )
    add_kafka_properties(parser)
    add("--topics", default="", metavar="NAME,...", help="topics to read")
    add(
        "--topic-pattern",
        default="",
        metavar="REGEX",
        help="read all topics whose whole name matches, except internal ones",
    )
    add(
        "--layout",
        default="topic,date",
        help=f"levels of directories, from {', '.join(LAYOUT_COLUMNS)}; default: topic,date",
    )
    add(
        "--offsets-per-round",
        type=int,
        default=1_000_000,
        help="offsets of each partition between two commits; default: 1000000",
    )
    add("--rows-per-file", type=int, default=1_000_000, help="default: 1000000")
    add(
        "--compression",
        default="zstd",
        choices=["zstd", "snappy", "gzip", "lz4", "none"],
        help="default: zstd",
    )
    add("--text", action="store_true", help="store key and value as strings (UTF-8), not bytes")
    add("--headers", action="store_true", help="store the records' headers")
    add("--skip-lost", action="store_true", help="continue after offsets that retention deleted")
    add(
        "--option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="option of the source; repeatable",
    )
    add("--show", action="store_true", help="print what is covered, and read nothing")
    add("--files", action="store_true", help="with --show: list every file")
    add("--json", action="store_true", help="with --show: print the newest version as JSON")
    add("--verify", action="store_true", help="check that all committed files are complete")
    return parser
