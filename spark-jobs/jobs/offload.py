"""Topics to Parquet files, for analysis offline: one task a topic partition, every record once.

    spark-submit --py-files tidemark_spark.zip offload.py --bootstrap-servers broker-1:9292 \\
        --topics orders,clicks --output /lake/raw --layout topic,date
    offload.py --output /lake/raw --show [--files] | --verify

A run goes on where the last one ended and stops at what was committed when it began. Which offsets
are in which files is in the catalogue (tidemark_spark/catalogue.py), which a run writes after all
tasks of a round have synced their files; so it may be killed at any moment and started again.
"""

import argparse
import json
import re
import sys
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from tidemark.client.positions import OffsetSpec
from tidemark.client.sync import Admin
from tidemark.model.topics import TopicPartition
from tidemark.runtime.clock import Clock
from tidemark_spark import register
from tidemark_spark.catalogue import (
    LogBounds,
    PlannedRange,
    StagedFile,
    plan_round,
    shown,
    to_json,
)
from tidemark_spark.catalogue_directory import CatalogueDirectory
from tidemark_spark.errors import OptionError, TidemarkSparkError
from tidemark_spark.job import DONE, ended, tell
from tidemark_spark.parquet_files import LAYOUT_COLUMNS, FileSettings
from tidemark_spark.staged_files import FORMAT_NAME, StagedFiles, as_options, staged_by

_MS_PER_HOUR: Final = 3_600_000
_HOURS_PER_DAY: Final = 24


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line says."""

    output: Path
    bootstrap_servers: str = ""
    topics: tuple[str, ...] = ()
    topic_pattern: str = ""
    layout: tuple[str, ...] = ("topic", "date")
    offsets_max: int = 1_000_000
    """Of each partition in a round: so much is done again after a crash."""
    rows_max: int = 1_000_000
    compression: str = "zstd"
    text: bool = False
    headers: bool = False
    skip_lost: bool = False
    source_options: Mapping[str, str] = field(default_factory=dict)


class Ends(NamedTuple):
    """What there is to offload, as a run found it when it began."""

    bounds: Mapping[TopicPartition, LogBounds]
    topic_ids: Mapping[str, str]


def transform(frame: DataFrame, layout: Sequence[str], *, text: bool = False) -> DataFrame:
    """Add the columns that the layout needs (date, hour: UTC, of the record's timestamp); with
    ``text``, key and value become strings, and what is not UTF-8 is an error.
    """
    hours = f.floor(f.unix_millis("timestamp") / f.lit(_MS_PER_HOUR))
    if "date" in layout:
        days = f.floor(hours / f.lit(_HOURS_PER_DAY)).cast("int")
        frame = frame.withColumn("date", f.date_add(f.lit("1970-01-01"), days).cast("string"))
    if "hour" in layout:
        hour = f.pmod(hours, f.lit(_HOURS_PER_DAY)).cast("string")
        frame = frame.withColumn("hour", f.lpad(hour, 2, "0"))
    if text:
        for name in ("key", "value"):
            frame = frame.withColumn(name, f.validate_utf8(f.col(name).cast("string")))
    return frame


def write_round(frame: DataFrame, settings: FileSettings) -> list[StagedFile]:
    """Run the tasks: every partition of the frame, as it is, to files of its own."""
    frame.write.format(FORMAT_NAME).options(**as_options(settings)).mode("append").save()
    return staged_by(settings)


def offload(spark: SparkSession, options: Options, ends: Ends, *, clock: Clock) -> int:
    """Rounds until everything below ``ends`` is covered; returns how many records were written.

    Raises CatalogueError. A failed task or a killed process leaves all committed rounds.
    """
    written = 0
    run = uuid.uuid4().hex[:12]
    with CatalogueDirectory(options.output, options.layout, run=run) as catalogue:
        while planned := plan_round(
            catalogue.newest,
            ends.bounds,
            ends.topic_ids,
            offsets_max=options.offsets_max,
            fail_on_data_loss=not options.skip_lost,
        ):
            settings = FileSettings(
                staging=str(catalogue.staging.absolute()),
                layout=options.layout,
                label=f"v{catalogue.newest.number + 1}",
                rows_max=options.rows_max,
                compression=options.compression,
            )
            frame = read_ranges(spark, options, planned)
            files = write_round(transform(frame, options.layout, text=options.text), settings)
            version = catalogue.commit(
                planned,
                files,
                committed_at_ms=clock.wall_ms(),
                topic_ids={each.topic: ends.topic_ids[each.topic] for each in planned},
            )
            records = sum(file.rows for _, file in files)
            written += records
            print(_round_line(version.number, planned, files, records), flush=True)
    return written


def _round_line(
    number: int,
    planned: Mapping[TopicPartition, PlannedRange],
    files: Sequence[StagedFile],
    records: int,
) -> str:
    size = sum(file.size_bytes for _, file in files)
    ranges = [f"{partition} {plan.offsets}" for partition, plan in planned.items()]
    lost = [f"{partition} {plan.lost}" for partition, plan in planned.items() if plan.lost]
    more = f" and {len(ranges) - 4} more" if len(ranges) > 4 else ""
    line = (
        f"version {number}: {records:,} records, {len(files)} files, {size / 1e6:,.1f} MB;"
        f" {', '.join(ranges[:4])}{more}"
    )
    return f"{line}\nLOST before this version: {', '.join(lost)}" if lost else line


def read_ranges(
    spark: SparkSession, options: Options, planned: Mapping[TopicPartition, PlannedRange]
) -> DataFrame:
    """Exactly the planned ranges, through the ``tidemark`` source: a task a topic partition."""
    assigned: dict[str, list[int]] = {}
    starts: dict[str, dict[str, int]] = {}
    ends: dict[str, dict[str, int]] = {}
    for (topic, number), plan in planned.items():
        assigned.setdefault(topic, []).append(number)
        starts.setdefault(topic, {})[str(number)] = plan.offsets.start
        ends.setdefault(topic, {})[str(number)] = plan.offsets.end
    return (
        spark.read.format("tidemark")
        .options(**options.source_options)
        .option("bootstrap.servers", options.bootstrap_servers)
        .option("assign", json.dumps(assigned))
        .option("startingOffsets", json.dumps(starts))
        .option("endingOffsets", json.dumps(ends))
        .option("failOnDataLoss", "true")
        .option("includeHeaders", str(options.headers).lower())
        .load()
    )


def find_ends(admin: Admin, options: Options) -> Ends:
    """The partitions that the options name, with their bounds for readers of committed records.

    Raises OptionError when nothing is named so, ClientError when the cluster refuses.
    """
    names = list(options.topics) or _matching(admin.list_topics(), options.topic_pattern)
    if not names:
        raise OptionError(
            f"no topic matches {options.topic_pattern!r}", hint="tidemark topic list shows all"
        )
    topics = admin.describe_topics(names)
    partitions = [
        TopicPartition(topic, each.partition)
        for topic, described in topics.items()
        for each in described.partitions
    ]
    starts = admin.list_offsets(dict.fromkeys(partitions, OffsetSpec.EARLIEST))
    ends = admin.list_offsets(dict.fromkeys(partitions, OffsetSpec.LATEST), read_committed=True)
    return Ends(
        {each: LogBounds(starts[each].offset, ends[each].offset) for each in partitions},
        {topic: described.topic_id.hex() for topic, described in topics.items()},
    )


def _matching(names: Iterable[str], pattern: str) -> list[str]:
    return [name for name in names if re.fullmatch(pattern, name)]


# ---- the command


def parse(arguments: Sequence[str] | None = None) -> tuple[Options, argparse.Namespace]:
    """Options, and the rest of the command line. Raises OptionError."""
    parser = argparse.ArgumentParser(prog="offload", description=(__doc__ or "").splitlines()[0])
    add = parser.add_argument
    add("--output", required=True, type=Path, help="directory that driver and workers mount")
    add("--bootstrap-servers", default="", metavar="HOST:PORT,...", help="brokers, gRPC")
    add("--topics", default="", metavar="NAME,...")
    add("--topic-pattern", default="", metavar="REGEX", help="whole names; not internal topics")
    add("--layout", default="topic,date", help=f"directories, of {', '.join(LAYOUT_COLUMNS)}")
    add("--offsets-per-round", type=int, default=1_000_000, help="of a partition, then a commit")
    add("--rows-per-file", type=int, default=1_000_000)
    add("--compression", default="zstd", choices=["zstd", "snappy", "gzip", "lz4", "none"])
    add("--text", action="store_true", help="key and value as strings (UTF-8) and not as bytes")
    add("--headers", action="store_true", help="with the records' headers")
    add("--skip-lost", action="store_true", help="go on after offsets that retention deleted")
    add("--option", action="append", default=[], metavar="NAME=VALUE", help="of the source")
    add("--show", action="store_true", help="print what is covered, and do nothing")
    add("--files", action="store_true", help="with --show: each file")
    add("--json", action="store_true", help="with --show: the newest version, as it is written")
    add("--verify", action="store_true", help="check that every committed file is there, whole")
    found = parser.parse_args(arguments)
    options = Options(
        output=found.output,
        bootstrap_servers=found.bootstrap_servers,
        topics=tuple(filter(None, found.topics.split(","))),
        topic_pattern=found.topic_pattern,
        layout=tuple(found.layout.split(",")),
        offsets_max=found.offsets_per_round,
        rows_max=found.rows_per_file,
        compression=found.compression,
        text=found.text,
        headers=found.headers,
        skip_lost=found.skip_lost,
        source_options=_named(found.option),
    )
    if not (found.show or found.verify):
        _check(options)
    return options, found


def _named(pairs: Iterable[str]) -> dict[str, str]:
    wrong = [pair for pair in pairs if "=" not in pair]
    if wrong:
        raise OptionError(f"--option {wrong[0]} is not NAME=VALUE")
    return dict(pair.split("=", 1) for pair in pairs)


def _check(options: Options) -> None:
    if not options.bootstrap_servers:
        raise OptionError("--bootstrap-servers is missing", hint="gRPC addresses of brokers")
    if bool(options.topics) == bool(options.topic_pattern):
        raise OptionError("one of --topics and --topic-pattern is needed, and not both")
    unknown = [name for name in options.layout if name not in LAYOUT_COLUMNS]
    if unknown or "topic" not in options.layout:
        raise OptionError(
            f"--layout {','.join(options.layout)}: it must name topic, and nothing but"
            f" {', '.join(LAYOUT_COLUMNS)}",
            hint="--layout topic,date",
        )
    if "://" in str(options.output) or re.match(r"\w+:/", str(options.output)):
        raise OptionError(
            f"--output {options.output} is not a path",
            hint="mount the file system on the driver and all workers (see docs/spark/offload.md)",
        )
    if min(options.offsets_max, options.rows_max) < 1:
        raise OptionError("--offsets-per-round and --rows-per-file must be above zero")


def show(options: Options, found: argparse.Namespace) -> int:
    """``--show`` and ``--verify``: need neither Spark nor a cluster."""
    catalogue = CatalogueDirectory(options.output)
    if found.verify:
        problems = list(catalogue.problems())
        print("\n".join(problems) or "every committed file is there, whole")
        return 1 if problems else 0
    versions = catalogue.versions()
    if found.json and versions:
        print(to_json(versions[-1]), end="")
    else:
        print(shown(versions, with_files=found.files))
    return 0


class RoundFailedError(TidemarkSparkError):
    """Spark could not write a round; nothing of it is in the catalogue."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit code: 0 when all is covered, 1 for what went wrong, 2 for a wrong option."""
    return ended("offload", lambda: _offload(arguments))


def _offload(arguments: Sequence[str] | None) -> int:
    options, found = parse(arguments)
    if found.show or found.verify:
        return show(options, found)
    with Admin(options.bootstrap_servers, transport="grpc") as admin:
        ends = find_ends(admin, options)
    spark = SparkSession.builder.appName("tidemark-offload").getOrCreate()
    register(spark)
    spark.dataSource.register(StagedFiles)
    try:
        written = offload(spark, options, ends, clock=Clock())
    except (PySparkException, Py4JJavaError) as problem:
        what = str(problem).partition("\n\tat ")[0]
        raise RoundFailedError(
            f"a round failed, and counts for nothing: {what}",
            "start it again, it goes on after the last version",
        ) from None
    tell(f"caught up: {written:,} records written, {len(ends.bounds)} partitions covered")
    return DONE


if __name__ == "__main__":
    sys.exit(main())
