"""Rows of the source to rows of the sink: nothing lost, one task a partition, in order."""

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from zlib import crc32

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as sf
from spark.conftest import configured
from tidemark.codec.murmur2 import partition_for_key
from tidemark_jobs.keys import parse_key
from tidemark_jobs.reshard.partitioners import parse_partitioner
from tidemark_jobs.reshard.plan import (
    DIRECTORY,
    DeadLetters,
    Plan,
    has_batches,
    plan_to_json,
    read_plan,
    settle_query_id,
    write_plan,
)
from tidemark_jobs.reshard.transform import transform, transform_in_place

PLAN = Plan(
    target="by-user",
    partitions=6,
    key=parse_key("field:1:,"),
    partitioner=parse_partitioner("crc32"),
)
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
EAGER = {
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.adaptive.coalescePartitions.enabled": "true",
    "spark.sql.adaptive.coalescePartitions.parallelismFirst": "false",
    "spark.sql.adaptive.coalescePartitions.minPartitionSize": "1",
    "spark.sql.adaptive.skewJoin.enabled": "true",
    "spark.sql.adaptive.forceOptimizeSkewedJoin": "true",
    "spark.sql.adaptive.skewJoin.skewedPartitionFactor": "1",
    "spark.sql.adaptive.skewJoin.skewedPartitionThresholdInBytes": "1",
    "spark.sql.adaptive.optimizeSkewsInRebalancePartitions.enabled": "true",
    "spark.sql.adaptive.rebalancePartitionsSmallPartitionFactor": "0.9",
    "spark.sql.adaptive.localShuffleReader.enabled": "true",
}
"""Adaptive execution that takes every partition for a skewed one."""


@pytest.fixture(params=["1KB", "1MB"], ids=["splits", "merges"])
def eager(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[SparkSession]:
    wanted = {**EAGER, "spark.sql.adaptive.advisoryPartitionSizeInBytes": request.param}
    with configured(spark, wanted):
        yield spark


def frame_of(spark: SparkSession, values: list[bytes], *, partitions: int = 3) -> DataFrame:
    """The values dealt round to source partitions, in two slices that mix them."""
    count = len(values)
    table = pa.table(
        {
            "key": pa.array([None] * count, pa.binary()),
            "value": pa.array(values, pa.binary()),
            "topic": ["by-server"] * count,
            "partition": pa.array([n % partitions for n in range(count)], pa.int32()),
            "offset": pa.array([n // partitions for n in range(count)], pa.int64()),
            "timestamp": pa.array(range(count), pa.timestamp("us", "UTC")),
            "timestampType": pa.array([0] * count, pa.int32()),
            "headers": pa.array([[{"key": "h", "value": b"1"}]] * count, HEADERS),
        }
    )
    return spark.createDataFrame(table).repartition(2, sf.rand(7))


def with_task(frame: DataFrame) -> list[Row]:
    return frame.withColumn("task", sf.spark_partition_id()).collect()


def skewed(count: int, seed: int) -> list[bytes]:
    """Four of five records are one user's."""
    dice = random.Random(seed)
    users = ["hot"] * 80 + [f"user-{number}" for number in range(20)]
    return [f"{dice.choice(users)},{number}".encode() for number in range(count)]


def test_every_row_comes_out_once_where_its_key_belongs(spark: SparkSession) -> None:
    values = [b"anna,1", b"bert,2", b"anna,1", b"carl,"]
    plan = replace(PLAN, partitioner=parse_partitioner("murmur2"))
    rows = transform(frame_of(spark, values), plan, tasks=2).collect()
    assert sorted(bytes(row.value) for row in rows) == sorted(values)
    assert {row.topic for row in rows} == {"by-user"}
    for row in rows:
        assert bytes(row.value).startswith(bytes(row.key) + b",")
        assert row.partition == partition_for_key(bytes(row.key), 6)


def test_rows_keep_headers_and_timestamp_and_say_where_they_come_from(
    spark: SparkSession,
) -> None:
    frame = frame_of(spark, [b"anna,1", b"bert,2"])
    assert frame.columns == [
        *("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")
    ]
    (row,) = (
        row for row in transform(frame, PLAN, tasks=1).collect() if bytes(row.value) == b"bert,2"
    )
    assert (row.source_topic, row.source_partition, row.source_offset) == ("by-server", 1, 0)
    assert row.headers == [Row(key="h", value=b"1")]
    assert row.timestamp.microsecond == 1


@pytest.mark.feature("R06")
def test_skew_handling_leaves_a_partition_in_one_task_and_its_rows_in_order(
    eager: SparkSession,
) -> None:
    frame = frame_of(eager, skewed(5_000, seed=1), partitions=8)
    rows = with_task(transform(frame, PLAN, tasks=4))
    assert len(rows) == 5_000
    tasks = {(row.partition, row.task) for row in rows}
    assert len(tasks) == len({partition for partition, _ in tasks})
    for partition in range(PLAN.partitions):
        places = [
            (row.source_partition, row.source_offset) for row in rows if row.partition == partition
        ]
        assert places == sorted(places)


def test_these_settings_do_split_and_merge_what_they_may(eager: SparkSession) -> None:
    user = sf.split(sf.col("value").cast("string"), ",")[0]
    frame = frame_of(eager, skewed(5_000, seed=1)).withColumn("user", user)
    moved = with_task(frame.hint("rebalance", "user"))
    tasks_of_hot = {row.task for row in moved if row.user == "hot"}
    assert len(tasks_of_hot) > 1 or {row.task for row in moved} == {0}


@pytest.mark.feature("R06")
def test_a_task_tried_again_gives_the_same_rows(eager: SparkSession) -> None:
    values = skewed(500, seed=2)
    first, second = (
        with_task(transform(frame_of(eager, values).repartition(count), PLAN, tasks=3))
        for count in (1, 3)
    )
    assert first == second


@pytest.mark.parametrize("tasks", [1, 6, 9])
def test_any_number_of_tasks(spark: SparkSession, tasks: int) -> None:
    rows = with_task(transform(frame_of(spark, skewed(60, seed=3)), PLAN, tasks=tasks))
    assert {row.task == row.partition % tasks for row in rows} == {True}


def test_the_plan_of_a_checkpoint_of_an_earlier_release(
    spark: SparkSession, tmp_path: Path
) -> None:
    directory = tmp_path / DIRECTORY
    directory.mkdir()
    (directory / "_SUCCESS").touch()
    (directory / "part-00000-7.txt").write_text(plan_to_json(PLAN) + "\n")
    assert read_plan(spark, str(tmp_path)) == PLAN
    assert not has_batches(spark, str(tmp_path))


def test_a_plan_is_read_as_it_was_written(spark: SparkSession, tmp_path: Path) -> None:
    checkpoint = str(tmp_path / "checkpoint")
    assert read_plan(spark, checkpoint) is None
    write_plan(spark, checkpoint, PLAN)
    assert read_plan(spark, checkpoint) == PLAN
    assert settle_query_id(spark, checkpoint) == settle_query_id(spark, checkpoint)


def test_no_rows(spark: SparkSession) -> None:
    assert transform(frame_of(spark, []), PLAN, tasks=2).collect() == []


def test_a_row_without_key_is_an_error_that_names_it(spark: SparkSession) -> None:
    frame = frame_of(spark, [b"anna,1", b",2"])
    with pytest.raises(PySparkException, match="by-server-1@0 has no key: give --dead-letters"):
        transform(frame, PLAN, tasks=2).collect()


def test_a_row_without_partition_is_an_error_too(spark: SparkSession) -> None:
    plan = replace(PLAN, partitioner=parse_partitioner("ranges:a-z=0"))
    with pytest.raises(PySparkException, match="by-server-1@0 has no partition"):
        transform(frame_of(spark, [b"anna,1", b"7,2"]), plan, tasks=2).collect()


@pytest.fixture
def dead_rows(spark: SparkSession) -> list[Row]:
    plan = replace(
        PLAN,
        partitioner=parse_partitioner("ranges:a-z=0"),
        dead_letters=DeadLetters("lost", 2),
    )
    frame = frame_of(spark, [b"anna,1", b",2", b"7,3", b",4"])
    keyed = frame.withColumn("key", sf.lit("own").cast("binary"))
    return with_task(transform(keyed, plan, tasks=8))


def test_dead_letters_stay_as_they_were(dead_rows: list[Row]) -> None:
    dead = [row for row in dead_rows if row.topic == "lost"]
    assert sorted(bytes(row.value) for row in dead) == [b",2", b",4", b"7,3"]
    assert {bytes(row.key) for row in dead} == {b"own"}


def test_dead_letters_keep_to_their_own_partitions_and_tasks(dead_rows: list[Row]) -> None:
    for row in dead_rows:
        dead = row.topic == "lost"
        assert row.partition == (row.source_partition % 2 if dead else 0)
        assert row.task == row.partition + (6 if dead else 0)


def test_dead_letters_say_why(dead_rows: list[Row]) -> None:
    told = {
        bytes(row.value): {header.key: bytes(header.value) for header in row.headers}
        for row in dead_rows
    }
    assert told[b"anna,1"] == {"h": b"1"}
    assert told[b",2"] == {
        "h": b"1",
        "reshard.reason": b"no-key",
        "reshard.source": b"by-server-1@0",
    }
    assert told[b"7,3"]["reshard.reason"] == b"no-partition"


def test_rows_in_place_keep_the_order_in_which_they_are_read(spark: SparkSession) -> None:
    values = skewed(300, seed=4)
    table = (
        frame_of(spark, values)
        .toArrow()
        .sort_by([("partition", "ascending"), ("offset", "ascending")])
    )
    rows = with_task(transform_in_place(spark.createDataFrame(table), PLAN, tasks=2))
    assert len(rows) == len(values)
    assert {row.task for row in rows} <= {0, 1}
    for task in (0, 1):
        found = [(row.source_partition, row.source_offset) for row in rows if row.task == task]
        assert found == sorted(found)
    assert {row.partition == crc32(bytes(row.key)) % 6 for row in rows} == {True}


def test_rows_in_place_of_a_late_rule_have_no_partition_yet(spark: SparkSession) -> None:
    plan = replace(PLAN, partitioner=parse_partitioner("murmur2"))
    rows = transform_in_place(frame_of(spark, [b"anna,1", b"bert,2"]), plan, tasks=2).collect()
    assert [row.partition for row in rows] == [None, None]
    with pytest.raises(PySparkException, match="by-server-1@0 has no key: give --dead-letters"):
        transform_in_place(frame_of(spark, [b"anna,1", b",2"]), plan, tasks=2).collect()


def test_dead_letters_in_place_have_their_partitions(spark: SparkSession) -> None:
    plan = replace(
        PLAN, partitioner=parse_partitioner("murmur2"), dead_letters=DeadLetters("lost", 2)
    )
    rows = transform_in_place(frame_of(spark, [b"anna,1", b",2"]), plan, tasks=2).collect()
    assert {(row.topic, row.partition) for row in rows} == {("by-user", None), ("lost", 1)}
