"""Share groups while leaders and coordinators are killed: nothing is lost, and no record that was
acknowledged comes again.
"""

import contextlib
import uuid
from collections.abc import Iterator

import confluent_kafka
import confluent_kafka.admin
import pytest
from e2e.clusters import Cluster, started_cluster
from e2e.kafka_wire import Wire
from e2e.share_wire import ShareReader, configure_group, find_coordinator, port_of
from waiting import PATIENCE_S, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

QUICK = {"zookeeper.session.timeout.ms": 4_000}
BROKER = {
    **QUICK,
    "replica.lag.time.max.ms": 4_000,
    "share.coordinator.state.topic.num.partitions": 3,
    "offsets.topic.num.partitions": 3,
}
COORDINATORS = ("share-coordinator-1", "share-coordinator-2")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three brokers and two share-coordinators. A test that kills one starts it again."""
    running = started_cluster(
        tmp_path_factory.mktemp("share-failover"),
        brokers=3,
        share_coordinators=2,
        overrides={"broker": BROKER, "share-coordinator": QUICK},
    )
    yield running
    running.end()


class Story:
    """A topic of three partitions and three replicas, values that are put there, and a reader."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        name = uuid.uuid4().hex[:8]
        self.topic, self.group = f"t-{name}", f"g-{name}"
        settings: dict[str, str | int | float | bool] = {"bootstrap.servers": cluster.bootstrap}
        admin = confluent_kafka.admin.AdminClient(settings)
        made = confluent_kafka.admin.NewTopic(self.topic, 3, 3)
        admin.create_topics([made])[self.topic].result(PATIENCE_S)
        self.producer = confluent_kafka.Producer({**settings, "enable.idempotence": True})
        self.values: list[bytes] = []
        with Wire(port_of(cluster.kafka(1))) as wire:
            find_coordinator(wire, self.group)
            configure_group(wire, self.group, share_auto_offset_reset="earliest")
        self.reader = ShareReader(cluster, self.group, self.topic)

    def put(self, count: int) -> None:
        """Values that nothing else has."""
        for _ in range(count):
            value = b"%d" % len(self.values)
            self.values.append(value)
            self.producer.produce(self.topic, value)
        assert self.producer.flush(PATIENCE_S) == 0

    def leader(self) -> str:
        """The process that leads partition 0."""
        with Wire(port_of(self.cluster.kafka(1))) as wire:
            state = wire.metadata(self.topic).topics[0].partitions
        return f"broker-{next(one.leader_id for one in state if one.partition == 0)}"

    def read_until_all(self) -> None:
        """Read until all that was put is accepted."""

        def has_all() -> bool:
            self.reader.round()
            return len(self.reader.accepted) >= len(self.values)

        wait_for(has_all, lambda: f"{len(self.reader.accepted)} of {len(self.values)}")
        assert self.reader.values == sorted(self.values)
        assert self.reader.again == []


@pytest.fixture
def story(cluster: Cluster) -> Iterator[Story]:
    """For one test."""
    told = Story(cluster)
    with contextlib.closing(told.producer):
        yield told
    told.reader.end()


@pytest.mark.feature("S30", "S31")
def test_a_killed_leader_loses_nothing_and_repeats_nothing(cluster: Cluster, story: Story) -> None:
    story.put(100)
    story.read_until_all()
    story.put(50)
    story.reader.round()
    victim = story.leader()
    cluster.kill(victim)
    try:
        story.put(50)
        story.read_until_all()
    finally:
        cluster.restart(victim)
    story.put(50)
    story.read_until_all()


@pytest.mark.feature("S30")
def test_killed_coordinators_lose_no_acknowledgement(cluster: Cluster, story: Story) -> None:
    story.put(100)
    story.read_until_all()
    for victim in COORDINATORS:
        story.put(50)
        story.reader.round()
        cluster.kill(victim)
        try:
            story.read_until_all()
        finally:
            cluster.restart(victim)
    story.put(50)
    story.read_until_all()
