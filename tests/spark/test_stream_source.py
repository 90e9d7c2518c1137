"""A streaming query's batches, the source in the test's own process against a real cluster. Through
Spark itself: test_source.py.
"""

import asyncio
import json
from collections.abc import Callable, Iterator

import pytest
from e2e.clusters import Cluster, StartCluster
from e2e.transactional_clients import wait_in_sync
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows
from spark.source_driver import Stream, rows_of
from spark.spark_records import create, numbered, produce, with_admin
from tidemark.client import TopicPartition, TransactionalProducer
from tidemark_spark import worker_clients
from tidemark_spark.errors import DataLossError, OptionError
from waiting import wait_for

Name = Callable[[str], str]
QUICK = {"client.unknown_topic_grace_ms": "300"}


@pytest.fixture(scope="module", autouse=True)
def _no_client_outlives_the_tests() -> Iterator[None]:
    yield
    worker_clients.close_all()


@pytest.fixture
def topic(cluster: Cluster, topic_name: Name) -> str:
    """Two partitions, ten records in the first."""
    name = create(cluster, topic_name("t"), 2)
    produce(cluster, name, numbered(10))
    return name


def test_batch_after_batch(cluster: Cluster, topic: str) -> None:
    with Stream(cluster, topic) as query:
        assert query.batch() == numbered(10)
        assert query.batch() == []
        produce(cluster, topic, numbered(3, 10), partition=1)
        assert query.batch() == numbered(3, 10)
        assert query.positions(topic) == {"0": 10, "1": 3}


def test_a_stream_starts_at_the_end_by_itself(cluster: Cluster, topic: str) -> None:
    with Stream(cluster, topic, startingOffsets="latest") as query:
        produce(cluster, topic, numbered(2, 10), partition=1)
        assert query.batch() == numbered(2, 10)


def test_limits_of_a_batch(cluster: Cluster, topic: str) -> None:
    with Stream(cluster, topic, maxOffsetsPerTrigger="4") as query:
        assert query.reader.getDefaultReadLimit() == ReadMaxRows(4)
        assert [len(query.batch()) for _ in range(4)] == [4, 4, 2, 0]


def test_all_available_goes_before_the_limit(cluster: Cluster, topic: str) -> None:
    with Stream(cluster, topic, maxOffsetsPerTrigger="4") as query:
        assert len(query.batch(ReadAllAvailable())) == 10


def test_records_gather(cluster: Cluster, topic: str) -> None:
    with Stream(cluster, topic, minOffsetsPerTrigger="12") as query:
        assert query.reader.getDefaultReadLimit() == ReadMinRows(12)
        assert query.batch() == []
        produce(cluster, topic, numbered(2, 10))
        assert len(query.batch()) == 12


def test_records_gather_so_long_only(cluster: Cluster, topic: str) -> None:
    with Stream(cluster, topic, minOffsetsPerTrigger="12", maxTriggerDelay="0ms") as query:
        assert len(query.batch()) == 10


@pytest.mark.feature("Y02")
def test_a_replayed_batch_is_the_same(cluster: Cluster, topic: str) -> None:
    with Stream(cluster, topic, maxOffsetsPerTrigger="4") as query:
        start, end = query.offsets, query.plan()
        first = rows_of(query.reader, query.reader.partitions(start, end))
    produce(cluster, topic, numbered(3, 10))
    with Stream(cluster, topic, minPartitions="3") as restarted:
        again = rows_of(restarted.reader, restarted.reader.partitions(start, end))
    assert again == first


def test_available_now_ends_where_it_began(cluster: Cluster, topic: str) -> None:
    with Stream(cluster, topic, maxOffsetsPerTrigger="8") as query:
        query.reader.prepareForTriggerAvailableNow()
        produce(cluster, topic, numbered(5, 10))
        with_admin(cluster, lambda admin: admin.create_partitions({topic: 3}))
        produce(cluster, topic, numbered(5, 20), partition=2)
        assert [len(query.batch()) for _ in range(3)] == [8, 2, 0]
        before = query.offsets
        assert query.plan() == before


def test_a_partition_that_is_added(cluster: Cluster, topic: str) -> None:
    with Stream(cluster, topic) as query:
        query.batch()
        with_admin(cluster, lambda admin: admin.create_partitions({topic: 3}))
        produce(cluster, topic, numbered(5, 20), partition=2)
        assert query.batch() == []
        assert query.positions(topic) == {"0": 10, "1": 0, "2": 0}
        assert query.batch() == numbered(5, 20)


def test_a_topic_that_comes_to_match(cluster: Cluster, topic_name: Name) -> None:
    one = create(cluster, topic_name("x-1"))
    pattern = one.removesuffix("1").replace(".", r"\.") + r"\d"
    options = {"subscribePattern": pattern, "startingOffsets": "earliest"}
    with Stream(cluster, "", **options) as query:
        two = create(cluster, topic_name("x-2"))
        produce(cluster, two, numbered(2))
        assert [query.batch(), query.batch()] == [[], numbered(2)]


@pytest.mark.feature("Y02")
def test_reading_ends_before_an_open_transaction(cluster: Cluster, topic: str) -> None:
    async def talk() -> list[list[bytes]]:
        producer = TransactionalProducer(cluster.bootstrap, transactional_id=topic)
        async with producer:
            await producer.init()
            await producer.begin()
            await producer.send(topic, b"10", partition=0)
            produced = asyncio.to_thread(produce, cluster, topic, numbered(1, 11))
            await produced
            before = await asyncio.to_thread(query.batch)
            await producer.commit()
            # Committed is the transaction with its outcome; readers pass it with the marker.
            after = await asyncio.to_thread(wait_for, query.batch, "a batch")
            return [before, after]

    with Stream(cluster, topic) as query:
        assert asyncio.run(talk()) == [numbered(10), numbered(2, 10)]


def test_a_query_may_start_within_an_open_transaction(cluster: Cluster, topic: str) -> None:
    async def talk() -> list[list[bytes]]:
        producer = TransactionalProducer(cluster.bootstrap, transactional_id=topic)
        async with producer:
            await producer.init()
            await producer.begin()
            for value in (b"10", b"11"):
                await producer.send(topic, value, partition=0)
            offsets = f'{{"{topic}": {{"0": 11, "1": 0}}}}'
            opened = await asyncio.to_thread(Stream, cluster, topic, startingOffsets=offsets)
            with opened as query:
                before = await asyncio.to_thread(query.batch)
                await producer.commit()
                after = await asyncio.to_thread(wait_for, query.batch, "a batch")
                return [before, after]

    assert asyncio.run(talk()) == [[], numbered(1, 11)]


def test_the_logs_ends_are_reported(cluster: Cluster, topic: str) -> None:
    with Stream(cluster, topic, maxOffsetsPerTrigger="4") as query:
        query.batch()
        reported = query.reader.reportLatestOffset()
        assert reported is not None
        assert reported[topic]["offsets"] == {"0": 10, "1": 0}


# ---- losses


def delete(cluster: Cluster, topic: str) -> None:
    with_admin(cluster, lambda admin: admin.delete_topics([topic]))


def test_a_topic_is_deleted(cluster: Cluster, topic: str) -> None:
    with Stream(cluster, topic, **QUICK) as query:
        query.batch()
        delete(cluster, topic)
        with pytest.raises(DataLossError, match="was deleted"):
            query.batch()


def test_a_deleted_topic_is_no_matter(cluster: Cluster, topic: str) -> None:
    with Stream(cluster, topic, failOnDataLoss="false", **QUICK) as query:
        query.batch()
        delete(cluster, topic)
        assert [query.batch(), query.batch()] == [[], []]


@pytest.mark.parametrize("fails", ["true", "false"])
def test_a_topic_is_deleted_and_made_again(cluster: Cluster, topic: str, *, fails: str) -> None:
    with Stream(cluster, topic, failOnDataLoss=fails, **QUICK) as query:
        query.batch()
        delete(cluster, topic)
        create(cluster, topic)
        produce(cluster, topic, numbered(20))
        if fails == "true":
            with pytest.raises(DataLossError, match=r"was deleted and (?:made|created) again"):
                query.batch()
        else:
            assert [query.batch(), query.batch()] == [[], sorted(numbered(20))]


def test_retention_overtakes_the_query(cluster: Cluster, topic: str) -> None:
    options = {"maxOffsetsPerTrigger": "4"}
    with Stream(cluster, topic, **options) as query:
        with_admin(cluster, lambda admin: admin.delete_records({TopicPartition(topic, 0): 3}))
        with pytest.raises(DataLossError, match="the log holds 3 to 10"):
            query.batch()
    with Stream(cluster, topic, startingOffsets=json.dumps({topic: {"0": 3, "1": 0}})) as query:
        assert query.batch() == numbered(7, 3)


def test_a_foreign_checkpoint(cluster: Cluster, topic: str) -> None:
    with Stream(cluster, topic) as query:
        query.offsets = {topic: {"0": 5, "1": 0}}
        with pytest.raises(OptionError, match="not of this source"):
            query.plan()


# ---- leader changes


def test_leaders_change_while_reading(start_cluster: StartCluster) -> None:
    cluster = start_cluster(brokers=3)
    topic = create(cluster, "t", 3, replicas=3, min_insync_replicas="2")
    for partition in range(3):
        produce(cluster, topic, numbered(500, 500 * partition), partition=partition)
    wait_in_sync(cluster)
    with Stream(cluster, topic, maxOffsetsPerTrigger="600") as query:
        found = query.batch()
        cluster.kill("broker-2")
        while batch := query.batch():
            found += batch
        produce(cluster, topic, numbered(100, 1_500), partition=1)
        found += query.batch()
    assert sorted(found) == sorted(numbered(1_600))
