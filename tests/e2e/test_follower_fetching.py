"""Consumers that read from the follower in their rack (KIP-392): librdkafka, the native client and
the command line, in a cluster of two brokers with a rack each.
"""

from collections.abc import Callable, Iterator

import pytest
from broker.read_replica_config import RACK_AWARE
from confluent_kafka import Consumer, Producer, TopicPartition
from e2e.clusters import Cluster, started_cluster
from e2e.command_line import Cli
from e2e.follower_reads import VALUE, bytes_out, led_by_one, write
from tidemark.client import sync
from tidemark.model.topics import TopicPartition as Place
from waiting import PATIENCE_S, wait_for

pytestmark = [pytest.mark.e2e]

NEAR_FOLLOWER = "rack-2"
RECORDS = 50

Names = Callable[[str], str]


@pytest.fixture(scope="module")
def racks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two brokers; broker-1 is in rack-1, broker-2 in rack-2."""
    started = started_cluster(
        tmp_path_factory.mktemp("racks"),
        brokers=2,
        txn_coordinators=1,
        overrides={"broker": {"replica.selector.class": RACK_AWARE}},
    )
    yield started
    started.end()


def reader(cluster: Cluster, topic: str, rack: str, **settings: object) -> Consumer:
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": f"{topic}-readers",
            "client.rack": rack,
            "auto.offset.reset": "earliest",
            **settings,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    return consumer


def keys(consumer: Consumer, count: int) -> list[bytes | None]:
    """The keys of the next records."""
    found = consumer.consume(count, timeout=PATIENCE_S)
    assert [message.error() for message in found] == [None] * count
    return [message.key() for message in found]


@pytest.mark.feature("A06", "C01")
def test_librdkafka_reads_from_the_follower_in_its_rack(racks: Cluster, topic_name: Names) -> None:
    topic = led_by_one(racks, topic_name("near"))
    write(racks, topic, RECORDS)
    consumer = reader(racks, topic, NEAR_FOLLOWER)
    try:
        assert keys(consumer, RECORDS) == [b"%d" % number for number in range(RECORDS)]
        assert bytes_out(racks, 1, topic) == 0
        assert bytes_out(racks, 2, topic) >= RECORDS * len(VALUE)
        write(racks, topic, 1)
        assert keys(consumer, 1) == [b"0"], "a record written while it waits at the follower"
    finally:
        consumer.close()


@pytest.mark.feature("A06", "C01")
@pytest.mark.parametrize("rack", ["", "rack-1", "rack-of-nobody"])
def test_a_consumer_without_a_follower_near_it_reads_from_the_leader(
    racks: Cluster, topic_name: Names, rack: str
) -> None:
    topic = led_by_one(racks, topic_name("far"))
    write(racks, topic, RECORDS)
    consumer = reader(racks, topic, rack)
    try:
        keys(consumer, RECORDS)
    finally:
        consumer.close()
    assert bytes_out(racks, 1, topic) >= RECORDS * len(VALUE)
    assert bytes_out(racks, 2, topic) == 0


@pytest.mark.feature("A06", "M02")
def test_a_follower_hides_aborted_and_open_transactions(racks: Cluster, topic_name: Names) -> None:
    topic = led_by_one(racks, topic_name("near"))
    settings = {"bootstrap.servers": racks.bootstrap, "transactional.id": topic}
    producer = Producer(settings)
    producer.init_transactions(PATIENCE_S)
    for key, ends in (
        (b"aborted", producer.abort_transaction),
        (b"committed", producer.commit_transaction),
        (b"open", None),
    ):
        producer.begin_transaction()
        producer.produce(topic, VALUE, key=key)
        producer.flush(PATIENCE_S)
        if ends is not None:
            ends(PATIENCE_S)
    consumer = reader(racks, topic, NEAR_FOLLOWER)
    try:
        assert keys(consumer, 1) == [b"committed"]
        assert consumer.poll(0) is None
        producer.commit_transaction(PATIENCE_S)
        assert keys(consumer, 1) == [b"open"]
    finally:
        consumer.close()
    assert bytes_out(racks, 1, topic) == 0
    assert bytes_out(racks, 2, topic) > 0


@pytest.mark.feature("A06")
def test_the_native_client_and_the_command_line_read_from_the_follower_too(
    racks: Cluster, topic_name: Names
) -> None:
    topic = led_by_one(racks, topic_name("near"))
    write(racks, topic, RECORDS)
    with sync.Consumer(
        racks.bootstrap, client_rack=NEAR_FOLLOWER, auto_offset_reset="earliest"
    ) as consumer:
        consumer.assign([Place(topic, 0)])
        found: list[object] = []

        def read() -> bool:
            found.extend(consumer.poll())
            return len(found) == RECORDS

        wait_for(read)
    once = bytes_out(racks, 2, topic)
    assert once >= RECORDS * len(VALUE)
    command = Cli(racks)
    assert len(command.read(topic, "--rack", NEAR_FOLLOWER, *command.kafka)) == RECORDS
    assert bytes_out(racks, 2, topic) == 2 * once
    assert bytes_out(racks, 1, topic) == 0
    refused = command.run("topic", "consume", topic, "--rack", "b", *command.grpc)
    assert b"over gRPC, records are read from leaders" in refused.stderr


@pytest.mark.feature("A06")
def test_readers_go_on_at_the_leader_when_their_follower_is_killed(
    racks: Cluster, topic_name: Names
) -> None:
    topic = led_by_one(racks, topic_name("near"))
    write(racks, topic, RECORDS)
    consumer = reader(racks, topic, NEAR_FOLLOWER)
    try:
        keys(consumer, RECORDS)
        racks.kill("broker-2")
        write(racks, topic, RECORDS)
        keys(consumer, RECORDS)
        assert bytes_out(racks, 1, topic) >= RECORDS * len(VALUE)
    finally:
        consumer.close()
        racks.restart("broker-2")
