"""What a batch query reads, from where to where, and what goes wrong: the source in the test's own
process, against a real cluster. Through Spark itself: test_source.py.
"""

import asyncio
import json
from collections.abc import Callable, Iterator
from typing import Final

import pyarrow as pa
import pytest
from e2e.clusters import Cluster
from pyspark.sql.types import StringType, StructField, StructType
from spark.source_driver import batch_reader, read, rows_of, schema_of, source, values
from spark.spark_records import create, numbered, produce, with_admin
from tidemark.client import Consumer, TopicPartition, TransactionalProducer
from tidemark_spark import worker_clients
from tidemark_spark.errors import (
    DataLossError,
    OptionError,
    SchemaError,
    SourceError,
    TidemarkSparkError,
)

Name = Callable[[str], str]
QUICK: Final = {"client.unknown_topic_grace_ms": "300"}
NOON_MS: Final = 1_767_268_800_000


@pytest.fixture(scope="module")
def numbers(cluster: Cluster) -> str:
    """b"0" to b"299": a hundred in each of three partitions, in two lots 50 seconds apart."""
    topic = create(cluster, "batch-source.numbers", 3)
    for partition in range(3):
        for number in range(0, 100, 50):
            lot = numbered(50, 100 * partition + number)
            stamp = NOON_MS + 1_000 * number
            produce(cluster, topic, lot, partition=partition, timestamp_ms=stamp)
    return topic


@pytest.fixture(scope="module", autouse=True)
def _no_client_outlives_the_tests() -> Iterator[None]:
    yield
    worker_clients.close_all()


def offsets(topic: str, *positions: int) -> str:
    return json.dumps({topic: {str(number): at for number, at in enumerate(positions)}})


def test_all_records_of_all_partitions(cluster: Cluster, numbers: str) -> None:
    assert read(cluster, numbers) == sorted(numbered(300))


def test_offsets_of_choice(cluster: Cluster, numbers: str) -> None:
    options = {
        "startingOffsets": offsets(numbers, 90, 99, -1),
        "endingOffsets": offsets(numbers, 95, -1, -1),
    }
    assert read(cluster, numbers, **options) == [b"199", *numbered(5, 90)]


def test_timestamps_of_choice(cluster: Cluster, numbers: str) -> None:
    by_partition = {"0": NOON_MS + 1, "1": NOON_MS, "2": NOON_MS + 99_999}
    options = {
        "startingOffsetsByTimestamp": json.dumps({numbers: by_partition}),
        "startingOffsetsByTimestampStrategy": "latest",
        "endingTimestamp": str(NOON_MS + 50_000),
    }
    assert read(cluster, numbers, **options) == sorted(numbered(50, 100))


def test_columns_of_choice(cluster: Cluster, numbers: str) -> None:
    asked = schema_of(["offset", "value"])
    options = {"subscribe": numbers, "endingOffsets": offsets(numbers, 1, 0, 0)}
    reader = source(cluster, **options).reader(asked)
    assert rows_of(reader, reader.partitions()) == [{"offset": 0, "value": b"0"}]


def test_batches_of_few_rows(cluster: Cluster, numbers: str) -> None:
    reader = batch_reader(cluster, numbers, maxRecordsPerBatch="30")
    batches = [pa.table(batch) for batch in reader.read(reader.partitions()[0])]
    assert [batch.num_rows for batch in batches] == [30, 30, 30, 10]


def test_tasks_by_size(cluster: Cluster, numbers: str) -> None:
    reader = batch_reader(cluster, numbers, minPartitions="6", maxRecordsPerPartition="20")
    tasks = reader.partitions()
    assert len(tasks) == 15
    assert values(rows_of(reader, tasks)) == sorted(numbered(300))


def test_a_task_for_nothing(cluster: Cluster, topic_name: Name) -> None:
    topic = create(cluster, topic_name("empty"), 2)
    reader = batch_reader(cluster, topic)
    assert rows_of(reader, reader.partitions()) == []


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_compressed_batches(cluster: Cluster, topic_name: Name, *, codec: str) -> None:
    topic = create(cluster, topic_name("t"))
    produce(cluster, topic, numbered(1_000), compression_type=codec, linger_ms=20)
    assert read(cluster, topic) == sorted(numbered(1_000))


def test_a_compacted_topic(cluster: Cluster, topic_name: Name) -> None:
    topic = create(
        cluster,
        topic_name("t"),
        cleanup_policy="compact",
        segment_ms="1",
        min_cleanable_dirty_ratio="0.01",
    )
    for value in numbered(20):
        produce(cluster, topic, [value], key=b"k")
    for _ in range(200):
        if len(left := read(cluster, topic)) < 20:
            break
    assert len(left) < 20  # holes, and no complaint about them
    assert b"19" in left


async def transactions(cluster: Cluster, topic: str) -> TransactionalProducer:
    """One committed, one aborted, one open: whoever gets the producer ends it."""
    producer = await TransactionalProducer(cluster.bootstrap, transactional_id=topic).start()
    await producer.init()
    for value, end in ((b"committed", producer.commit), (b"aborted", producer.abort)):
        await producer.begin()
        await producer.send(topic, value, partition=0)
        await end()
    await producer.begin()
    await producer.send(topic, b"open", partition=0)
    return producer


@pytest.mark.parametrize(
    ("isolation", "seen"),
    [
        ("read_committed", [b"committed"]),
        ("read_uncommitted", [b"aborted", b"committed", b"open"]),
    ],
)
def test_transactions(
    cluster: Cluster, topic_name: Name, *, isolation: str, seen: list[bytes]
) -> None:
    topic = create(cluster, topic_name("t"))

    async def talk() -> list[bytes]:
        producer = await transactions(cluster, topic)
        try:
            options = {"isolation.level": isolation}
            return await asyncio.to_thread(lambda: read(cluster, topic, **options))
        finally:
            await producer.close()

    assert asyncio.run(talk()) == seen


def test_from_a_groups_offsets(cluster: Cluster, topic_name: Name) -> None:
    topic = create(cluster, topic_name("t"), 2)
    for partition in range(2):
        produce(cluster, topic, numbered(5, 5 * partition), partition=partition)

    async def commit() -> None:
        async with Consumer(cluster.bootstrap, group_id=topic) as consumer:
            consumer.assign([(topic, 0)])
            await consumer.commit({TopicPartition(topic, 0): 3})

    asyncio.run(commit())
    options = {"startingOffsets": "committed", "group.id": topic}
    assert read(cluster, topic, **options) == numbered(7, 3)
    options["startingOffsets.default"] = "latest"
    assert read(cluster, topic, **options) == numbered(2, 3)


def test_several_topics(cluster: Cluster, topic_name: Name) -> None:
    topics = [create(cluster, topic_name(name), 2) for name in ("x-1", "x-2", "y")]
    for number, topic in enumerate(topics):
        produce(cluster, topic, numbered(1, number), partition=1)
    pattern = topics[0].removesuffix("1").replace(".", r"\.") + r"\d"
    assert read(cluster, "", subscribePattern=pattern) == numbered(2)
    assert read(cluster, ",".join(topics)) == numbered(3)
    assigned = json.dumps({topics[0]: [0], topics[2]: [1]})
    assert read(cluster, "", assign=assigned) == [b"2"]


# ---- what is lost


def truncated(cluster: Cluster, topic: str) -> str:
    """Offsets 6 to 9 of one batch of ten are left."""
    with_admin(cluster, lambda admin: admin.delete_records({TopicPartition(topic, 0): 6}))
    return topic


def test_truncated_offsets(cluster: Cluster, topic_name: Name) -> None:
    topic = create(cluster, topic_name("t"))
    produce(cluster, topic, numbered(10), linger_ms=20)
    truncated(cluster, topic)
    options = {"startingOffsets": offsets(topic, 2), "endingOffsets": offsets(topic, 8)}
    with pytest.raises(DataLossError, match=r"starts at offset 2 of .* contains offsets 6 to 10"):
        read(cluster, topic, **options)
    assert read(cluster, topic, **options, failOnDataLoss="false") == numbered(2, 6)


def test_what_is_truncated_after_the_plan(cluster: Cluster, topic_name: Name) -> None:
    topic = create(cluster, topic_name("t"))
    produce(cluster, topic, numbered(10), linger_ms=20)
    strict = batch_reader(cluster, topic)
    tolerant = batch_reader(cluster, topic, failOnDataLoss="false")
    planned = [strict.partitions(), tolerant.partitions()]
    truncated(cluster, topic)
    with pytest.raises(DataLossError, match="the log holds 6 to 10"):
        rows_of(strict, planned[0])
    assert values(rows_of(tolerant, planned[1])) == numbered(4, 6)


def test_a_topic_that_is_made_again_after_the_plan(cluster: Cluster, topic_name: Name) -> None:
    topic = create(cluster, topic_name("t"))
    produce(cluster, topic, numbered(3))
    strict = batch_reader(cluster, topic, **QUICK)
    tolerant = batch_reader(cluster, topic, failOnDataLoss="false", **QUICK)
    planned = [strict.partitions(), tolerant.partitions()]
    with_admin(cluster, lambda admin: admin.delete_topics([topic]))
    create(cluster, topic)
    produce(cluster, topic, numbered(3, 10))
    with pytest.raises(DataLossError, match=r"deleted and (?:made|created) again|does not exist"):
        rows_of(strict, planned[0])
    assert rows_of(tolerant, planned[1]) == []


# ---- mistakes


@pytest.mark.parametrize(
    ("options", "kind", "says"),
    [
        ({"subscribe": "no-such-topic"}, OptionError, "topic 'no-such-topic' does not exist"),
        ({"assign": '{"batch-source.numbers": [7]}'}, OptionError, "has no partition 7"),
        ({"startingOffsets": '{"batch-source.numbers": {"0": 1}}'},
         OptionError, "no offset or timestamp for"),
        ({"startingOffsets": '{"batch-source.numbers": {"0": 1, "1": 1, "2": 1, "3": 1}}'},
         OptionError, "numbers-3, which the query does not read"),
        ({"startingTimestamp": str(2 * NOON_MS)}, OptionError, "has no record as new as"),
        ({"endingOffsets": '{"batch-source.numbers": {"0": 1, "1": 1, "2": 101}}'},
         DataLossError, "ends at offset 101 of batch-source.numbers-2"),
        ({"bootstrap.servers": "127.0.0.1:1"}, SourceError, "connecting to 127.0.0.1:1"),
    ],
)  # fmt: skip
def test_mistakes_are_told(
    cluster: Cluster,
    numbers: str,
    *,
    options: dict[str, str],
    kind: type[TidemarkSparkError],
    says: str,
) -> None:
    with pytest.raises(kind, match=says):
        read(cluster, "" if "assign" in options else numbers, **QUICK, **options)


def test_columns_that_the_source_does_not_have(cluster: Cluster, numbers: str) -> None:
    mine = source(cluster, subscribe=numbers)
    for column, says in (("name", "no column"), ("value", "is binary, not string")):
        with pytest.raises(SchemaError, match=says):
            mine.reader(StructType([StructField(column, StringType())]))
    with pytest.raises(SchemaError, match="includeHeaders=true"):
        mine.reader(schema_of(["headers"]))
