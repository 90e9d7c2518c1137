"""Replication end to end: three broker processes, a controller and a real ZooKeeper."""

import re
import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)
from e2e.broker_processes import BrokerProcess, running_cluster
from e2e.kafka_wire import Wire, batch, records_of
from e2e.processes import paused
from e2e.wire import ask
from tidemark.client import sync
from tidemark.codec.records import build_batch
from tidemark.kafka.apis import ApiKey
from tidemark.model.errors import ErrorCode
from tidemark.runtime.clock import Clock
from waiting import PATIENCE_MS, PATIENCE_S, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

LAG_MS = 1_500
NONE_PARKED = re.compile(r"^kafka_server_delayedoperationpurgatory_purgatorysize\S* 0", re.M)
ANOTHER_AFTER_S = 10.0
"""A broker that is paused does not answer: the next one is asked."""


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[BrokerProcess]]:
    directory = tmp_path_factory.mktemp("replicated")
    quick = ("--replica.lag.time.max.ms", str(LAG_MS), "--replica.fetch.backoff.ms", "200")
    with running_cluster(directory, 3, *quick) as started:
        yield started


@pytest.fixture
def whole(brokers: list[BrokerProcess]) -> list[BrokerProcess]:
    """All three, running again whatever the test before did to them."""
    for broker in brokers:
        if not broker.is_running:
            broker.start()
    for broker in brokers:
        broker.wait_ready()
    return brokers


class Topic:
    """One topic of one partition on all three brokers."""

    def __init__(self, brokers: list[BrokerProcess], name: str, **configs: str) -> None:
        self.brokers = brokers
        self.name = name
        self.bootstrap = ",".join(broker.bootstrap for broker in brokers)
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        new = self._as_asked(configs)
        admin.create_topics([new])[name].result(PATIENCE_S)
        self.wait_isr(3)

    def _as_asked(self, configs: dict[str, str]) -> NewTopic:
        return NewTopic(self.name, num_partitions=1, replication_factor=3, config=configs)

    def state(self) -> Any:
        """The partition as a running broker describes it; None while none does."""
        for broker in self.brokers:
            if not broker.is_running:
                continue
            try:
                with Wire(broker.port, timeout_s=ANOTHER_AFTER_S) as wire:
                    (topic,) = wire.metadata(self.name).topics
            except OSError:
                continue
            if topic.error_code == 0 and topic.partitions[0].leader_id >= 0:
                return topic.partitions[0]
        return None

    @property
    def leader(self) -> BrokerProcess:
        """Who leads."""
        state = wait_for(self.state, f"{self.name} has no leader")
        return self.brokers[int(state.leader_id) - 1]

    @property
    def followers(self) -> list[BrokerProcess]:
        """Who does not."""
        leader = self.leader
        return [broker for broker in self.brokers if broker is not leader]

    def wait_isr(self, size: int) -> None:
        """Until so many are in sync."""
        wait_for(
            lambda: (state := self.state()) is not None and len(state.isr) == size,
            lambda: f"{self.name}: wanted {size} in sync: {self.state()}",
        )

    def producer(self, **settings: object) -> Producer:
        """An idempotent one, acks=all."""
        return Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "enable.idempotence": True,
                "linger.ms": 0,
                "message.timeout.ms": PATIENCE_MS,
                "retry.backoff.ms": 50,
                **settings,
            }
        )

    def read_all(self, count: int) -> list[bytes]:
        """The first ``count`` values."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": "none",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
            }
        )
        consumer.assign([TopicPartition(self.name, 0, 0)])
        values: list[bytes] = []
        deadline = time.monotonic() + PATIENCE_S
        while len(values) < count and time.monotonic() < deadline:
            message = consumer.poll(0.5)
            if message is not None and message.error() is None:
                values.append(message.value() or b"")
        consumer.close()
        return values


class Sent:
    """What was acknowledged, in order, and what failed."""

    def __init__(self) -> None:
        self.acknowledged: list[bytes] = []
        self.failures: list[KafkaError] = []

    def on_delivery(self, error: KafkaError | None, message: Any) -> None:
        """The producer's callback."""
        if error is None:
            self.acknowledged.append(message.value())
        else:
            self.failures.append(error)


def send(producer: Producer, topic: Topic, numbers: range, sent: Sent) -> None:
    """Produce the numbers, without waiting for them."""
    for number in numbers:
        producer.produce(topic.name, b"%06d" % number, partition=0, on_delivery=sent.on_delivery)
        producer.poll(0)


@pytest.mark.feature("A07", "G09", "C08")
def test_acknowledged_records_survive_kill_9_of_the_leader(
    whole: list[BrokerProcess],
) -> None:
    topic = Topic(whole, "survives", **{"min.insync.replicas": "2"})
    producer, sent = topic.producer(), Sent()
    send(producer, topic, range(500), sent)
    assert producer.flush(PATIENCE_S) == 0
    killed = topic.leader
    send(producer, topic, range(500, 1_000), sent)
    killed.kill()
    send(producer, topic, range(1_000, 1_500), sent)
    assert producer.flush(PATIENCE_S) == 0
    assert sent.failures == []
    assert topic.leader is not killed
    assert topic.read_all(1_500) == [b"%06d" % number for number in range(1_500)]


@pytest.mark.feature("K07", "K09")
def test_a_new_leader_knows_every_producers_sequences(whole: list[BrokerProcess]) -> None:
    topic = Topic(whole, "sequences", **{"min.insync.replicas": "2"})
    old = topic.leader
    with Wire(old.port) as wire:
        producer_id = new_producer_id(wire)
        first = sequenced(producer_id, 0, b"a", b"b")
        assert produced(wire, topic, first) == (ErrorCode.NONE, 0)
        assert produced(wire, topic, sequenced(producer_id, 2, b"c")) == (ErrorCode.NONE, 2)
    old.kill()
    wait_for(lambda: topic.leader is not old, lambda: f"nobody took over: {topic.state()}")
    with Wire(topic.leader.port) as wire:
        # As a producer does that heard no answer: it is told the offset of then.
        assert produced(wire, topic, sequenced(producer_id, 2, b"c")) == (ErrorCode.NONE, 2)
        gap, _ = produced(wire, topic, sequenced(producer_id, 9, b"z"))
        assert gap is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert produced(wire, topic, sequenced(producer_id, 3, b"d")) == (ErrorCode.NONE, 3)
    assert topic.read_all(4) == [b"a", b"b", b"c", b"d"]


def new_producer_id(wire: Wire) -> int:
    """As a producer gets it when it starts."""
    fields = {
        "transactional_id": None,
        "transaction_timeout": 60_000,
        "producer_id": -1,
        "producer_epoch": -1,
    }
    answer = ask(wire, ApiKey.INIT_PRODUCER_ID, 4, fields)
    assert answer.error_code == ErrorCode.NONE
    return int(answer.producer_id)


def sequenced(producer_id: int, sequence: int, *values: bytes) -> bytes:
    """One batch of an idempotent producer."""
    records = [(Clock().wall_ms(), None, value, ()) for value in values]
    return build_batch(records, producer_id=producer_id, producer_epoch=0, base_sequence=sequence)


def produced(wire: Wire, topic: Topic, records: bytes) -> tuple[ErrorCode, int]:
    """What acks=all answered, with the first offset."""
    result = wire.produce(topic.name, records, version=10, acks=-1)
    return ErrorCode(result.error_code), result.base_offset


@pytest.mark.feature("G06", "G24")
def test_a_restarted_follower_catches_up_and_rejoins(whole: list[BrokerProcess]) -> None:
    topic = Topic(whole, "rejoins", **{"min.insync.replicas": "2"})
    producer, sent = topic.producer(), Sent()
    follower = topic.followers[0]
    follower.kill()
    send(producer, topic, range(300), sent)
    assert producer.flush(PATIENCE_S) == 0
    topic.wait_isr(2)
    follower.start()
    follower.wait_ready()
    topic.wait_isr(3)
    send(producer, topic, range(300, 400), sent)
    assert producer.flush(PATIENCE_S) == 0
    assert topic.read_all(400) == [b"%06d" % number for number in range(400)]


@pytest.mark.feature("G06", "G24")
def test_an_empty_follower_takes_a_batch_whose_beginning_was_deleted(
    whole: list[BrokerProcess],
) -> None:
    topic = Topic(whole, "half", **{"min.insync.replicas": "2", "retention.ms": "-1"})
    follower = topic.followers[0]
    follower.kill()
    topic.wait_isr(2)
    with Wire(topic.leader.port) as wire:
        assert produced(wire, topic, batch(*[b"x"] * 10)) == (ErrorCode.NONE, 0)
    admin = AdminClient({"bootstrap.servers": topic.bootstrap})
    (cut,) = admin.delete_records([TopicPartition("half", 0, 5)]).values()
    assert cut.result(PATIENCE_S).low_watermark == 5
    follower.start()
    follower.wait_ready()
    topic.wait_isr(3)


@pytest.mark.feature("A17")
def test_deleted_records_stay_away_when_the_leader_is_killed(whole: list[BrokerProcess]) -> None:
    topic = Topic(whole, "shortened", **{"min.insync.replicas": "2", "retention.ms": "-1"})
    producer, sent = topic.producer(), Sent()
    send(producer, topic, range(10), sent)
    assert producer.flush(PATIENCE_S) == 0
    admin = AdminClient({"bootstrap.servers": topic.bootstrap})
    (cut,) = admin.delete_records([TopicPartition(topic.name, 0, 5)]).values()
    assert cut.result(PATIENCE_S).low_watermark == 5
    topic.leader.kill()
    assert topic.read_all(5) == [b"%06d" % number for number in range(5, 10)]


@pytest.mark.feature("G14", "I09", "C10")
def test_acks_all_is_refused_below_min_insync_replicas(whole: list[BrokerProcess]) -> None:
    topic = Topic(whole, "refuses", **{"min.insync.replicas": "3"})
    topic.followers[0].kill()
    topic.wait_isr(2)
    with Wire(topic.leader.port) as wire:
        assert wire.produce(topic.name, batch(b"all"), version=10, acks=-1).error_code == 19
        assert wire.produce(topic.name, batch(b"one"), version=10, acks=1).error_code == 0


@pytest.mark.feature("G21", "G22", "G24")
def test_a_returning_leader_truncates_what_it_alone_has(whole: list[BrokerProcess]) -> None:
    topic = Topic(whole, "diverges", **{"min.insync.replicas": "2"})
    old = topic.leader
    with paused(*(follower.pid for follower in topic.followers)):
        # A fetch that waits at the leader would still bring them the record: it is answered first.
        wait_for(lambda: NONE_PARKED.search(old.http("/metrics")[1]), "no fetch waits")
        with Wire(old.port) as wire:
            assert wire.produce(topic.name, batch(b"lost"), version=10, acks=1).error_code == 0
        old.kill()
    producer, sent = topic.producer(), Sent()
    send(producer, topic, range(10), sent)
    assert producer.flush(PATIENCE_S) == 0
    old.start()
    old.wait_ready()
    topic.wait_isr(3)
    topic.leader.kill()
    assert topic.read_all(10) == [b"%06d" % number for number in range(10)]


@pytest.mark.feature("A03", "G01")
def test_each_partition_has_a_leader_followers_and_an_isr_of_its_own(
    whole: list[BrokerProcess],
) -> None:
    replicas = [[1, 2], [2, 3], [3, 1]]
    admin = AdminClient({"bootstrap.servers": ",".join(broker.bootstrap for broker in whole)})
    admin.create_topics([NewTopic("apart", len(replicas), replica_assignment=replicas)])[
        "apart"
    ].result(PATIENCE_S)

    def states() -> list[tuple[int, list[int]]]:
        with Wire(whole[0].port) as wire:
            found = wire.metadata("apart").topics[0].partitions
        return [(one.leader_id, sorted(one.isr)) for one in found]

    def become(wanted: list[tuple[int, list[int]]]) -> None:
        wait_for(lambda: states() == wanted, lambda: f"wanted {wanted}, found {states()}")

    become([(1, [1, 2]), (2, [2, 3]), (3, [1, 3])])
    whole[2].kill()
    become([(1, [1, 2]), (2, [2]), (1, [1])])
    whole[2].start()
    become([(1, [1, 2]), (2, [2, 3]), (1, [1, 3])])


def values_of(reader: sync.Consumer, count: int) -> list[bytes | None]:
    found: list[bytes | None] = []

    def has_all() -> bool:
        found.extend(record.value for record in reader.poll(timeout_ms=100))
        return len(found) >= count

    wait_for(has_all, lambda: f"the native client has read {found}")
    return found


@pytest.mark.feature("G01", "H12", "H13")
def test_who_left_the_isr_leads_only_where_losing_records_is_allowed(
    whole: list[BrokerProcess],
) -> None:
    first, second, witness = whole
    admin = AdminClient({"bootstrap.servers": witness.bootstrap})
    admin.create_topics([NewTopic("unclean", 1, replica_assignment=[[1, 2]])])["unclean"].result(
        PATIENCE_S
    )

    def state() -> tuple[int, list[int]]:
        with Wire(witness.port) as wire:
            (found,) = wire.metadata("unclean").topics[0].partitions
        return found.leader_id, sorted(found.isr)

    def become(leader: int, *isr: int) -> None:
        wait_for(lambda: state() == (leader, list(isr)), lambda: f"unclean is {state()}")

    def answered(broker: BrokerProcess, value: bytes) -> list[int] | None:
        with Wire(broker.port) as wire:
            code = int(wire.produce("unclean", batch(value), version=10, acks=-1).error_code)
        # The witness may have the topic before the others do.
        return None if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION else [code]

    def write(broker: BrokerProcess, value: bytes) -> int:
        return wait_for(lambda: answered(broker, value), "a broker has not heard of the topic")[0]

    become(1, 1, 2)
    assert write(first, b"in both") == ErrorCode.NONE
    second.kill()
    become(1, 1)
    assert write(first, b"in the first alone") == ErrorCode.NONE
    reader = sync.Consumer(witness.bootstrap, auto_offset_reset="earliest")
    reader.assign([("unclean", 0)])
    over_grpc = sync.Consumer(witness.grpc, transport="grpc", auto_offset_reset="earliest")
    over_grpc.assign([("unclean", 0)])
    for each in (reader, over_grpc):
        assert values_of(each, 2) == [b"in both", b"in the first alone"]
    first.kill()
    second.start()
    second.wait_ready()
    become(-1, 1)
    assert write(second, b"refused") == ErrorCode.NOT_LEADER_OR_FOLLOWER
    name = "unclean.leader.election.enable"
    entry = ConfigEntry(name, "true", incremental_operation=AlterConfigOpType.SET)
    changed = ConfigResource(ResourceType.TOPIC, "unclean", incremental_configs=[entry])
    admin.incremental_alter_configs([changed])[changed].result(PATIENCE_S)
    become(2, 2)
    first.start()
    become(2, 1, 2)
    with Wire(second.port) as wire:
        assert records_of(wire.fetch(("unclean", 0, 0))) == [b"in both"]
    for value in (b"instead", b"and more"):
        assert write(second, value) == ErrorCode.NONE
    for each in (reader, over_grpc):
        assert values_of(each, 2) == [b"instead", b"and more"], "where the logs differ"
        each.close()


@pytest.mark.feature("A16", "C09")
def test_a_stopping_leader_hands_over_first(whole: list[BrokerProcess]) -> None:
    topic = Topic(whole, "handed", **{"min.insync.replicas": "2"})
    producer, sent = topic.producer(), Sent()
    send(producer, topic, range(100), sent)
    assert producer.flush(PATIENCE_S) == 0
    stopped = topic.leader
    assert stopped.stop() == 0
    assert topic.leader is not stopped
    send(producer, topic, range(100, 200), sent)
    assert producer.flush(PATIENCE_S) == 0
    assert sent.failures == []
    assert topic.read_all(200) == [b"%06d" % number for number in range(200)]
