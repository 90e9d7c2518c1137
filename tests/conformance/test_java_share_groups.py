"""Kafka's own KafkaShareConsumer, unmodified, against a cluster. Run by ``make conformance``."""

import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import confluent_kafka.admin
import pytest
from conformance.java_programs import JavaPrograms, RunningProgram, build, started
from e2e.clusters import Cluster, started_cluster
from e2e.kafka_wire import Wire
from e2e.share_wire import configure_group, port_of
from waiting import PATIENCE_S, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

QUICK = {"zookeeper.session.timeout.ms": 4_000}
BROKER = {
    **QUICK,
    "replica.lag.time.max.ms": 4_000,
    "share.coordinator.state.topic.num.partitions": 3,
    "offsets.topic.num.partitions": 3,
}
VICTIMS = ("the leader", "share-coordinator-1", "share-coordinator-2")


@pytest.fixture(scope="module")
def programs() -> JavaPrograms:
    return build()


@pytest.fixture(scope="module")
def cluster(programs: JavaPrograms, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three brokers, two share-coordinators. A test that kills one starts it again."""
    running = started_cluster(
        tmp_path_factory.mktemp("java-share"),
        brokers=3,
        share_coordinators=2,
        overrides={"broker": BROKER, "share-coordinator": QUICK},
    )
    yield running
    running.end()


@pytest.fixture
def name() -> str:
    """For topics and groups of one test."""
    return f"j-{uuid.uuid4().hex[:8]}"


@pytest.mark.feature("S03", "S04", "T02", "T03", "T04", "T08", "T09", "T10", "T12", "Y01")
def test_a_share_consumer_acknowledges_in_every_way(
    programs: JavaPrograms, cluster: Cluster, name: str
) -> None:
    assert programs.facts("ShareGroups", cluster.bootstrap, name) == {
        "implicit": "200",
        "implicit records": "200",
        "acknowledged twice": "IllegalStateException",
        "explicit": "30",
        "released": "10 [2x1]",
        "renewed": "[1 renewed, 1 accepted]",
        "shared": "true",
        "shared values": "200",
    }


class Story:
    """Values that are put into a topic while a Java member reads it."""

    def __init__(self, cluster: Cluster, name: str, reader: RunningProgram) -> None:
        self.cluster = cluster
        self.name = name
        self.reader = reader
        self.producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap})
        self.count = 0

    def put(self, count: int) -> None:
        for _ in range(count):
            self.producer.produce(self.name, b"%d" % self.count)
            self.count += 1
        assert self.producer.flush(PATIENCE_S) == 0

    def accepted(self) -> list[str]:
        """Records whose acceptance was answered."""
        return [value for fact, value in self.reader.told() if fact == "accepted"]

    def wait_read(self) -> None:
        """Until every value was accepted."""

        def values() -> set[str]:
            return {record.partition(" ")[2] for record in self.accepted()}

        wait_for(lambda: len(values()) == self.count, self.reader.story)

    def victim(self, what: str) -> str:
        """The process of that name, or the one that leads partition 0."""
        if what != "the leader":
            return what
        with Wire(port_of(self.cluster.kafka(1))) as wire:
            partitions = wire.metadata(self.name).topics[0].partitions
        return f"broker-{next(one.leader_id for one in partitions if one.partition == 0)}"


def came_again(facts: list[tuple[str, str]]) -> list[str]:
    """Records that were delivered, or accepted, after their acceptance had been answered."""
    accepted: Counter[str] = Counter()
    again = []
    for fact, record in facts:
        if fact in ("got", "accepted") and accepted[record]:
            again.append(record)
        accepted[record] += fact == "accepted"
    return again


@pytest.mark.feature("S19", "S30", "S31", "Y01")
def test_a_share_consumer_survives_killed_leaders_and_coordinators(
    programs: JavaPrograms, cluster: Cluster, name: str, tmp_path: Path
) -> None:
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": cluster.bootstrap})
    made = confluent_kafka.admin.NewTopic(name, 3, 3)
    admin.create_topics([made])[name].result(PATIENCE_S)
    with Wire(port_of(cluster.kafka(1))) as wire:
        configure_group(wire, name, share_auto_offset_reset="earliest")
    argv = programs.argv("ShareReader", cluster.bootstrap, name, name)
    with started(argv, tmp_path / "reader.log") as reader:
        story = Story(cluster, name, reader)
        story.put(100)
        story.wait_read()
        for what in VICTIMS:
            story.put(50)
            victim = story.victim(what)
            cluster.kill(victim)
            try:
                story.put(50)
                story.wait_read()
            finally:
                cluster.restart(victim)
        assert came_again(reader.told()) == []
