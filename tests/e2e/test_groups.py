"""Consumer groups with real clients: shared, committed, taken over, and moved elsewhere."""

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import confluent_kafka
import confluent_kafka.admin
import pytest
from e2e.broker_processes import BrokerProcess, running_cluster
from e2e.kafka_wire import Wire
from e2e.processes import paused, running
from e2e.wire import ask
from tidemark.kafka.apis import ApiKey
from tidemark.model.errors import ErrorCode
from waiting import PATIENCE_S, wait_for

QUICK = ("--group.initial.rebalance.delay.ms", "100", "--offsets.topic.num.partitions", "5")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[BrokerProcess]]:
    with running_cluster(tmp_path_factory.mktemp("groups"), 3, *QUICK) as brokers:
        yield brokers


def bootstrap(cluster: list[BrokerProcess]) -> str:
    return ",".join(broker.bootstrap for broker in cluster)


def create(cluster: list[BrokerProcess], topic: str, partitions: int) -> None:
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": bootstrap(cluster)})
    new = confluent_kafka.admin.NewTopic(topic, partitions, 3)
    for done in admin.create_topics([new]).values():
        done.result(PATIENCE_S)


def produce(cluster: list[BrokerProcess], topic: str, values: range) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap(cluster), "acks": "all"})
    for value in values:
        producer.produce(topic, key=str(value), value=str(value))
    assert producer.flush(PATIENCE_S) == 0


def consumer(cluster: list[BrokerProcess], group: str, **more: object) -> confluent_kafka.Consumer:
    return confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap(cluster),
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": 30_000,
            "heartbeat.interval.ms": 500,
            **more,
        }
    )


def consume(one: confluent_kafka.Consumer, count: int, wait_s: float = PATIENCE_S) -> list[int]:
    found: list[int] = []
    deadline = time.monotonic() + wait_s
    while len(found) < count and time.monotonic() < deadline:
        message = one.poll(0.2)
        if message is not None and message.error() is None:
            found.append(int(message.value() or b""))
    return found


@pytest.mark.feature("A08", "A10", "A11", "D05", "E01", "E02", "E09")
def test_a_group_goes_on_where_it_committed(cluster: list[BrokerProcess]) -> None:
    create(cluster, "resumed", 2)
    produce(cluster, "resumed", range(100))
    first = consumer(cluster, "resumed-readers")
    first.subscribe(["resumed"])
    early = consume(first, 60)
    first.commit(asynchronous=False)
    first.close()
    second = consumer(cluster, "resumed-readers")
    second.subscribe(["resumed"])
    late = consume(second, 100 - len(early))
    second.close()
    assert sorted(early + late) == list(range(100))


@pytest.mark.feature("A08", "A11")
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_both_protocols_serve_a_group_of_two(cluster: list[BrokerProcess], protocol: str) -> None:
    topic = f"pair-{protocol}"
    create(cluster, topic, 4)
    more = {"group.protocol": protocol}
    if protocol == "consumer":
        more = {**more, **dict.fromkeys(("session.timeout.ms", "heartbeat.interval.ms"))}  # type: ignore[dict-item]
    pair = [_joined(cluster, f"{topic}-readers", more) for _ in range(2)]
    for one in pair:
        one.subscribe([topic])
    wait_for(lambda: _polled(pair) == [2, 2], "two partitions each")
    owned = [{each.partition for each in one.assignment()} for one in pair]
    assert owned[0] | owned[1] == {0, 1, 2, 3}
    pair[0].close()
    wait_for(lambda: _polled(pair[1:]) == [4], "all partitions for the one that stays")
    pair[1].close()


def _joined(
    cluster: list[BrokerProcess], group: str, more: dict[str, str]
) -> confluent_kafka.Consumer:
    made: dict[str, object] = {
        "bootstrap.servers": bootstrap(cluster),
        "group.id": group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "session.timeout.ms": 6_000,
        "heartbeat.interval.ms": 500,
        **more,
    }
    return confluent_kafka.Consumer(
        {key: value for key, value in made.items() if value is not None}
    )


def _polled(consumers: list[confluent_kafka.Consumer]) -> list[int]:
    """How many partitions each has, after it was given the chance to hear."""
    for one in consumers:
        one.poll(0.1)
    return [len(one.assignment()) for one in consumers]


@pytest.mark.feature("A09", "E14")
def test_a_member_that_hung_commits_nothing_any_more(cluster: list[BrokerProcess]) -> None:
    create(cluster, "hung", 1)
    produce(cluster, "hung", range(10))
    with hung_member(cluster, "hung-readers", "hung", 10) as member:
        heir = consumer(cluster, "hung-readers")
        heir.subscribe(["hung"])
        taken = consume(heir, 10)  # the other does not poll, and is put out
        heir.commit(asynchronous=False)
        assert commit_as(cluster, "hung-readers", member, "hung", 3) in STALE
        assert taken == list(range(10))
        committed = heir.committed([confluent_kafka.TopicPartition("hung", 0)])
        assert committed[0].offset == 10
        heir.close()


@contextmanager
def hung_member(cluster: list[BrokerProcess], group: str, topic: str, count: int) -> Iterator[str]:
    """The id of a member that has read ``count`` records and hangs."""
    script = Path(__file__).with_name("hung_member.py")
    argv = [sys.executable, str(script), bootstrap(cluster), group, topic, str(count)]
    pipe = subprocess.PIPE
    with running(argv, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout is not None
        member = process.stdout.readline().strip()
        assert member, "it ended before it had read anything"
        yield member


STALE = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION)


def commit_as(
    cluster: list[BrokerProcess], group: str, member: str, topic: str, offset: int
) -> ErrorCode:
    """The answer to a commit that a member of the first generation sends now. librdkafka itself
    keeps it back, or waits for ever, while it leaves the group.
    """
    partition = {"partition_index": 0, "committed_offset": offset}
    asked = {
        "group_id": group,
        "generation_id_or_member_epoch": 1,
        "member_id": member,
        "topics": [{"name": topic, "partitions": [partition]}],
    }
    with Wire(coordinator(cluster, group).port) as wire:
        answer = ask(wire, ApiKey.OFFSET_COMMIT, 8, asked)
    return ErrorCode(answer.topics[0].partitions[0].error_code)


@pytest.mark.feature("E03", "E11", "E12", "H15", "N03")
def test_a_group_outlives_its_coordinator(cluster: list[BrokerProcess]) -> None:
    create(cluster, "moved", 3)
    produce(cluster, "moved", range(30))
    reader = consumer(cluster, "moved-readers")
    reader.subscribe(["moved"])
    assert sorted(consume(reader, 30)) == list(range(30))
    reader.commit(asynchronous=False)
    victim = coordinator(cluster, "moved-readers")
    victim.kill()
    try:
        produce(cluster, "moved", range(30, 60))
        assert sorted(consume(reader, 30)) == list(range(30, 60))
        reader.commit(asynchronous=False)
        partitions = [confluent_kafka.TopicPartition("moved", number) for number in range(3)]
        assert sum(one.offset for one in reader.committed(partitions, timeout=PATIENCE_S)) == 60
    finally:
        victim.start()
        victim.wait_ready()
        reader.close()


@pytest.mark.feature("E09")
def test_positions_go_with_their_topic_and_its_successor_has_its_own(
    cluster: list[BrokerProcess],
) -> None:
    group = "short-lived-readers"
    for topic in ("short-lived", "lasting"):
        create(cluster, topic, 1)
        commit_all(cluster, topic, group, 3)
    assert positions(cluster, group) == {"short-lived": 3, "lasting": 3}
    delete(cluster, "short-lived")
    wait_for(lambda: positions(cluster, group) == {"lasting": 3}, "its position is gone")
    create(cluster, "short-lived", 1)
    commit_all(cluster, "short-lived", group, 2)
    victim = coordinator(cluster, group)
    victim.kill()
    try:
        wait_for(
            lambda: positions(cluster, group) == {"short-lived": 2, "lasting": 3},
            "the next coordinator has what was committed",
        )
    finally:
        victim.start()
        victim.wait_ready()


def delete(cluster: list[BrokerProcess], topic: str) -> None:
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": bootstrap(cluster)})
    for done in admin.delete_topics([topic]).values():
        done.result(PATIENCE_S)


def commit_all(cluster: list[BrokerProcess], topic: str, group: str, count: int) -> None:
    """Produce so many records to a topic of one partition, read and commit them."""
    produce(cluster, topic, range(count))
    reader = consumer(cluster, group)
    reader.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    assert consume(reader, count) == list(range(count))
    reader.commit(asynchronous=False)
    reader.close()


def positions(cluster: list[BrokerProcess], group: str) -> dict[str, int]:
    """Committed offset of partition 0, by topic; empty while nobody coordinates the group.

    Not asked by librdkafka's AdminClient: one that is closed after its request of a dead
    coordinator timed out may abort the process (the assertion ``eonce->refcnt > 0`` of 2.16.0).
    """
    asked = {"groups": [{"group_id": group, "topics": None}], "require_stable": True}
    try:
        with Wire(coordinator(cluster, group).port) as wire:
            (found,) = ask(wire, ApiKey.OFFSET_FETCH, 8, asked).groups
    except OSError:
        return {}
    return {one.name: one.partitions[0].committed_offset for one in found.topics}


@pytest.mark.feature("E05")
def test_a_commit_is_answered_once_every_replica_has_it(cluster: list[BrokerProcess]) -> None:
    create(cluster, "held", 1)
    produce(cluster, "held", range(5))
    reader = consumer(cluster, "held-readers")
    reader.subscribe(["held"])
    assert consume(reader, 5) == list(range(5))
    wait_for(lambda: offsets_in_sync(cluster), "all offsets in sync")
    leader = coordinator(cluster, "held-readers")
    follower = next(one for one in cluster if one is not leader)
    answered = threading.Event()

    def commit() -> None:
        reader.commit(asynchronous=False)
        answered.set()

    committing = threading.Thread(target=commit, daemon=True)
    with paused(follower.pid):
        committing.start()
        held = not answered.wait(HELD_S)
        assert held or not offsets_in_sync(cluster), "answered without a replica of the ISR"
    assert answered.wait(PATIENCE_S), "the replica is back"
    reader.close()


HELD_S = 1.2
"""Shorter than a broker's ZooKeeper session here: the follower stays in the ISR."""


def offsets_in_sync(cluster: list[BrokerProcess]) -> bool:
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": bootstrap(cluster)})
    wanted = confluent_kafka.TopicCollection(["__consumer_offsets"])
    (described,) = admin.describe_topics(wanted).values()
    return all(len(one.isr) == len(cluster) for one in described.result(PATIENCE_S).partitions)


def coordinator(cluster: list[BrokerProcess], group: str) -> BrokerProcess:
    """The broker that coordinates a group, as a running one says."""
    asked = {"key": group, "key_type": 0}

    def found() -> int | None:
        running_broker = next(one for one in cluster if one.is_running)
        with Wire(running_broker.port) as wire:
            answer = ask(wire, ApiKey.FIND_COORDINATOR, 3, asked)
        return None if answer.error_code else int(answer.node_id)

    number = wait_for(found, f"{group} has a coordinator")
    return next(one for one in cluster if one.number == number)


@pytest.mark.feature("A08")
def test_groups_are_listed_described_and_deleted(cluster: list[BrokerProcess]) -> None:
    create(cluster, "listed", 1)
    produce(cluster, "listed", range(5))
    reader = consumer(cluster, "listed-readers")
    reader.subscribe(["listed"])
    consume(reader, 5)
    reader.commit(asynchronous=False)
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": bootstrap(cluster)})
    described = admin.describe_consumer_groups(["listed-readers"])["listed-readers"].result(
        PATIENCE_S
    )
    assert described.state == confluent_kafka.ConsumerGroupState.STABLE
    assert len(described.members) == 1
    with pytest.raises(confluent_kafka.KafkaException, match="NON_EMPTY_GROUP"):
        admin.delete_consumer_groups(["listed-readers"])["listed-readers"].result(PATIENCE_S)
    reader.close()
    listed = admin.list_consumer_groups().result().valid
    assert "listed-readers" in {one.group_id for one in listed}
    admin.delete_consumer_groups(["listed-readers"])["listed-readers"].result(PATIENCE_S)
    assert "listed-readers" not in {
        one.group_id for one in admin.list_consumer_groups().result().valid
    }
