"""The command line of ``backfill``."""

import argparse
from collections.abc import Sequence
from typing import Final

from tidemark_spark.errors import OptionError

from tidemark_jobs.backfill.options import Options
from tidemark_jobs.backfill.query import run
from tidemark_jobs.command import (
    add_kafka_properties,
    kafka_options,
    print_line,
    run_command,
    start_session,
)
from tidemark_jobs.keys import parse_key

_DESCRIPTION: Final = (
    "Write files into a topic, every record exactly once: text (also .gz) by lines, Parquet by"
    " rows."
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code: 0 all written, 1 failed, 2 wrong option, 130 ^C."""
    return run_command("backfill", lambda: _backfill(arguments))


def _backfill(arguments: Sequence[str] | None) -> None:
    options = parse(arguments)
    run(start_session(options.sink_id), options, print_line)


def parse(arguments: Sequence[str] | None = None) -> Options:
    """Parse the command line. Raises OptionError."""
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
        raise OptionError(f"{unfit[0]} cannot be used with --format {found.format}")
    key = parse_key(found.key) if found.key else None
    if key is not None and key.kind == "key":
        raise OptionError(
            "--key key: a line of text has no key of its own", "--key field:1, or leave it out"
        )
    if found.files_per_batch < 1:
        raise OptionError("--files-per-batch must be at least 1")
    return Options(
        bootstrap_servers=found.bootstrap_servers,
        kafka=kafka_options(found),
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
    parser = argparse.ArgumentParser(prog="backfill", description=_DESCRIPTION)
    add = parser.add_argument
    add(
        "--bootstrap-servers",
        required=True,
        metavar="HOST:PORT,...",
        help="gRPC addresses of some brokers",
    )
    add_kafka_properties(parser)
    add("--path", required=True, help="file, directory or pattern, as Spark reads it")
    add("--format", default="text", choices=["text", "parquet"], help="default: text")
    add("--topic", required=True, help="topic to write; it must exist")
    add("--checkpoint", required=True, metavar="DIR", help="checkpoint directory of this backfill")
    add(
        "--key",
        metavar="RULE",
        help="text: where the key is: access-log:host, json:user.id, field:3, ...",
    )
    add(
        "--key-column",
        metavar="NAME",
        help="Parquet: column of the key; default: the column key, if there is one",
    )
    add("--json", action="store_true", help="Parquet: write the whole row as JSON")
    add(
        "--keep-partitions",
        action="store_true",
        help="Parquet: write to the partition in the column partition",
    )
    add(
        "--keep-timestamps",
        action="store_true",
        help="Parquet: take the timestamp from the column timestamp",
    )
    add("--files-per-batch", type=int, default=16, help="files in one transaction; default: 16")
    add("--sink-id", metavar="NAME", help="name of this backfill; default: backfill-TOPIC")
    add("--again", action="store_true", help="write all files again after a lost checkpoint")
    return parser
