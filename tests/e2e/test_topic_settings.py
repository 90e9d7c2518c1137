"""What a topic's configuration does, seen by clients: time stamps, sizes, codecs, what is kept and
what goes.
"""

from collections.abc import Callable
from functools import partial

import confluent_kafka
import kafka
import pytest
from e2e.client_matrix import CLIENTS, CODECS, Message, WriteRefused, installed
from e2e.clusters import Cluster
from e2e.kafka_wire import Wire
from e2e.wire import (
    ask,
    asked_to_create,
    connect,
    create_topic,
    delete_topic,
    stored,
    stored_records,
    to_leader,
)
from tidemark.client import sync
from tidemark.codec.records import build_batch
from tidemark.kafka import list_offsets
from tidemark.kafka.apis import ApiKey
from tidemark.kafka.produce import ProducePartitionResult
from tidemark.model.errors import ErrorCode
from tidemark.runtime.clock import Clock
from waiting import PATIENCE_MS, PATIENCE_S, wait_for

pytestmark = [pytest.mark.e2e]

Names = Callable[[str], str]
HOUR_MS = 3_600_000
MIB = 1024 * 1024
ZSTD = CODECS.index("zstd")
TOPIC_RESOURCE = 2
SET = 0
WAIT_S = PATIENCE_S


def now_ms() -> int:
    return Clock().wall_ms()


def put(
    wire: Wire,
    topic: str,
    *records: tuple[bytes | None, bytes | None],
    time: int | None = None,
    codec: int = 0,
    partition: int = 0,
) -> ProducePartitionResult:
    """Write (key, value) records as one batch."""
    stamp = now_ms() if time is None else time
    data = build_batch([(stamp, key, value, ()) for key, value in records], compression=codec)
    return wire.produce(topic, data, partition=partition, acks=-1)


def outcome(result: ProducePartitionResult) -> ErrorCode:
    return ErrorCode(result.error_code)


def earliest(wire: Wire, topic: str) -> int:
    return int(wire.offset(topic, 0, list_offsets.EARLIEST_TIMESTAMP).offset)


def alter(wire: Wire, topic: str, **configs: object) -> None:
    """Set keys of a topic (``max_message_bytes=...``)."""
    changes = [
        {"name": key.replace("_", "."), "config_operation": SET, "value": str(value)}
        for key, value in configs.items()
    ]
    resource = {"resource_type": TOPIC_RESOURCE, "resource_name": topic, "configs": changes}
    answer = ask(wire, ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, {"resources": [resource]})
    assert [one.error_code for one in answer.responses] == [ErrorCode.NONE]


# -- time stamps


@pytest.mark.feature("Y01")
@pytest.mark.parametrize("name", CLIENTS)
def test_with_log_append_time_records_carry_the_brokers_time(
    cluster: Cluster, topic_name: Names, name: str
) -> None:
    client, topic = installed(name), topic_name("stamped")
    create_topic(cluster, topic, configs={"message.timestamp.type": "LogAppendTime"})
    before = now_ms()
    with to_leader(cluster, topic) as wire:
        results = [
            put(wire, topic, (b"k", b"1"), (b"k", b"2"), time=5, codec=CODECS.index(codec))
            for codec in client.codecs
        ]
        assert all(before <= result.log_append_time_ms <= now_ms() for result in results)
        assert all(batch.header.is_log_append_time for batch in stored(wire, topic))
    found = client.read(client.bootstrap(cluster), topic, {0: 2 * len(results)})
    times = [result.log_append_time_ms for result in results for _ in range(2)]
    assert [one.timestamp for one in found] == times


@pytest.mark.feature("Y01")
def test_with_create_time_records_keep_their_own_time(cluster: Cluster, topic_name: Names) -> None:
    topic = topic_name("own-time")
    create_topic(cluster, topic, configs={"retention.ms": -1})
    with to_leader(cluster, topic) as wire:
        assert put(wire, topic, (b"k", b"v"), time=5).log_append_time_ms == -1
        assert [record.timestamp for record in stored_records(wire, topic)] == [5]


@pytest.mark.feature("Y01")
def test_times_too_far_from_the_brokers_are_refused(cluster: Cluster, topic_name: Names) -> None:
    topic = topic_name("bounded")
    bounds = {"message.timestamp.before.max.ms": HOUR_MS, "message.timestamp.after.max.ms": HOUR_MS}
    create_topic(cluster, topic, configs=bounds)
    with to_leader(cluster, topic) as wire:
        for time in (5, now_ms() - 2 * HOUR_MS, now_ms() + 2 * HOUR_MS):
            refused = put(wire, topic, (b"k", b"v"), time=time)
            assert outcome(refused) is ErrorCode.INVALID_TIMESTAMP
        assert outcome(put(wire, topic, (b"k", b"v"), time=now_ms() - 60_000)) is ErrorCode.NONE
        assert len(stored_records(wire, topic)) == 1
    producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap})
    errors: list[str] = []

    def delivered(error: confluent_kafka.KafkaError | None, _: object) -> None:
        errors.append("" if error is None else error.name())

    producer.produce(topic, b"v", timestamp=5, on_delivery=delivered)
    assert producer.flush(WAIT_S) == 0
    assert errors == ["INVALID_TIMESTAMP"]


# -- sizes


@pytest.mark.feature("Y01")
def test_max_message_bytes_is_the_topics_own_and_can_be_raised(
    cluster: Cluster, topic_name: Names
) -> None:
    topic = topic_name("small")
    create_topic(cluster, topic, configs={"max.message.bytes": 2_000})
    with to_leader(cluster, topic) as wire:
        assert outcome(put(wire, topic, (None, b"v" * 1_900))) is ErrorCode.NONE
        assert outcome(put(wire, topic, (None, b"v" * 2_000))) is ErrorCode.MESSAGE_TOO_LARGE
        # It counts as it comes: compressed.
        assert outcome(put(wire, topic, (None, b"v" * 9_000), codec=ZSTD)) is ErrorCode.NONE
        alter(wire, topic, max_message_bytes=4_000)
        wait_for(
            lambda: outcome(put(wire, topic, (None, b"v" * 2_000))) is ErrorCode.NONE,
            "the new bound is in force",
        )


# -- codecs


@pytest.mark.feature("A20")
@pytest.mark.parametrize("name", CLIENTS)
def test_compression_type_zstd_is_what_every_codec_becomes(
    cluster: Cluster, topic_name: Names, name: str
) -> None:
    client, topic = installed(name), topic_name("zstd")
    create_topic(cluster, topic, len(CODECS), configs={"compression.type": "zstd"})
    sent: dict[int, list[Message]] = {}
    for codec in client.codecs:
        partition = CODECS.index(codec)
        sent[partition] = [
            Message(b"k%d" % number, b"value " * 50, (("h", b"1"),), partition)
            for number in range(20)
        ]
        client.write(client.bootstrap(cluster), topic, sent[partition], codec=codec)
    for partition, messages in sent.items():
        with to_leader(cluster, topic, partition) as wire:
            batches = stored(wire, topic, partition)
        assert {batch.header.compression for batch in batches} == {ZSTD}
        found = [record for batch in batches for record in batch.records]
        assert [(one.key, one.value, one.headers) for one in found] == [
            (one.key, one.value, one.headers) for one in messages
        ]
        assert [one.offset for one in found] == list(range(20))


@pytest.mark.feature("A20")
@pytest.mark.parametrize("target", ["uncompressed", "gzip", "snappy", "lz4"])
def test_every_compression_type_can_be_asked_for(
    cluster: Cluster, topic_name: Names, target: str
) -> None:
    topic = topic_name("target")
    create_topic(cluster, topic, configs={"compression.type": target})
    expected = 0 if target == "uncompressed" else CODECS.index(target)
    with to_leader(cluster, topic) as wire:
        for codec in range(len(CODECS)):
            assert outcome(put(wire, topic, (b"k", b"v" * 500), codec=codec)) is ErrorCode.NONE
        batches = stored(wire, topic)
        assert {batch.header.compression for batch in batches} == {expected}
        assert [one.value for one in stored_records(wire, topic)] == [b"v" * 500] * len(CODECS)


# -- what is kept

COMPACTED = {
    "cleanup.policy": "compact",
    "segment.ms": 50,
    "min.cleanable.dirty.ratio": 0.01,
    "file.delete.delay.ms": 0,
}


def kept(wire: Wire, topic: str, partition: int = 0) -> list[tuple[bytes | None, bytes | None]]:
    return [(one.key, one.value) for one in stored_records(wire, topic, partition)]


COMPACTION_S = PATIENCE_S
"""It runs at a low priority: on a busy machine it takes its time."""


@pytest.mark.feature("A19")
def test_a_compacted_topic_keeps_the_last_value_of_each_key(
    mortal_cluster: Cluster, topic_name: Names
) -> None:
    topic = topic_name("compacted")
    create_topic(mortal_cluster, topic, leaders=[1] * len(CODECS), configs=COMPACTED)
    expected = [(b"k2", b"2 of 2"), (b"k3", b"2 of 3"), (b"k0", None), (b"k1", b"last")]

    def compacted(wire: Wire, partition: int) -> bool:
        return kept(wire, topic, partition) == expected

    with connect(mortal_cluster.kafka(1)) as wire:
        for partition in range(len(CODECS)):
            for version in range(3):
                records = [(b"k%d" % key, b"%d of %d" % (version, key)) for key in range(4)]
                put(wire, topic, *records, codec=partition, partition=partition)
            put(wire, topic, (b"k0", None), (b"k1", b"last"), codec=partition, partition=partition)
        for partition in range(len(CODECS)):
            wait_for(partial(compacted, wire, partition), "compacted", wait_s=COMPACTION_S)
            found = stored_records(wire, topic, partition)
            assert [one.offset for one in found] == [10, 11, 12, 13]
            # Offsets stay: whoever asks for one that went reads on behind it.
            found = stored_records(wire, topic, partition, offset=11)
            assert [one.offset for one in found] == [11, 12, 13]
        assert put(wire, topic, (b"k2", b"new")).base_offset == 14
    check_read_with_gaps(mortal_cluster, topic)


def check_read_with_gaps(cluster: Cluster, topic: str) -> None:
    """Clients that begin at 0 get what is left from offset 10 on."""
    # With auto commit, librdkafka's close() would wait for a group coordinator.
    settings = {"bootstrap.servers": cluster.bootstrap, "group.id": "none"}
    confluent = confluent_kafka.Consumer(settings | {"enable.auto.commit": False})
    confluent.assign([confluent_kafka.TopicPartition(topic, 4, 0)])
    assert [one.offset() for one in confluent.consume(4, WAIT_S)] == [10, 11, 12, 13]
    confluent.close()
    python = kafka.KafkaConsumer(bootstrap_servers=cluster.bootstrap.split(","))
    partition = kafka.TopicPartition(topic, 4)
    python.assign([partition])
    python.seek(partition, 0)
    found = wait_for(lambda: python.poll(500).get(partition), "kafka-python reads")
    assert [one.offset for one in found] == [10, 11, 12, 13]
    python.close()
    with sync.Consumer(cluster.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([(topic, 4)])
        own = wait_for(lambda: consumer.poll() or None, "our own client reads")
    assert [one.offset for one in own] == [10, 11, 12, 13]


@pytest.mark.feature("A19")
def test_tombstones_go_in_the_end(mortal_cluster: Cluster, topic_name: Names) -> None:
    topic = topic_name("buried")
    create_topic(mortal_cluster, topic, configs=COMPACTED | {"delete.retention.ms": 0})
    with to_leader(mortal_cluster, topic) as wire:
        put(wire, topic, (b"dead", b"v"), (b"dead", None), (b"alive", b"v"))
        left = [(b"dead", None), (b"alive", b"v")]
        wait_for(
            lambda: kept(wire, topic) in (left, left[1:]),
            "the dead value is gone",
            wait_s=COMPACTION_S,
        )
        put(wire, topic, (b"alive", b"w"))
        wait_for(
            lambda: kept(wire, topic) == [(b"alive", b"w")],
            "the tombstone is gone too",
            wait_s=COMPACTION_S,
        )


@pytest.mark.feature("A19")
@pytest.mark.parametrize("codec", range(len(CODECS)))
def test_a_compacted_topic_refuses_records_without_keys(
    cluster: Cluster, topic_name: Names, codec: int
) -> None:
    topic = topic_name("keyless")
    create_topic(cluster, topic, configs={"cleanup.policy": "compact"})
    with to_leader(cluster, topic) as wire:
        refused = put(wire, topic, (b"k", b"v"), (None, b"no key"), codec=codec)
        assert outcome(refused) is ErrorCode.INVALID_RECORD
        assert [index for index, _ in refused.record_errors] == [1]
        assert stored(wire, topic) == []


# Error 87 in the clients' words; aiokafka has none for it.
KEY_WANTED = r"(?i)invalid_?record|failed to validate record|UnknownError"


@pytest.mark.feature("A19")
@pytest.mark.parametrize("name", CLIENTS)
def test_clients_hear_that_a_key_is_wanted(cluster: Cluster, topic_name: Names, name: str) -> None:
    client, topic = installed(name), topic_name("keyless")
    create_topic(cluster, topic, configs={"cleanup.policy": "compact"})
    with pytest.raises(WriteRefused, match=KEY_WANTED):
        client.write(client.bootstrap(cluster), topic, [Message(None, b"v", (), 0)])


@pytest.mark.feature("A17")
def test_records_older_than_retention_ms_go(mortal_cluster: Cluster, topic_name: Names) -> None:
    topic = topic_name("old")
    create_topic(mortal_cluster, topic, configs={"retention.ms": HOUR_MS, "segment.ms": 50})
    with to_leader(mortal_cluster, topic) as wire:
        put(wire, topic, (b"k", b"old"), (b"k", b"old"), time=now_ms() - 2 * HOUR_MS)
        wait_for(lambda: earliest(wire, topic) == 2, "what is too old is gone")
        put(wire, topic, (b"k", b"young"))
        assert [one.value for one in stored_records(wire, topic, offset=2)] == [b"young"]
        (of_topic,) = wire.fetch((topic, 0, 0)).topics
        gone = of_topic.partitions[0].result
        assert (gone.error_code, gone.log_start_offset) == (ErrorCode.OFFSET_OUT_OF_RANGE, 2)


@pytest.mark.feature("A17", "B01")
def test_what_exceeds_retention_bytes_goes_by_whole_segments(
    mortal_cluster: Cluster, topic_name: Names
) -> None:
    topic = topic_name("large")
    limits = {"segment.bytes": MIB, "retention.bytes": 2 * MIB, "file.delete.delay.ms": 0}
    create_topic(mortal_cluster, topic, leaders=[1], configs=limits)
    directory = mortal_cluster.data_directory(1) / f"{topic}-0"
    value = b"v" * 100_000
    with connect(mortal_cluster.kafka(1)) as wire:
        for _ in range(60):
            put(wire, topic, (None, value))

        def segments() -> list[int]:
            return sorted(int(path.stem) for path in directory.glob("*.log"))

        wait_for(lambda: len(segments()) <= 4, "old segments are gone")
        assert all(path.stat().st_size <= MIB for path in directory.glob("*.log"))
        start = earliest(wire, topic)
        assert start == segments()[0] > 0
        records = stored_records(wire, topic, offset=start)
        assert [one.offset for one in records] == list(range(start, 60))
        assert len(records) * len(value) >= 1.8 * MIB


@pytest.mark.feature("A17", "A18")
def test_readers_go_on_behind_deleted_records(cluster: Cluster, topic_name: Names) -> None:
    topic = topic_name("cut")
    create_topic(cluster, topic)
    with to_leader(cluster, topic) as wire:
        for number in range(6):
            put(wire, topic, (None, b"%d" % number))
        partition = {"partition_index": 0, "offset": 4}
        fields = {"topics": [{"name": topic, "partitions": [partition]}], "timeout": PATIENCE_MS}
        answer = ask(wire, ApiKey.DELETE_RECORDS, 2, fields)
        assert answer.topics[0].partitions[0].low_watermark == 4
        assert earliest(wire, topic) == 4
        assert wire.fetch((topic, 0, 3)).topics[0].partitions[0].result.error_code == (
            ErrorCode.OFFSET_OUT_OF_RANGE
        )
    python = kafka.KafkaConsumer(
        bootstrap_servers=cluster.bootstrap.split(","), auto_offset_reset="earliest"
    )
    reading = kafka.TopicPartition(topic, 0)
    python.assign([reading])
    python.seek(reading, 0)
    found = wait_for(lambda: python.poll(500).get(reading), "reads on")
    assert [one.value for one in found] == [b"4", b"5"]
    python.close()


# -- durability


@pytest.mark.feature("Y10", "C07", "C08")
@pytest.mark.parametrize("acks", [1, -1])
@pytest.mark.parametrize("name", CLIENTS)
def test_every_client_writes_to_a_topic_that_is_synced_before_it_answers(
    cluster: Cluster, topic_name: Names, name: str, acks: int
) -> None:
    client, topic = installed(name), topic_name("synced")
    create_topic(cluster, topic, configs={"flush": "group"})
    messages = [Message(None, b"%d" % number, (), 0) for number in range(10)]
    client.write(client.bootstrap(cluster), topic, messages, acks=acks)
    with to_leader(cluster, topic) as wire:
        assert [value for _, value in kept(wire, topic)] == [one.value for one in messages]


@pytest.mark.feature("Y10", "B04")
@pytest.mark.parametrize("flush", ["os", "group"])
def test_what_was_acknowledged_survives_kill_9(
    mortal_cluster: Cluster, topic_name: Names, flush: str
) -> None:
    topic = topic_name("survives")
    create_topic(mortal_cluster, topic, leaders=[2], configs={"flush": flush})
    client = CLIENTS["confluent-kafka"]
    messages = [Message(b"k", b"%d" % number, (), 0) for number in range(500)]
    client.write(mortal_cluster.bootstrap, topic, messages, codec="zstd")
    mortal_cluster.kill("broker-2")
    mortal_cluster.restart("broker-2")
    with connect(mortal_cluster.kafka(2)) as wire:
        # With flush=group they are readable only once synced anew.
        wait_for(lambda: len(kept(wire, topic)) == len(messages), "readable again")
        assert [value for _, value in kept(wire, topic)] == [one.value for one in messages]


# -- topics that come and go


@pytest.mark.feature("Y01")
def test_topics_are_made_by_asking_only_where_that_is_on(
    mortal_cluster: Cluster, topic_name: Names
) -> None:
    refused, made = topic_name("off"), topic_name("on")
    with connect(mortal_cluster.kafka(2)) as off, connect(mortal_cluster.kafka(1)) as on:
        (topic,) = off.metadata(refused, create=True).topics
        assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        (topic,) = on.metadata(made, create=False).topics
        assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        on.metadata(made, create=True)
        wait_for(
            lambda: on.metadata(made).topics[0].error_code == ErrorCode.NONE, "the topic is made"
        )
        assert len(on.metadata(made).topics[0].partitions) == 3, "this broker's num.partitions"
        assert off.metadata(refused).topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.fixture
def reborn(mortal_cluster: Cluster, topic_name: Names) -> tuple[str, bytes]:
    """A topic on broker 2 with old records, and its id."""
    topic = topic_name("reborn")
    topic_id = create_topic(mortal_cluster, topic, leaders=[2])
    with connect(mortal_cluster.kafka(2)) as wire:
        for number in range(10):
            put(wire, topic, (b"k", b"old %d" % number))
    return topic, topic_id


def check_nothing_old(cluster: Cluster, topic: str, old_id: bytes) -> None:
    with connect(cluster.kafka(2)) as wire:
        assert wire.offset(topic, 0, list_offsets.LATEST_TIMESTAMP).offset == 0
        assert stored(wire, topic) == []
        stale = wire.fetch(("", 0, 0), version=13, topic_id=old_id).topics[0]
        assert stale.partitions[0].result.error_code == ErrorCode.UNKNOWN_TOPIC_ID
        assert put(wire, topic, (b"k", b"new")).base_offset == 0
        assert kept(wire, topic) == [(b"k", b"new")]
    client = CLIENTS["kafka-python"]
    found = client.read(cluster.bootstrap, topic, {0: 1})
    assert [one.value for one in found] == [b"new"]


@pytest.mark.feature("Y01", "A17")
def test_a_recreated_topic_is_empty(mortal_cluster: Cluster, reborn: tuple[str, bytes]) -> None:
    topic, old_id = reborn
    delete_topic(mortal_cluster, topic)
    assert create_topic(mortal_cluster, topic, leaders=[2]) != old_id
    check_nothing_old(mortal_cluster, topic, old_id)


@pytest.mark.feature("Y01", "A17")
@pytest.mark.parametrize("how", ["stopped", "killed"])
def test_a_topic_recreated_while_its_broker_was_away_is_empty(
    mortal_cluster: Cluster, reborn: tuple[str, bytes], how: str
) -> None:
    topic, old_id = reborn
    if how == "stopped":
        assert mortal_cluster.terminate("broker-2")
        delete_topic(mortal_cluster, topic)
        mortal_cluster.restart("broker-2")
        create_topic(mortal_cluster, topic, leaders=[2])
    else:
        mortal_cluster.kill("broker-2")
        # Its session lasts on for a moment: to the controller it is alive, unless this machine
        # is so slow that the session ends first.
        delete_topic(mortal_cluster, topic)
        made = asked_to_create(mortal_cluster, topic, leaders=[2])
        mortal_cluster.restart("broker-2")
        if made.error_code != ErrorCode.NONE:
            assert made.error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT, made.error_message
            create_topic(mortal_cluster, topic, leaders=[2])
    check_nothing_old(mortal_cluster, topic, old_id)
