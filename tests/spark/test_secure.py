"""The source, the sink and a job with Spark at a cluster where clients log in over TLS."""

from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from e2e.clusters import START_SECONDS, Cluster
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from tidemark.cli.dev.layout import Layout
from tidemark.cli.dev.secure import CLIENT, SecureFiles
from tidemark.client import NewTopic, OffsetSpec, TopicPartition, sync
from tidemark_jobs.reshard.command import parse
from tidemark_jobs.reshard.query import run
from tidemark_spark.security import kafka_properties, kafka_security

ROWS = 200
Name = Callable[[str], str]


class Secure:
    """One broker, and the files of its user who may write and read."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.properties = SecureFiles.of(cluster.layout).spark(CLIENT)
        self.options = kafka_properties(self.properties.read_text())
        security = kafka_security(self.options)
        assert security is not None
        self.login: dict[str, Any] = asdict(security)

    @property
    def shared(self) -> dict[str, str]:
        """Options of source and sink."""
        return {"bootstrap.servers": self.cluster.layout.grpc_client_bootstrap, **self.options}

    def create(self, topic: str) -> str:
        with sync.Admin(self.cluster.bootstrap, **self.login) as admin:
            admin.create_topics([NewTopic(topic, 1, 1)])
        return topic

    def read(self, topic: str) -> list[int]:
        """Values of all committed records, in order."""
        settings: dict[str, Any] = {
            "isolation_level": "read_committed",
            "auto_offset_reset": "earliest",
            **self.login,
        }
        partition = TopicPartition(topic, 0)
        with sync.Admin(self.cluster.bootstrap, **self.login) as admin:
            end = admin.list_offsets({partition: OffsetSpec.LATEST}, read_committed=True)
        found: list[int] = []
        with sync.Consumer(self.cluster.bootstrap, **settings) as consumer:
            consumer.assign([partition])
            while consumer.position(partition) < end[partition].offset:
                found += [int(one.value or b"") for one in consumer.poll(timeout_ms=200)]
        return found


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secure]:
    layout = Layout.on_free_ports(
        tmp_path_factory.mktemp("secure"),
        brokers=1,
        controllers=1,
        txn_coordinators=1,
        is_secure=True,
    )
    cluster = Cluster(layout)
    try:
        cluster.start(START_SECONDS)
        yield Secure(cluster)
    finally:
        cluster.end()


def copy(spark: SparkSession, secure: Secure, source: str, target: str, checkpoint: Path) -> None:
    """A stream from a topic to another, until all is written."""
    rows = (
        spark.readStream.format("tidemark")
        .options(**secure.shared, subscribe=source, startingOffsets="earliest")
        .option("maxOffsetsPerTrigger", ROWS // 2)
        .load()
        .selectExpr(
            "value",
            "topic AS source_topic",
            "partition AS source_partition",
            "offset AS source_offset",
        )
    )
    query = (
        rows.writeStream.format("tidemark")
        .options(**secure.shared, **{"sink.id": f"copy-{target}", "topic": target})
        .options(**{"group.id": f"copy-{target}", "source.offsets": "true"})
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    try:
        query.awaitTermination()
    finally:
        query.stop()


@pytest.mark.feature("SE27", "Y02")
def test_a_stream_reads_and_writes_exactly_once(
    spark: SparkSession, secure: Secure, topic_name: Name, tmp_path: Path
) -> None:
    source, target = secure.create(topic_name("in")), secure.create(topic_name("out"))
    rows = spark.range(ROWS).selectExpr("CAST(id AS STRING) AS value").coalesce(1)
    rows.write.format("tidemark").options(**secure.shared, topic=source).mode("append").save()
    copy(spark, secure, source, target, tmp_path)
    # As if the driver had died before it noted its last commit: the batch is replayed.
    last = max((path for path in (tmp_path / "commits").glob("[0-9]*")), key=lambda path: path.name)
    last.unlink()
    (tmp_path / "commits" / f".{last.name}.crc").unlink(missing_ok=True)
    copy(spark, secure, source, target, tmp_path)
    assert secure.read(target) == list(range(ROWS))
    with sync.Admin(secure.cluster.bootstrap, **secure.login) as admin:
        committed = admin.list_group_offsets(f"copy-{target}")
        assert committed[TopicPartition(source, 0)].offset == ROWS
    read = spark.read.format("tidemark").options(**secure.shared, subscribe=target).load()
    assert read.count() == ROWS


@pytest.mark.feature("SE27")
def test_a_job_takes_the_properties_of_kafkas_java_clients(
    spark: SparkSession, secure: Secure, topic_name: Name, tmp_path: Path
) -> None:
    source, target = secure.create(topic_name("in")), secure.create(topic_name("out"))
    with sync.Producer(secure.cluster.bootstrap, **secure.login) as producer:
        producer.send_many(source, [(b"%d" % number, b"%d" % number) for number in range(ROWS)])
    doors = secure.cluster.layout.grpc_client_bootstrap
    words = ["--bootstrap-servers", doors, "--source", source, "--target", target]
    words += ["--checkpoint", str(tmp_path), "--available-now"]
    run(spark, parse([*words, "--kafka-properties", str(secure.properties)]), lambda _: None)
    assert secure.read(target) == list(range(ROWS))


@pytest.mark.feature("SE27")
def test_a_wrong_password_ends_a_query_and_is_in_neither_plan_nor_error(
    spark: SparkSession, secure: Secure, topic_name: Name, tmp_path: Path
) -> None:
    topic = secure.create(topic_name("in"))
    login = secure.shared["kafka.sasl.jaas.config"]
    false = login.replace('password="', 'password="hidden')
    wrong = secure.shared | {"kafka.sasl.jaas.config": false}
    rows = spark.readStream.format("tidemark").options(**wrong, subscribe=topic).load()
    query = rows.writeStream.format("noop").option("checkpointLocation", str(tmp_path))
    with pytest.raises(StreamingQueryException) as found:
        query.trigger(availableNow=True).start().awaitTermination()
    assert "SASL_AUTHENTICATION_FAILED" in str(found.value)
    plan = spark.read.format("tidemark").options(**secure.shared, subscribe=topic).load()
    shown = plan._jdf.queryExecution().toString()
    password = secure.login["sasl_password"]
    assert password not in shown
    assert "hidden" not in str(found.value)
