"""What a member of a share group gets and accepts while its cluster fails: for every client."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import confluent_kafka
import confluent_kafka.admin
from conformance.java_programs import RunningProgram, started
from e2e.clusters import Cluster, started_cluster
from e2e.kafka_wire import Wire
from e2e.share_wire import configure_group, port_of
from waiting import PATIENCE_S, wait_for

QUICK: Final = {"zookeeper.session.timeout.ms": 4_000}
BROKER: Final = {
    **QUICK,
    "replica.lag.time.max.ms": 4_000,
    "share.coordinator.state.topic.num.partitions": 3,
    "offsets.topic.num.partitions": 3,
}
VICTIMS: Final = ("the leader", "share-coordinator-1", "share-coordinator-2")


@contextmanager
def share_cluster(directory: Path) -> Iterator[Cluster]:
    """Three brokers, two share-coordinators. A test that kills one starts it again."""
    running = started_cluster(
        directory,
        brokers=3,
        share_coordinators=2,
        overrides={"broker": BROKER, "share-coordinator": QUICK},
    )
    try:
        yield running
    finally:
        running.end()


def create_topic(cluster: Cluster, name: str) -> None:
    """Create a topic of three partitions and three replicas."""
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": cluster.bootstrap})
    made = confluent_kafka.admin.NewTopic(name, 3, 3)
    admin.create_topics([made])[name].result(PATIENCE_S)


def read_from_the_beginning(cluster: Cluster, group: str) -> None:
    """Let a group begin at the earliest offsets."""
    with Wire(port_of(cluster.kafka(1))) as wire:
        configure_group(wire, group, share_auto_offset_reset="earliest")


def put(cluster: Cluster, topic: str, first: int, count: int) -> None:
    """Produce the numbers from ``first`` on."""
    producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap})
    for number in range(first, first + count):
        producer.produce(topic, b"%d" % number)
    assert producer.flush(PATIENCE_S) == 0


class Story:
    """Values that are put into a topic while a member reads it."""

    def __init__(self, cluster: Cluster, name: str, reader: RunningProgram) -> None:
        self.cluster = cluster
        self.name = name
        self.reader = reader
        self.count = 0

    def put(self, count: int) -> None:
        put(self.cluster, self.name, self.count, count)
        self.count += count

    def wait_read(self) -> None:
        """Wait until every value was accepted. An acknowledgement whose answer was lost with the
        broker may hold, and then its record does not come again.
        """

        def values() -> set[str]:
            facts = self.reader.told()
            return {value.partition(" ")[2] for fact, value in facts if fact != "got"}

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


def survive_kills(cluster: Cluster, name: str, argv: list[str], log_path: Path) -> None:
    """Run a member that accepts all it gets, while the leader and the share-coordinators are killed
    one after the other: all is read, and nothing that was accepted comes again.
    """
    create_topic(cluster, name)
    read_from_the_beginning(cluster, name)
    with started(argv, log_path) as reader:
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
