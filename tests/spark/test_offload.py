"""Topics to Parquet: every record once, whatever dies in between."""

import asyncio
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from e2e.clusters import Cluster
from manual_clock import ManualClock
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType
from spark.spark_records import create, numbered, produce, with_admin
from tidemark.client import TransactionalProducer
from tidemark.client.sync import Admin
from tidemark.model.topics import TopicPartition
from tidemark_jobs.offload.command import main
from tidemark_jobs.offload.manifest import ManifestError, OffsetRange, plan_round
from tidemark_jobs.offload.manifest_directory import ManifestDirectory
from tidemark_jobs.offload.options import Options
from tidemark_jobs.offload.rounds import Ends, find_ends, offload, read_ranges
from tidemark_jobs.offload.staged_files import (
    FilesMessage,
    StagedFiles,
    StagedFilesWriter,
    from_options,
)

NOON_MS = 1_772_366_400_000
"""2026-03-01T12:00:00Z."""
DAY_MS = 86_400_000


def options_for(cluster: Cluster, output: Path, *topics: str, **settings: Any) -> Options:
    return Options(
        output=output, bootstrap_servers=cluster.grpc(), topics=tuple(topics), **settings
    )


def run(spark: SparkSession, options: Options, *, writing: type[StagedFiles] = StagedFiles) -> int:
    spark.dataSource.register(writing)
    with Admin(options.bootstrap_servers, transport="grpc") as admin:
        ends: Ends = find_ends(admin, options)
    return offload(spark, options, ends, clock=ManualClock())


def offloaded(spark: SparkSession, output: Path) -> DataFrame:
    """What any reader of the directory finds, who knows nothing of the manifest."""
    return spark.read.parquet(str(output))


def values(spark: SparkSession, output: Path) -> list[bytes]:
    return sorted(bytes(row.value) for row in offloaded(spark, output).select("value").collect())


def committed_files(output: Path) -> list[Path]:
    return sorted(output.glob("topic=*/**/*.parquet"))


@pytest.mark.feature("D07")
def test_every_record_is_in_one_file(
    spark: SparkSession, cluster: Cluster, topic_name: Callable[[str], str], tmp_path: Path
) -> None:
    topic = create(cluster, topic_name("orders"), 3)
    for partition in range(3):
        produce(cluster, topic, numbered(50, 100 * partition), partition=partition)
    assert run(spark, options_for(cluster, tmp_path, topic)) == 150
    rows = offloaded(spark, tmp_path).select("partition", "offset", "value").collect()
    found = sorted((row.partition, row.offset, bytes(row.value)) for row in rows)
    assert found == [(p, n, b"%d" % (100 * p + n)) for p in range(3) for n in range(50)]


@pytest.mark.feature("D07")
def test_a_run_goes_on_where_the_last_one_ended(
    spark: SparkSession, cluster: Cluster, topic_name: Callable[[str], str], tmp_path: Path
) -> None:
    topic = create(cluster, topic_name("orders"), 1)
    options = options_for(cluster, tmp_path, topic)
    produce(cluster, topic, numbered(30))
    first = run(spark, options)
    idle = run(spark, options)
    produce(cluster, topic, numbered(20, 30))
    with_admin(cluster, lambda admin: admin.create_partitions({topic: 2}))
    produce(cluster, topic, numbered(5, 50), partition=1)
    assert (first, idle, run(spark, options)) == (30, 0, 25)
    assert values(spark, tmp_path) == sorted(numbered(55))


@pytest.mark.feature("D07")
def test_one_task_reads_one_topic_partition(
    spark: SparkSession, cluster: Cluster, topic_name: Callable[[str], str], tmp_path: Path
) -> None:
    topic = create(cluster, topic_name("orders"), 4)
    for partition in range(4):
        produce(cluster, topic, numbered(3), partition=partition)
    options = options_for(cluster, tmp_path, topic)
    with Admin(options.bootstrap_servers, transport="grpc") as admin:
        ends = find_ends(admin, options)
    planned = plan_round(
        ManifestDirectory(tmp_path).latest(), ends.bounds, ends.topic_ids, offsets_max=100
    )
    frame = read_ranges(spark, options, planned, ends.topic_ids)
    partitions = frame.rdd.glom().map(lambda rows: {row.partition for row in rows}).collect()
    assert sorted(partitions, key=str) == [{0}, {1}, {2}, {3}]


def test_a_topic_that_is_made_again_in_the_middle_of_a_run_is_an_error(
    spark: SparkSession, cluster: Cluster, topic_name: Callable[[str], str], tmp_path: Path
) -> None:
    topic = create(cluster, topic_name("orders"), 1)
    produce(cluster, topic, numbered(3))
    options = options_for(cluster, tmp_path, topic)
    with Admin(options.bootstrap_servers, transport="grpc") as admin:
        ends = find_ends(admin, options)
    with_admin(cluster, lambda admin: admin.delete_topics([topic]))
    create(cluster, topic, 1)
    produce(cluster, topic, numbered(9))
    spark.dataSource.register(StagedFiles)
    with pytest.raises(PySparkException, match="was deleted and created again"):
        offload(spark, options, ends, clock=ManualClock())
    assert ManifestDirectory(tmp_path).versions() == []


@pytest.mark.feature("D07")
def test_a_task_killed_in_the_middle_leaves_nothing_and_begins_anew(
    spark: SparkSession,
    cluster: Cluster,
    topic_name: Callable[[str], str],
    tmp_path: Path,
) -> None:
    topic = create(cluster, topic_name("orders"), 2)
    for partition in range(2):
        produce(cluster, topic, numbered(40, 100 * partition), partition=partition)
    options = options_for(cluster, tmp_path, topic, offsets_max=20)
    with pytest.raises((PySparkException, Py4JJavaError)):
        run(spark, options, writing=DeadlyFiles)
    half = values(spark, options.output)
    run(spark, options)
    assert half == sorted([*numbered(20), *numbered(20, 100)])
    assert values(spark, options.output) == sorted([*numbered(40), *numbered(40, 100)])


class DeadlyWriter(StagedFilesWriter):
    """The worker is killed after it wrote and synced its rows, in all rounds but the first."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> FilesMessage:
        written = super().write(iterator)
        if self.settings.label != "v1":
            os.kill(os.getpid(), signal.SIGKILL)
        return written


class DeadlyFiles(StagedFiles):
    def writer(self, schema: StructType, overwrite: bool) -> DeadlyWriter:
        return DeadlyWriter(from_options(self.options))


def test_transactions_and_compaction_leave_gaps_that_are_covered(
    spark: SparkSession, cluster: Cluster, topic_name: Callable[[str], str], tmp_path: Path
) -> None:
    topic = create(cluster, topic_name("orders"), 1)
    asyncio.run(two_transactions(cluster, topic))
    assert run(spark, options_for(cluster, tmp_path, topic)) == 2
    assert values(spark, tmp_path) == [b"kept-0", b"kept-1"]
    ((_, ranges),) = ManifestDirectory(tmp_path).latest().covered.items()
    assert ranges == (OffsetRange(0, 6),)


async def two_transactions(cluster: Cluster, topic: str) -> None:
    """One aborted, one committed: two records and a marker each."""
    async with TransactionalProducer(cluster.bootstrap, transactional_id=topic) as producer:
        await producer.init()
        for word, end in (("lost", producer.abort), ("kept", producer.commit)):
            await producer.begin()
            for number in range(2):
                await producer.send(topic, f"{word}-{number}".encode(), partition=0)
            await end()


def test_directories_are_by_topic_and_date(
    spark: SparkSession, cluster: Cluster, topic_name: Callable[[str], str], tmp_path: Path
) -> None:
    topic = create(cluster, topic_name("orders"), 1, retention_ms="-1")
    produce(cluster, topic, [b"first"], timestamp_ms=NOON_MS)
    produce(cluster, topic, [b"next"], timestamp_ms=NOON_MS + DAY_MS)
    run(spark, options_for(cluster, tmp_path, topic))
    names = [str(each.parent.relative_to(tmp_path)) for each in committed_files(tmp_path)]
    assert names == [f"topic={topic}/date=2026-03-01", f"topic={topic}/date=2026-03-02"]
    found = offloaded(spark, tmp_path).where("date = DATE'2026-03-02'").collect()
    assert [bytes(row.value) for row in found] == [b"next"]


def test_text_and_headers_are_kept(
    spark: SparkSession, cluster: Cluster, topic_name: Callable[[str], str], tmp_path: Path
) -> None:
    topic = create(cluster, topic_name("orders"), 1, retention_ms="-1")
    produce(cluster, topic, [b"tea"], key=b"k", headers=(("h", b"1"),), timestamp_ms=NOON_MS)
    layout = ("topic", "hour", "partition")
    run(spark, options_for(cluster, tmp_path, topic, text=True, headers=True, layout=layout))
    (path,) = committed_files(tmp_path)
    assert path.parent.name == "partition=0"
    assert path.parent.parent.name == "hour=12"
    (row,) = pq.ParquetFile(path).read().to_pylist()
    assert (row["key"], row["value"], row["headers"]) == ("k", "tea", [{"key": "h", "value": b"1"}])


def test_an_empty_topic_makes_no_version(
    spark: SparkSession, cluster: Cluster, topic_name: Callable[[str], str], tmp_path: Path
) -> None:
    topic = create(cluster, topic_name("orders"), 2)
    assert run(spark, options_for(cluster, tmp_path, topic)) == 0
    assert ManifestDirectory(tmp_path).versions() == []


def test_deleted_offsets_are_an_error_or_a_gap_that_shows(
    spark: SparkSession,
    cluster: Cluster,
    topic_name: Callable[[str], str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    topic = create(cluster, topic_name("orders"), 1)
    produce(cluster, topic, numbered(10))
    options = options_for(cluster, tmp_path, topic)
    run(spark, options)
    produce(cluster, topic, numbered(10, 10))
    deleted = {TopicPartition(topic, 0): 15}
    with_admin(cluster, lambda admin: admin.delete_records(deleted))
    with pytest.raises(ManifestError, match=r"offsets \[10, 15\) were deleted"):
        run(spark, options)
    assert run(spark, options_for(cluster, tmp_path, topic, skip_lost=True)) == 5
    assert "LOST before this version" in capsys.readouterr().out
    assert main(["--output", str(tmp_path), "--show"]) == 0
    assert "[0, 10) [15, 20)" in capsys.readouterr().out


def test_the_command_says_what_it_did(
    spark: SparkSession,
    cluster: Cluster,
    topic_name: Callable[[str], str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    topic = create(cluster, topic_name("orders"), 1)
    produce(cluster, topic, numbered(7))
    common = ["--output", str(tmp_path), "--bootstrap-servers", cluster.grpc()]
    assert main([*common, "--topic-pattern", topic, "--offsets-per-round", "4"]) == 0
    assert "caught up: 7 records written, 1 partitions covered" in capsys.readouterr().out
    assert main(["--output", str(tmp_path), "--verify"]) == 0
