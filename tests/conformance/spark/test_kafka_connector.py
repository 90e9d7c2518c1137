"""Spark's own Kafka connector, unmodified, against a cluster. Run by ``make conformance``."""

import contextlib
import json
import time
from collections import Counter
from pathlib import Path

import confluent_kafka
import confluent_kafka.admin
import pytest
from e2e.clusters import START_SECONDS, Cluster
from e2e.transactional_clients import create, producer, wait_in_sync, write, write_plain
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamReader, DataStreamWriter
from tidemark.cli.dev.layout import Layout
from tidemark.cli.dev.secure import CLIENT, SecureFiles
from tidemark.client import TopicPartition
from tidemark.client.sync import Admin
from tidemark.runtime.clock import Clock
from tidemark_spark.security import kafka_properties
from waiting import PATIENCE_S

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

FORMAT = "kafka"
WAIT_MS = 120_000
READ_S = PATIENCE_S


class Connector:
    """The connector of one session, pointed at a cluster."""

    def __init__(self, spark: SparkSession, cluster: Cluster, checkpoint: Path) -> None:
        self.spark = spark
        self.servers = cluster.bootstrap
        self.checkpoint = checkpoint

    def read(self, topic: str, **options: object) -> DataFrame:
        """A batch."""
        reader = self.spark.read.format(FORMAT).option("kafka.bootstrap.servers", self.servers)
        for name, value in {"subscribe": topic, **_dotted(options)}.items():
            reader = reader.option(name, str(value))
        return reader.load()

    def values(self, topic: str, **options: object) -> list[str]:
        """A batch's values, sorted."""
        rows = self.read(topic, **options).selectExpr("cast(value as string)").collect()
        return sorted(row.value for row in rows)

    def stream(self, topic: str, **options: object) -> DataFrame:
        """From the earliest record unless told otherwise."""
        reader: DataStreamReader = self.spark.readStream.format(FORMAT)
        reader = reader.option("kafka.bootstrap.servers", self.servers)
        defaults = {"subscribe": topic, "startingOffsets": "earliest"}
        for name, value in {**defaults, **_dotted(options)}.items():
            reader = reader.option(name, str(value))
        return reader.load()

    def writer(self, rows: DataFrame, topic: str) -> DataStreamWriter:
        kept = rows.select("key", "value")
        writer = kept.writeStream.format(FORMAT).option("kafka.bootstrap.servers", self.servers)
        return writer.option("topic", topic).option("checkpointLocation", str(self.checkpoint))

    def catch_up(self, rows: DataFrame, topic: str) -> StreamingQuery:
        """Everything there is now, in as many batches as it takes."""
        query = self.writer(rows, topic).trigger(availableNow=True).start()
        assert query.awaitTermination(WAIT_MS // 1_000), "it does not end"
        return query

    def write(self, rows: DataFrame, topic: str) -> None:
        writer = rows.write.format(FORMAT).option("kafka.bootstrap.servers", self.servers)
        writer.option("topic", topic).save()


@pytest.fixture
def connector(spark: SparkSession, cluster: Cluster, tmp_path: Path) -> Connector:
    return Connector(spark, cluster, tmp_path / "checkpoint")


def _dotted(options: dict[str, object]) -> dict[str, object]:
    """``kafka_isolation_level`` for ``kafka.isolation.level``."""
    return {name.replace("_", "."): value for name, value in options.items()}


def numbered(connector: Connector, count: int, first: int = 0) -> DataFrame:
    columns = ("cast(id % 10 as string) as key", "cast(id as string) as value")
    return connector.spark.range(first, first + count).selectExpr(*columns)


def numbers(count: int, first: int = 0) -> list[str]:
    return sorted(str(number) for number in range(first, first + count))


def by_kafka(cluster: Cluster, topic: str, partitions: int) -> list[list[tuple[str, str]]]:
    """(key, value) of each partition, in order, as librdkafka reads them."""
    reader = confluent_kafka.Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "nobody",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    found: list[list[tuple[str, str]]] = [[] for _ in range(partitions)]
    reader.assign(
        [confluent_kafka.TopicPartition(topic, number, 0) for number in range(partitions)]
    )
    ended: set[int] = set()
    deadline = time.monotonic() + READ_S
    with contextlib.closing(reader):
        while len(ended) < partitions and time.monotonic() < deadline:
            for message in reader.consume(500, timeout=1.0):
                error, number = message.error(), message.partition()
                assert number is not None
                if error is not None:
                    assert error.name() == "_PARTITION_EOF", error
                    ended.add(number)
                    continue
                pair = (message.key() or b"").decode(), (message.value() or b"").decode()
                found[number].append(pair)
    assert len(ended) == partitions, f"{topic}: only {ended} ended; read {[*map(len, found)]}"
    return found


@pytest.mark.feature("A12", "C01", "C03", "Y01")
def test_a_batch_is_written_with_one_partition_a_key(
    connector: Connector, cluster: Cluster, topic: str
) -> None:
    create(cluster, topic, partitions=4)
    connector.write(numbered(connector, 1_000), topic)
    found = by_kafka(cluster, topic, 4)
    places = Counter(key for one in found for key in {key for key, _ in one})
    assert set(places.values()) == {1}
    assert sorted(value for one in found for _, value in one) == numbers(1_000)


@pytest.mark.feature("A12", "Y01")
def test_a_batch_reads_every_column(connector: Connector, topic: str, cluster: Cluster) -> None:
    create(cluster, topic, partitions=2)
    rows = connector.spark.createDataFrame(
        [("a", None, 0, [("h", bytearray(b"1")), ("h", None)]), (None, "two", 1, None)],
        "key string, value string, partition int, headers array<struct<key:string,value:binary>>",
    )
    connector.write(rows, topic)
    found = connector.read(topic, includeHeaders="true").orderBy("partition").collect()
    assert [(row.key, row.value) for row in found] == [(b"a", None), (None, b"two")]
    assert [(row.topic, row.partition, row.offset) for row in found] == [
        (topic, 0, 0),
        (topic, 1, 0),
    ]
    assert [tuple(header) for header in found[0].headers] == [("h", b"1"), ("h", None)]
    assert {row.timestampType for row in found} == {0}


@pytest.mark.feature("K01", "K02", "K03", "K04")
def test_the_sinks_producers_are_idempotent(
    connector: Connector, cluster: Cluster, topic: str
) -> None:
    create(cluster, topic)
    connector.write(numbered(connector, 500).coalesce(1), topic)
    with Admin(cluster.bootstrap) as admin:
        partition = TopicPartition(topic, 0)
        (state,) = admin.describe_producers([partition])[partition]
    assert state.producer_id >= 0
    assert state.last_sequence == 499


@pytest.mark.feature("D03", "Y01")
def test_a_range_of_offsets_is_read(connector: Connector, cluster: Cluster, topic: str) -> None:
    create(cluster, topic)
    connector.write(numbered(connector, 100).coalesce(1), topic)
    start, end = json.dumps({topic: {"0": 40}}), json.dumps({topic: {"0": 45}})
    assert connector.values(topic, startingOffsets=start, endingOffsets=end) == numbers(5, 40)


@pytest.mark.feature("D03", "Y01")
def test_minimal_partitions_split_a_range(
    connector: Connector, cluster: Cluster, topic: str
) -> None:
    create(cluster, topic)
    connector.write(numbered(connector, 100), topic)
    rows = connector.read(topic, minPartitions=4)
    assert rows.rdd.getNumPartitions() == 4
    assert rows.count() == 100


@pytest.fixture
def between(connector: Connector, cluster: Cluster, topic: str) -> int:
    """A time, in ms, after the values 0-9 and before 10-19."""
    create(cluster, topic, partitions=2)
    rows = numbered(connector, 20).selectExpr("*", "cast(value % 2 as int) as partition")
    connector.write(rows.where("value < 10"), topic)
    time.sleep(0.05)
    moment = Clock().wall_ms()
    time.sleep(0.05)
    connector.write(rows.where("value >= 10"), topic)
    return moment


@pytest.mark.feature("D08", "Y01")
def test_offsets_are_found_by_time(connector: Connector, topic: str, between: int) -> None:
    moments = json.dumps({topic: {"0": between, "1": between}})
    assert connector.values(topic, startingOffsetsByTimestamp=moments) == numbers(10, 10)
    assert connector.values(topic, endingOffsetsByTimestamp=moments) == numbers(10)
    assert connector.values(topic, startingTimestamp=between) == numbers(10, 10)


@pytest.mark.feature("D08", "Y01")
def test_a_stream_starts_by_time(
    connector: Connector, cluster: Cluster, topic: str, between: int
) -> None:
    create(cluster, f"{topic}-out")
    moments = json.dumps({topic: {"0": between, "1": between}})
    connector.catch_up(connector.stream(topic, startingOffsetsByTimestamp=moments), f"{topic}-out")
    assert connector.values(f"{topic}-out") == numbers(10, 10)


@pytest.mark.feature("L09", "M01", "M06", "N01")
def test_only_the_committed_is_read(connector: Connector, cluster: Cluster, topic: str) -> None:
    create(cluster, topic)
    write_plain(cluster, topic, "plain")
    for value, outcome in (("kept", "commit_transaction"), ("dropped", "abort_transaction")):
        one = producer(cluster, f"{topic}-{value}")
        one.begin_transaction()
        write(one, {topic: [value]})
        getattr(one, outcome)(30)
    still_open = producer(cluster, f"{topic}-open")
    still_open.begin_transaction()
    write(still_open, {topic: ["open"]})
    committed = connector.values(topic, kafka_isolation_level="read_committed")
    assert committed == ["kept", "plain"]
    assert connector.values(topic) == ["dropped", "kept", "open", "plain"]
    still_open.abort_transaction(30)


@pytest.mark.feature("A11", "D05", "Y01")
def test_a_stream_goes_on_where_it_was(connector: Connector, cluster: Cluster, topic: str) -> None:
    create(cluster, topic, f"{topic}-out", partitions=3)
    connector.write(numbered(connector, 100), topic)
    rows = connector.stream(topic)
    connector.catch_up(rows, f"{topic}-out")
    connector.write(numbered(connector, 100, 100), topic)
    connector.catch_up(rows, f"{topic}-out")
    assert connector.values(f"{topic}-out") == numbers(200)


@pytest.mark.feature("D02", "D03", "Y01")
def test_a_batch_of_a_stream_is_bounded(connector: Connector, cluster: Cluster, topic: str) -> None:
    create(cluster, topic, f"{topic}-out", partitions=2)
    connector.write(numbered(connector, 100), topic)
    query = connector.catch_up(connector.stream(topic, maxOffsetsPerTrigger=20), f"{topic}-out")
    rows = [progress.numInputRows for progress in query.recentProgress if progress.numInputRows]
    assert sum(rows) == 100
    assert max(rows) <= 20
    assert connector.values(f"{topic}-out") == numbers(100)


@pytest.mark.feature("M01", "M04", "L09", "W03")
def test_a_stream_steps_over_aborted_records(
    connector: Connector, cluster: Cluster, topic: str
) -> None:
    create(cluster, topic, f"{topic}-out")
    one = producer(cluster, f"{topic}-writer")
    for number in range(20):
        one.begin_transaction()
        write(one, {topic: [str(number)]})
        one.commit_transaction(30) if number % 2 else one.abort_transaction(30)
    rows = connector.stream(topic, maxOffsetsPerTrigger=7, kafka_isolation_level="read_committed")
    connector.catch_up(rows, f"{topic}-out")
    assert connector.values(f"{topic}-out") == sorted(str(odd) for odd in range(1, 20, 2))


@pytest.mark.feature("A04", "Y01")
def test_topics_by_pattern_and_new_partitions_join_a_stream(
    connector: Connector, cluster: Cluster, topic: str
) -> None:
    create(cluster, f"{topic}-a", f"{topic}-b", f"out-{topic}")
    for letter, value in (("a", "1"), ("b", "2")):
        write_plain(cluster, f"{topic}-{letter}", value)
    reader = connector.spark.readStream.format(FORMAT)
    reader = reader.option("kafka.bootstrap.servers", connector.servers)
    reader = reader.option("subscribePattern", f"{topic}-.*")
    rows = reader.option("startingOffsets", "earliest").load()
    connector.catch_up(rows, f"out-{topic}")
    with Admin(cluster.bootstrap) as admin:
        admin.create_partitions({f"{topic}-a": 2})
    wait_in_sync(cluster)
    added = connector.spark.createDataFrame([("3", 1)], "value string, partition int")
    connector.write(added, f"{topic}-a")
    connector.catch_up(rows, f"out-{topic}")
    assert connector.values(f"out-{topic}") == ["1", "2", "3"]


@pytest.mark.feature("Y01")
def test_records_that_are_gone_end_a_stream(
    connector: Connector, cluster: Cluster, topic: str
) -> None:
    create(cluster, topic, f"{topic}-out")
    connector.write(numbered(connector, 10), topic)
    rows = connector.stream(topic)
    connector.catch_up(rows, f"{topic}-out")
    connector.write(numbered(connector, 10), topic)
    with Admin(cluster.bootstrap) as admin:
        admin.delete_records({TopicPartition(topic, 0): 15})
    query = connector.writer(rows, f"{topic}-out").trigger(availableNow=True).start()
    with pytest.raises(StreamingQueryException, match=r"data loss|missed|offset"):
        query.awaitTermination(WAIT_MS // 1_000)


@pytest.mark.feature("C09", "Y01")
def test_a_stream_outlives_the_loss_of_a_broker(
    connector: Connector, cluster: Cluster, topic: str
) -> None:
    """Its sink is at-least-once: what is read again after an error may be written again."""
    create(cluster, topic, f"{topic}-out", partitions=3)
    connector.write(numbered(connector, 300), topic)
    rows = connector.stream(topic, maxOffsetsPerTrigger=30)
    query = connector.writer(rows, f"{topic}-out").start()
    try:
        deadline = time.monotonic() + WAIT_MS / 1_000
        while query.lastProgress is None and time.monotonic() < deadline:
            time.sleep(0.05)
        cluster.kill("broker-2")
        query.processAllAvailable()
    finally:
        query.stop()
        cluster.restart("broker-2")
    wait_in_sync(cluster)
    assert sorted(set(connector.values(f"{topic}-out"))) == numbers(300)


@pytest.mark.feature("SE27")
def test_the_same_options_are_its_login(spark: SparkSession, tmp_path: Path) -> None:
    """Options that both formats take, from the file of a secure cluster for Java clients."""
    layout = Layout.on_free_ports(tmp_path, brokers=1, controllers=1, is_secure=True)
    cluster = Cluster(layout)
    try:
        cluster.start(START_SECONDS)
        login = kafka_properties(SecureFiles.of(layout).java(CLIENT).read_text())
        login["kafka.bootstrap.servers"] = cluster.bootstrap
        rows = spark.range(9).selectExpr("cast(id as string) as value")
        rows.write.format(FORMAT).options(**login, topic="secure").save()
        read = spark.read.format(FORMAT).options(**login, subscribe="secure").load()
        found = read.selectExpr("cast(value as string)").collect()
        assert sorted(row.value for row in found) == numbers(9)
    finally:
        cluster.end()
