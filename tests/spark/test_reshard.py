"""The job ``reshard`` between two topics of a real cluster: where, in which order, how often."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Final

import pytest
from e2e.clusters import Cluster
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from search_queries import search_queries
from spark.conftest import configured
from spark.sink_topics import committed_records
from spark.spark_records import create, produce, with_admin
from tidemark.client import Admin, ConsumerRecord
from tidemark.client.transactions.sink_batches import RetiredQueryError
from tidemark.codec.murmur2 import partition_for_key
from tidemark_jobs.keys import parse_key
from tidemark_jobs.reshard.options import Options
from tidemark_jobs.reshard.partitioners import parse_partitioner
from tidemark_jobs.reshard.query import GrownTopicError, Target, run, settle_plan
from tidemark_spark.errors import OptionError
from waiting import until_told

SERVERS = 3
BATCHES = 21
RECORDS = 630
ADAPTIVE: Final = {
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.adaptive.streaming.stateless.enabled": "true",
    "spark.sql.adaptive.forceOptimizeSkewedJoin": "true",
    "spark.sql.adaptive.skewJoin.skewedPartitionFactor": "1",
    "spark.sql.adaptive.skewJoin.skewedPartitionThresholdInBytes": "1",
    "spark.sql.adaptive.optimizeSkewsInRebalancePartitions.enabled": "true",
    "spark.sql.adaptive.coalescePartitions.minPartitionSize": "1",
    "spark.sql.adaptive.advisoryPartitionSizeInBytes": "1KB",
}
"""Adaptive execution that splits and merges whatever it may."""


@dataclass
class Pair:
    """Two topics, the options to reshard one into the other, and what the job said."""

    cluster: Cluster
    source: str
    target: str
    options: Options
    lines: list[str] = field(default_factory=list)

    def feed(self, lines: list[str]) -> dict[int, list[bytes]]:
        """Each line to the partition of its server; what is in each."""
        fed: dict[int, list[bytes]] = defaultdict(list)
        for line in lines:
            server = int(line.split("\t")[1].removeprefix("search-"))
            fed[server % SERVERS].append(line.encode())
        for partition, values in fed.items():
            produce(self.cluster, self.source, values, partition=partition)
        return fed

    def reshard(self, spark: SparkSession, **changes: object) -> None:
        run(spark, replace(self.options, **changes), self.lines.append)  # type: ignore[arg-type]

    def read(self, topic: str | None = None) -> list[ConsumerRecord]:
        """What a reader of committed records finds, partition by partition, in order."""
        return committed_records(self.cluster, topic or self.target, 2)


def queries(count: int) -> list[str]:
    """Of some twenty users, half of whom begin in upper case."""
    return [
        line.replace("\tuser-", "\tUser-") if int(line.split("\t")[2][5:]) % 2 else line
        for line in islice(search_queries(1_000, seed=1), count)
    ]


@pytest.fixture
def pair(cluster: Cluster, topic_name: Callable[[str], str], tmp_path: Path) -> Pair:
    source = create(cluster, topic_name("by-server"), SERVERS)
    target = create(cluster, topic_name("by-user"), 2)
    options = Options(
        bootstrap_servers=cluster.grpc(),
        source=source,
        target=target,
        key=parse_key("field:3"),
        partitioner=parse_partitioner("case"),
        checkpoint=str(tmp_path / "checkpoint"),
        group_id=f"reshard-{target}",
        sink_id=f"reshard-{target}",
        available_now=True,
    )
    return Pair(cluster, source, target, options)


def chains(records: Iterable[tuple[int, bytes]]) -> dict[tuple[int, bytes], list[bytes]]:
    """What each user asked of each source partition, in order."""
    found: dict[tuple[int, bytes], list[bytes]] = defaultdict(list)
    for partition, value in records:
        found[partition, value.split(b"\t")[2]].append(value)
    return found


def source_of(value: bytes) -> int:
    """The source partition that ``feed`` puts a line in."""
    return int(value.split(b"\t")[1].removeprefix(b"search-")) % SERVERS


@pytest.mark.feature("R04", "R05", "R06", "R07", "R08")
@pytest.mark.parametrize("shuffle", ["auto", "always"])
def test_every_record_once_in_order_under_its_user(
    spark: SparkSession, pair: Pair, shuffle: str
) -> None:
    lines = queries(RECORDS)
    assert len(set(lines)) < len(lines), "persistent users ask the same again"
    fed = pair.feed(lines)
    with configured(spark, ADAPTIVE):
        source_options = {"maxOffsetsPerTrigger": str(RECORDS // BATCHES)}
        pair.reshard(spark, source_options=source_options, shuffle=shuffle)
    records = pair.read()
    # R07, R08: each as often as it was asked, no more and no less.
    assert Counter(record.value for record in records) == Counter(line.encode() for line in lines)
    # R06: per key the order of the source partition.
    assert chains((source_of(value), value) for value in values_of(records)) == chains(
        (partition, value) for partition, values in fed.items() for value in values
    )
    # R05: users in lower case in the first partition, in upper case in the second.
    assert {(record.partition, chr(as_bytes(record.key)[0])) for record in records} == {
        (0, "u"),
        (1, "U"),
    }
    wait_group_offsets(pair, {partition: len(values) for partition, values in fed.items()})
    told = [line for line in pair.lines if line.startswith("batch ")]
    assert len(told) >= BATCHES - 1
    assert " lag            0 " in told[-1]


def test_a_lost_checkpoint_goes_on_from_the_groups_offsets(
    spark: SparkSession, pair: Pair, tmp_path: Path
) -> None:
    lines = queries(90)
    first, other = pair.options.checkpoint, str(tmp_path / "other")
    pair.feed(lines[:40])
    pair.reshard(spark)
    pair.feed(lines[40:])
    pair.reshard(spark, checkpoint=other)
    assert Counter(values_of(pair.read())) == Counter(line.encode() for line in lines)
    assert any("taken over from query" in line for line in pair.lines)
    pair.feed(lines[:1])
    with pytest.raises(StreamingQueryException, match="took it over"):  # the first one, come back
        pair.reshard(spark, checkpoint=first)
    pair.reshard(spark, checkpoint=other)
    assert len(pair.read()) == len(lines) + 1


def test_of_two_new_drivers_the_later_goes_on(
    spark: SparkSession, pair: Pair, tmp_path: Path
) -> None:
    lines = queries(30)
    pair.feed(lines)
    early = replace(pair.options, checkpoint=str(tmp_path / "early"))
    settle_plan(spark, early, Target(lambda _: 2, early), pair.lines.append)
    pair.reshard(spark)
    # The early one may have read the group's offsets long ago: what it would write is refused.
    with pytest.raises(RetiredQueryError):
        run(spark, early, pair.lines.append)
    assert Counter(values_of(pair.read())) == Counter(line.encode() for line in lines)


def test_records_without_key_are_set_aside(
    spark: SparkSession, pair: Pair, topic_name: Callable[[str], str]
) -> None:
    lost = create(pair.cluster, topic_name("lost"), 2)
    produce(pair.cluster, pair.source, [b"no tabs"], partition=1, headers=(("trace", b"7"),))
    pair.feed(queries(30))
    pair.reshard(spark, dead_letters=lost, metrics_port=0)
    assert len(pair.read()) == 30
    (letter,) = pair.read(lost)
    assert (letter.partition, letter.key, letter.value) == (1, None, b"no tabs")
    assert dict(letter.headers) == {
        "trace": b"7",
        "reshard.reason": b"no-key",
        "reshard.source": f"{pair.source}-1@0".encode(),
    }
    assert "without key 1," in pair.lines[-1]
    assert any("metrics on port" in line for line in pair.lines)


def test_a_record_without_key_ends_the_query(spark: SparkSession, pair: Pair) -> None:
    produce(pair.cluster, pair.source, [b"no tabs"], partition=1)
    with pytest.raises(StreamingQueryException, match="-1@0 has no key: give --dead-letters"):
        pair.reshard(spark)
    assert pair.read() == []
    wait_group_offsets(pair, {})


def test_growth_is_refused_or_pinned(spark: SparkSession, pair: Pair) -> None:
    lines = queries(60)
    pair.feed(lines[:30])

    def grow_at_the_first_batch(line: str) -> None:
        if line.startswith("batch "):
            with_admin(pair.cluster, lambda admin: admin.create_partitions({pair.target: 4}))

    running = replace(pair.options, available_now=False, watch_seconds=1)
    with pytest.raises(GrownTopicError, match="has 4 partitions now"):
        run(spark, running, grow_at_the_first_batch)
    pair.feed(lines[30:])
    with pytest.raises(GrownTopicError, match="--pin-partitions to keep writing to the first 2"):
        pair.reshard(spark)
    pair.reshard(spark, pin_partitions=True)
    records = pair.read()
    assert Counter(values_of(records)) == Counter(line.encode() for line in lines)
    assert {record.partition for record in records} == {0, 1}


def test_a_pinned_number_of_partitions_places_keys_without_a_shuffle(
    spark: SparkSession, pair: Pair
) -> None:
    rule = parse_partitioner("murmur2")
    pair.feed(queries(30))
    pair.reshard(spark, partitioner=rule)
    with_admin(pair.cluster, lambda admin: admin.create_partitions({pair.target: 4}))
    pair.feed(queries(60))
    pair.reshard(spark, partitioner=rule, pin_partitions=True)
    records = pair.read()
    assert len(records) == 90
    assert {partition_for_key(as_bytes(each.key), 2) == each.partition for each in records} == {
        True
    }


def test_a_source_partition_in_several_tasks_keeps_its_order(
    spark: SparkSession, pair: Pair
) -> None:
    fed = pair.feed(queries(200))
    pair.reshard(spark, source_options={"maxRecordsPerPartition": "10"})
    assert chains((source_of(value), value) for value in values_of(pair.read())) == chains(
        (partition, value) for partition, values in fed.items() for value in values
    )


def test_a_restart_keeps_its_rules(spark: SparkSession, pair: Pair) -> None:
    pair.feed(queries(10))
    pair.reshard(spark)
    with pytest.raises(OptionError, match="the checkpoint's query has the partitioner case"):
        pair.reshard(spark, partitioner=parse_partitioner("murmur2"))


def test_at_least_once(spark: SparkSession, pair: Pair) -> None:
    lines = queries(30)
    pair.feed(lines)
    pair.reshard(spark, exactly_once=False, partitioner=parse_partitioner("murmur2"))
    records = pair.read()
    assert Counter(values_of(records)) == Counter(line.encode() for line in lines)
    assert {
        record.partition == partition_for_key(as_bytes(record.key), 2) for record in records
    } == {True}


def values_of(records: Iterable[ConsumerRecord]) -> list[bytes]:
    return [as_bytes(record.value) for record in records]


def as_bytes(field: bytes | None) -> bytes:
    assert field is not None
    return field


def wait_group_offsets(pair: Pair, wanted: Mapping[int, int]) -> None:
    """Until the job's group reads these offsets next, by source partition; their marker may be on
    its way.
    """

    async def watch(admin: Admin) -> None:
        async def are_wanted() -> bool:
            committed = await admin.list_group_offsets(pair.options.group_id)
            return {place.partition: found.offset for place, found in committed.items()} == wanted

        await until_told(are_wanted, f"the group reads {wanted} next")

    with_admin(pair.cluster, watch)
