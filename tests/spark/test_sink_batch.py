"""Batch writes from Spark: what arrives, what is refused, and writes that may be repeated."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

import pytest
from e2e.clusters import Cluster
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from spark.sink_topics import committed_records, committed_values, describe_sink
from spark.spark_records import create, reader, run
from tidemark.client import Admin
from tidemark.client.consumer.fetched_chunk import ConsumerRecord
from tidemark.codec.murmur2 import partition_for_key

Name = Callable[[str], str]


def write(cluster: Cluster, rows: DataFrame, topic: str | None = None, **options: str) -> None:
    """Append, with these options besides."""
    named = {name.replace("__", "."): value for name, value in options.items()}
    given = {"bootstrap.servers": cluster.grpc(), **named}
    if topic is not None:
        given["topic"] = topic
    rows.write.format("tidemark").options(**given).mode("append").save()


@contextmanager
def fails(says: str) -> Iterator[None]:
    with pytest.raises(PySparkException) as found:
        yield
    assert says in str(found.value)
    assert "try:" in str(found.value)


def plain(record: ConsumerRecord) -> tuple[object, ...]:
    return record.timestamp_ms, record.key, record.value, record.headers


def test_rows_arrive_with_all_their_columns(
    spark: SparkSession, cluster: Cluster, topic_name: Name
) -> None:
    topic = create(cluster, topic_name("out"), 3)
    at = datetime(2026, 1, 1, 12, tzinfo=UTC)
    rows = spark.createDataFrame(
        [
            (b"k", "v", 2, at, [("h", b"1"), ("i", None)]),
            (None, None, 2, at, None),
        ],
        "key BINARY, value STRING, partition INT, timestamp TIMESTAMP,"
        " headers ARRAY<STRUCT<key: STRING, value: BINARY>>",
    ).coalesce(1)
    write(cluster, rows, topic)
    stamp = int(at.timestamp() * 1_000)
    assert [plain(record) for record in committed_records(cluster, topic, 3)] == [
        (stamp, b"k", b"v", (("h", b"1"), ("i", None))),
        (stamp, None, None, ()),
    ]


@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_keys_go_where_kafka_puts_them(
    spark: SparkSession, cluster: Cluster, topic_name: Name, compression: str
) -> None:
    topic = create(cluster, topic_name("out"), 3)
    rows = spark.range(200).selectExpr("concat('user-', id) AS key", "CAST(id AS STRING) AS value")
    write(cluster, rows, topic, compression__type=compression)
    records = committed_records(cluster, topic, 3)
    assert len(records) == 200
    assert all(
        record.partition == partition_for_key(record.key, 3) for record in records if record.key
    )


def test_each_row_may_name_its_topic(
    spark: SparkSession, cluster: Cluster, topic_name: Name
) -> None:
    topics = [create(cluster, topic_name(name)) for name in ("a", "b")]
    rows = spark.createDataFrame([(topics[0], "0"), (topics[1], "1")], "topic STRING, value STRING")
    write(cluster, rows)
    assert [committed_values(cluster, topic) for topic in topics] == [[b"0"], [b"1"]]


def test_what_was_read_is_written_as_it_is(
    spark: SparkSession, cluster: Cluster, topic_name: Name
) -> None:
    source, target = (create(cluster, topic_name(name), 2) for name in ("a", "b"))
    numbers = spark.range(100).selectExpr("CAST(id AS STRING) AS key", "repeat('x', id) AS value")
    write(cluster, numbers, source)
    write(cluster, reader(spark, cluster, source).load(), target)
    copies = [
        [plain(each) for each in committed_records(cluster, name, 2)] for name in (source, target)
    ]
    assert copies[0] == copies[1]


def test_a_write_of_its_own_is_not_remembered(
    spark: SparkSession, cluster: Cluster, topic_name: Name
) -> None:
    topic = create(cluster, topic_name("out"))
    rows = spark.createDataFrame([("a",)], "value STRING")

    async def sinks() -> set[str]:
        async with Admin(cluster.bootstrap) as admin:
            return {each.transactional_id for each in await admin.list_transactions()}

    before = run(sinks())
    for _ in range(2):
        write(cluster, rows, topic)
    assert committed_values(cluster, topic) == [b"a", b"a"]
    assert not [name for name in run(sinks()) - before if name.startswith("spark-batch-")]


def test_a_named_write_is_repeated_without_effect(
    spark: SparkSession, cluster: Cluster, topic_name: Name
) -> None:
    topic = create(cluster, topic_name("out"))
    rows = spark.range(10).selectExpr("CAST(id AS STRING) AS value")
    for batch_id in ("0", "0", "1", "1"):
        write(cluster, rows, topic, sink__id=f"named-{topic}", query__id="q", batch__id=batch_id)
    assert len(committed_values(cluster, topic)) == 20
    assert describe_sink(cluster, f"named-{topic}").batch_id == 1


def test_nothing_is_visible_of_a_write_that_failed(
    spark: SparkSession, cluster: Cluster, topic_name: Name
) -> None:
    topic = create(cluster, topic_name("out"))
    rows = spark.range(0, 10, 1, 2).selectExpr(
        "CAST(IF(id = 9, raise_error('bad row'), id) AS STRING) AS value"
    )
    with pytest.raises(PySparkException, match="bad row"):
        write(cluster, rows, topic)
    write(cluster, spark.createDataFrame([("a",)], "value STRING"), topic)
    assert committed_values(cluster, topic) == [b"a"]


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ("SELECT 1 AS value", "the column value has type int"),
        ("SELECT '' AS key", "there is no column value"),
        ("SELECT '' AS value, '' AS user", "does not write a column user"),
        ("SELECT '' AS value, 9 AS partition", "partition 9 of topic"),
        ("SELECT repeat('x', 2000000) AS value", "a record of up to 2000036 bytes"),
    ],
)
def test_rows_that_cannot_be_written_are_said(
    spark: SparkSession, cluster: Cluster, topic_name: Name, rows: str, says: str
) -> None:
    topic = create(cluster, topic_name("out"))
    with fails(says):
        write(cluster, spark.sql(rows), topic)


def test_a_null_topic_is_said(spark: SparkSession, cluster: Cluster) -> None:
    with fails("a row's topic is null"):
        write(cluster, spark.sql("SELECT '' AS value, CAST(NULL AS STRING) AS topic"))


def test_an_unknown_topic_is_said(spark: SparkSession, cluster: Cluster) -> None:
    with fails("no-such-topic"):
        rows = spark.sql("SELECT '' AS value")
        write(cluster, rows, "no-such-topic", client__unknown_topic_grace_ms="100")


def test_brokers_out_of_reach_are_said(spark: SparkSession, cluster: Cluster) -> None:
    with fails("127.0.0.1:1"):
        nowhere = {"bootstrap.servers": "127.0.0.1:1", "client.default_api_timeout_ms": "1000"}
        write(cluster, spark.sql("SELECT '' AS value"), "t", **nowhere)


def test_a_topic_cannot_be_overwritten(spark: SparkSession, cluster: Cluster) -> None:
    rows = spark.sql("SELECT '' AS value").write.format("tidemark").mode("overwrite")
    with fails("cannot be overwritten"):
        rows.options(**{"bootstrap.servers": cluster.grpc(), "topic": "t"}).save()
