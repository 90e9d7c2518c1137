"""Share groups while leaders and coordinators are killed: nothing is lost, and no record that was
acknowledged comes again.
"""

import asyncio
import contextlib
import uuid
from collections.abc import Iterator
from functools import partial

import confluent_kafka
import confluent_kafka.admin
import pytest
from e2e.clusters import Cluster, started_cluster
from e2e.kafka_wire import Wire
from e2e.share_wire import ShareMember, ShareReader, configure_group, find_coordinator, port_of
from tidemark.client import ShareConsumer, TopicPartition
from waiting import PATIENCE_S, patience, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

QUICK = {"zookeeper.session.timeout.ms": 4_000}
BROKER = {
    **QUICK,
    "replica.lag.time.max.ms": 4_000,
    "share.coordinator.state.topic.num.partitions": 3,
    "offsets.topic.num.partitions": 3,
}
At = tuple[int, int]
"""Partition and offset."""
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
        running = self.cluster.running()
        asked = next(one for one in (1, 2, 3) if f"broker-{one}" in running)
        with Wire(port_of(self.cluster.kafka(asked))) as wire:
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


def serving(story: Story) -> set[str]:
    """Brokers that answer a fetch of partition 0 without an error."""
    found = set()
    for number in (1, 2, 3):
        member = ShareMember(port_of(story.cluster.kafka(number)), story.group, story.topic)
        with member.wire:
            parts = member.fetch(0, wait_ms=0)
        if 0 not in parts or not parts[0].error:
            found.add(f"broker-{number}")
    return found


@pytest.mark.feature("S07")
def test_a_share_partition_is_at_the_leader_of_its_partition(
    cluster: Cluster, story: Story
) -> None:
    story.put(30)
    story.read_until_all()
    before = story.leader()
    assert serving(story) == {before}
    cluster.kill(before)
    try:
        wait_for(lambda: story.leader() not in (before, "broker--1"), "another leader")
    finally:
        cluster.restart(before)
    wait_for(lambda: serving(story) == {story.leader()}, "the share-partition at the new leader")


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


# -- native consumers


class NativeMember:
    """A native consumer that accepts what it reads.

    ``accepted`` has the records whose acceptance was confirmed, ``read`` every record, by partition
    and offset; the members of a group share both.
    """

    def __init__(self, story: Story, accepted: set[At], read: dict[At, bytes]) -> None:
        self.story = story
        self.accepted = accepted
        self.read = read
        self.has_all = False
        """True once nothing more is put."""
        self.again: list[At] = []
        """Records that came although they were accepted before."""

    async def run(self) -> None:
        """Read until all that is put was read, by this member or another."""
        async with ShareConsumer(
            self.story.cluster.bootstrap,
            group_id=self.story.group,
            share_acknowledgement_mode="explicit",
            max_poll_records=10,
            retry_backoff_ms=20,
            retry_backoff_max_ms=200,
        ) as consumer:
            consumer.subscribe([self.story.topic])
            while not self.has_all or len(self.read) < len(self.story.values):
                await self._round(consumer)

    async def _round(self, consumer: ShareConsumer) -> None:
        records = await consumer.poll(timeout_ms=200)
        found = {(one.partition, one.offset): one.value or b"" for one in records}
        self.again += self.accepted & found.keys()
        self.read |= found
        for record in records:
            consumer.acknowledge(record)
        outcomes = await consumer.commit_sync()
        self.accepted |= {
            at for at in found if outcomes[TopicPartition(self.story.topic, at[0])] is None
        }


def reached(accepted: set[At], count: int) -> bool:
    """True if so many records were accepted."""
    return len(accepted) >= count


@pytest.mark.feature("S19", "S31")
def test_native_consumers_survive_killed_leaders_and_coordinators(
    cluster: Cluster, story: Story
) -> None:
    accepted: set[At] = set()
    read: dict[At, bytes] = {}
    members = [NativeMember(story, accepted, read) for _ in range(2)]

    def kill_and_restart() -> None:
        for victim in (story.leader(), *COORDINATORS):
            enough = len(accepted) + 20
            story.put(100)
            wait_for(partial(reached, accepted, enough), "records")
            cluster.kill(victim)
            try:
                story.put(100)
            finally:
                cluster.restart(victim)

    async def work() -> None:
        async with patience(), asyncio.TaskGroup() as tasks:
            for one in members:
                tasks.create_task(one.run())
            await asyncio.to_thread(kill_and_restart)
            for one in members:
                one.has_all = True

    asyncio.run(work())
    assert sorted(read.values()) == sorted(story.values)
    assert [one.again for one in members] == [[], []]
