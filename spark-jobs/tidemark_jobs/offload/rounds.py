"""The rounds of an offload: read a range of each partition, write files, commit a version."""

import json
import re
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from tidemark.client.consumer.positions import OffsetSpec
from tidemark.client.sync import Admin
from tidemark.model.topics import TopicPartition
from tidemark.runtime.clock import Clock
from tidemark_spark.errors import OptionError

from tidemark_jobs.command import print_line
from tidemark_jobs.offload.manifest import LogBounds, PlannedRange, StagedFile, plan_round
from tidemark_jobs.offload.manifest_directory import ManifestDirectory
from tidemark_jobs.offload.options import Options
from tidemark_jobs.offload.parquet_files import FileSettings
from tidemark_jobs.offload.staged_files import FORMAT_NAME, as_options, staged_by

_MS_PER_HOUR: Final = 3_600_000
_HOURS_PER_DAY: Final = 24


class Ends(NamedTuple):
    """Limits of a run: the bounds of each partition and the ids of topics when it started."""

    bounds: Mapping[TopicPartition, LogBounds]
    topic_ids: Mapping[str, str]


def transform(frame: DataFrame, layout: Sequence[str], *, text: bool = False) -> DataFrame:
    """Add the layout's columns ``date`` and ``hour``: of the record's timestamp, in UTC.

    With ``text``, key and value become strings, and the query fails on bytes that are not UTF-8.
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
    """Write each partition of the frame to files of its own in staging; return the files."""
    frame.write.format(FORMAT_NAME).options(**as_options(settings)).mode("append").save()
    return staged_by(settings)


def offload(spark: SparkSession, options: Options, ends: Ends, *, clock: Clock) -> int:
    """Run rounds until everything up to ``ends`` is covered; return the number of records.

    Raises ManifestError. Rounds that were committed remain if a task fails or the process dies.
    """
    written = 0
    run = uuid.uuid4().hex[:12]
    with ManifestDirectory(options.output, options.layout, run=run) as manifest:
        while planned := plan_round(
            manifest.newest,
            ends.bounds,
            ends.topic_ids,
            offsets_max=options.offsets_max,
            fail_on_data_loss=not options.skip_lost,
        ):
            settings = FileSettings(
                staging=str(manifest.staging.absolute()),
                layout=options.layout,
                label=f"v{manifest.newest.number + 1}",
                rows_max=options.rows_max,
                compression=options.compression,
            )
            frame = read_ranges(spark, options, planned, ends.topic_ids)
            files = write_round(transform(frame, options.layout, text=options.text), settings)
            version = manifest.commit(
                planned,
                files,
                committed_at_ms=clock.wall_ms(),
                topic_ids={each.topic: ends.topic_ids[each.topic] for each in planned},
            )
            records = sum(file.rows for _, file in files)
            written += records
            print_line(_round_line(version.number, planned, files, records))
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
    spark: SparkSession,
    options: Options,
    planned: Mapping[TopicPartition, PlannedRange],
    topic_ids: Mapping[str, str],
) -> DataFrame:
    """Read exactly the planned ranges through the source ``tidemark``, one task a partition.

    A topic that has another id by now fails the query: its offsets are not those that were planned.
    """
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
        .options(**options.kafka)
        .option("assign", json.dumps(assigned))
        .option("startingOffsets", json.dumps(starts))
        .option("endingOffsets", json.dumps(ends))
        .option("topicIds", json.dumps({topic: topic_ids[topic] for topic in assigned}))
        .option("failOnDataLoss", "true")
        .option("includeHeaders", str(options.headers).lower())
        .load()
    )


def find_ends(admin: Admin, options: Options) -> Ends:
    """Look up the selected partitions and their bounds for readers of committed records.

    Raises OptionError if no topic matches, ClientError if the cluster refuses.
    """
    names = list(options.topics) or _matching(admin.list_topics(), options.topic_pattern)
    if not names:
        raise OptionError(
            f"no topic matches {options.topic_pattern!r}",
            hint="tidemark topic list shows all topics",
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
