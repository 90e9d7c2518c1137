"""The source through Spark itself: schema, planning, workers, errors and checkpoints."""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import pytest
from e2e.clusters import Cluster
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from spark.conftest import configured
from spark.spark_records import create, numbered, produce, reader, stream, values_of, with_admin
from waiting import PATIENCE_S

Name = Callable[[str], str]
NOON_MS: Final = 1_767_268_800_000
NOON: Final = datetime(2026, 1, 1, 12, tzinfo=UTC)
FILTERS: Final = "spark.sql.python.filterPushdown.enabled"
WAIT_S: Final = int(PATIENCE_S)
QUICK: Final = {"client.unknown_topic_grace_ms": "300"}


@pytest.fixture(scope="module")
def numbers(cluster: Cluster) -> str:
    """b"0" to b"299": a hundred in each of three partitions, in two lots 50 seconds apart."""
    topic = create(cluster, "source.numbers", 3)
    for partition in range(3):
        for number in range(0, 100, 50):
            lot = numbered(50, 100 * partition + number)
            stamp = NOON_MS + 1_000 * number
            produce(cluster, topic, lot, partition=partition, timestamp_ms=stamp)
    return topic


def test_columns_are_those_of_sparks_kafka_source(
    spark: SparkSession, cluster: Cluster, topic_name: Name
) -> None:
    topic = create(cluster, topic_name("t"), 2)
    pairs = (("trace", b"1"), ("none", None))
    produce(cluster, topic, [b"v", None], partition=1, timestamp_ms=NOON_MS, headers=pairs)
    produce(cluster, topic, [b"w"], key=b"k", partition=1, timestamp_ms=NOON_MS)
    table = reader(spark, cluster, topic, includeHeaders="true").load().orderBy("offset").toArrow()
    listed = [{"key": "trace", "value": b"1"}, {"key": "none", "value": None}]
    common = {"topic": topic, "partition": 1, "timestamp": NOON, "timestampType": 0}
    assert table.to_pylist() == [
        {"key": None, "value": b"v", **common, "offset": 0, "headers": listed},
        {"key": None, "value": None, **common, "offset": 1, "headers": listed},
        {"key": b"k", "value": b"w", **common, "offset": 2, "headers": None},
    ]


@pytest.mark.parametrize("enabled", ["true", "false"])
def test_filters_narrow_what_is_read(
    spark: SparkSession, cluster: Cluster, numbers: str, *, enabled: str
) -> None:
    with configured(spark, {FILTERS: enabled}):
        frame = reader(spark, cluster, numbers).load()
        one = frame.where("partition = 1 AND offset >= 90 AND offset < 93")
        young = frame.where("partition = 0 AND timestamp > '2026-01-01 12:00:01'")
        assert values_of(one) == numbered(3, 190)
        assert values_of(young) == numbered(50, 50)
        assert one.rdd.getNumPartitions() == (1 if enabled == "true" else 3)


def test_workers_that_are_not_reused(spark: SparkSession, cluster: Cluster, numbers: str) -> None:
    settings = spark.sparkContext._jsc.sc().conf()
    settings.set("spark.python.worker.reuse", "false")
    try:
        frame = reader(spark, cluster, numbers).load()
        assert values_of(frame) == sorted(numbered(300))
    finally:
        settings.set("spark.python.worker.reuse", "true")


def test_an_error_says_what_to_try(spark: SparkSession, cluster: Cluster) -> None:
    with pytest.raises(PySparkException, match=r"topic 'no-such-topic' does not exist\n *try: "):
        reader(spark, cluster, "no-such-topic", **QUICK).load().collect()


def caught_up(
    spark: SparkSession, cluster: Cluster, topic: str, checkpoint: Path, **options: str
) -> StreamingQuery:
    """A run with Trigger.AvailableNow, which Spark ends; rows go to Parquet."""
    return (
        stream(spark, cluster, topic, **options)
        .load()
        .writeStream.format("parquet")
        .option("path", str(checkpoint / "rows"))
        .option("checkpointLocation", str(checkpoint / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )


def rows_per_batch(query: StreamingQuery) -> list[int]:
    return [progress["numInputRows"] for progress in query.recentProgress]


@pytest.mark.feature("W03", "Y02")
def test_a_query_goes_on_where_its_checkpoint_is(
    spark: SparkSession, cluster: Cluster, topic_name: Name, tmp_path: Path
) -> None:
    topic = create(cluster, topic_name("t"), 2)
    produce(cluster, topic, numbered(90))
    produce(cluster, topic, numbered(10, 90), partition=1)
    first = caught_up(spark, cluster, topic, tmp_path, maxOffsetsPerTrigger="50")
    assert first.awaitTermination(WAIT_S)
    assert sorted(rows_per_batch(first)) == [50, 50]
    produce(cluster, topic, numbered(20, 100), partition=1)
    with_admin(cluster, lambda admin: admin.create_partitions({topic: 3}))
    produce(cluster, topic, numbered(5, 120), partition=2)
    second = caught_up(spark, cluster, topic, tmp_path)
    assert second.awaitTermination(WAIT_S)
    found = spark.read.parquet(str(tmp_path / "rows"))
    assert values_of(found) == sorted(numbered(125))


def test_a_query_whose_topic_is_gone(
    spark: SparkSession, cluster: Cluster, topic_name: Name, tmp_path: Path
) -> None:
    topic = create(cluster, topic_name("t"))
    produce(cluster, topic, numbered(1))
    assert caught_up(spark, cluster, topic, tmp_path).awaitTermination(WAIT_S)
    with_admin(cluster, lambda admin: admin.delete_topics([topic]))
    create(cluster, topic)
    again = caught_up(spark, cluster, topic, tmp_path, **QUICK)
    with pytest.raises(StreamingQueryException, match=r"was deleted and (?:made|created) again"):
        again.awaitTermination(WAIT_S)
