"""Share groups with librdkafka's share consumer."""

import uuid
from collections.abc import Callable, Iterator
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import AcknowledgeType
from e2e.clusters import Cluster, started_cluster
from e2e.kafka_wire import Wire, batch
from e2e.share_wire import configure_group, port_of
from waiting import PATIENCE_S, wait_for

pytestmark = pytest.mark.e2e

SETTINGS = {
    "share.coordinator.state.topic.num.partitions": 3,
    "offsets.topic.num.partitions": 3,
    "num.partitions": 2,
}
EXPLICIT = {"share.acknowledgement.mode": "explicit"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One broker and a share-coordinator."""
    directory = tmp_path_factory.mktemp("share-clients")
    running = started_cluster(directory, share_coordinators=1, overrides={"broker": SETTINGS})
    yield running
    running.end()


class Scene:
    """A topic of two partitions, and a group that reads it from its beginning."""

    def __init__(self, cluster: Cluster) -> None:
        self.bootstrap = cluster.kafka(1)
        name = uuid.uuid4().hex[:8]
        self.topic, self.group = f"t-{name}", f"g-{name}"
        self.wire = Wire(port_of(self.bootstrap))
        self.wire.metadata(self.topic, create=True)
        configure_group(self.wire, self.group, share_auto_offset_reset="earliest")

    def put(self, *values: bytes) -> None:
        """Half of the values into each partition."""
        for partition in (0, 1):
            records = batch(*values[partition::2])
            assert self.wire.produce(self.topic, records, partition=partition).error_code == 0

    def consumer(self, **more: str) -> confluent_kafka.ShareConsumer:
        settings = {name.replace("_", "."): value for name, value in more.items()}
        made = confluent_kafka.ShareConsumer(
            {"bootstrap.servers": self.bootstrap, "group.id": self.group, **settings}
        )
        made.subscribe([self.topic])
        return made


@pytest.fixture
def scene(cluster: Cluster) -> Iterator[Scene]:
    """For one test."""
    made = Scene(cluster)
    with made.wire:
        yield made


TEN = tuple(b"%d" % number for number in range(10))


def poll_until(consumer: Any, count: int, act: Callable[[Any], None] = lambda _: None) -> list[Any]:
    """At least so many messages; ``act`` is called with each."""
    found: list[Any] = []

    def look() -> bool:
        for message in consumer.poll(0.5):
            assert message.error() is None, message.error()
            found.append(message)
            act(message)
        return len(found) >= count

    wait_for(look, lambda: f"{len(found)} of {count}")
    return found


def values(messages: list[Any]) -> list[bytes]:
    return sorted(message.value() for message in messages)


@pytest.mark.feature("S03", "S04", "T02", "T03", "T09", "T10")
def test_a_consumer_accepts_what_it_has_polled(scene: Scene) -> None:
    scene.put(*TEN)
    with scene.consumer() as consumer:
        assert values(poll_until(consumer, 10)) == sorted(TEN)
        results = consumer.commit_sync(PATIENCE_S)
        assert len(results) == 2
        assert set(results.values()) == {None}
    scene.put(b"a", b"b")
    with scene.consumer() as another:
        assert values(poll_until(another, 2)) == [b"a", b"b"]


@pytest.mark.feature("T04", "T12")
def test_records_are_accepted_released_and_rejected(scene: Scene) -> None:
    scene.put(*TEN)
    types = (AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT)
    with scene.consumer(**EXPLICIT) as consumer:

        def sort(message: Any) -> None:
            consumer.acknowledge(message, types[int(message.value()) % 3])

        poll_until(consumer, 10, sort)
        assert set(consumer.commit_sync(PATIENCE_S).values()) == {None}
        again = poll_until(consumer, 3, consumer.acknowledge)
        assert values(again) == [b"1", b"4", b"7"]
        assert set(consumer.commit_sync(PATIENCE_S).values()) == {None}


@pytest.mark.feature("T08")
def test_a_consumer_that_closes_releases_what_it_has_not_acknowledged(scene: Scene) -> None:
    scene.put(*TEN)
    consumer = scene.consumer(**EXPLICIT)
    messages = poll_until(consumer, 10)
    consumer.acknowledge(messages[0])
    consumer.close()
    with scene.consumer() as another:
        rest = poll_until(another, 9)
        assert values([*rest, messages[0]]) == sorted(TEN)


@pytest.mark.feature("S01")
def test_more_consumers_than_partitions_share_them(scene: Scene) -> None:
    consumers = [scene.consumer(max_poll_records="1") for _ in range(4)]
    counts = dict.fromkeys(range(4), 0)
    seen: set[bytes | None] = set()
    numbers = iter(range(1_000_000))

    def look() -> bool:
        scene.put(*(b"%d" % next(numbers) for _ in range(8)))
        for index, consumer in enumerate(consumers):
            for message in consumer.poll(0.2):
                assert message.value() not in seen, "each record goes to one consumer"
                seen.add(message.value())
                counts[index] += 1
        return all(counts.values())

    try:
        wait_for(look, lambda: str(counts))
    finally:
        for consumer in consumers:
            consumer.close()
