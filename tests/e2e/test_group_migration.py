"""A live group changes its protocol: librdkafka's members restart one after the other, from the
classic protocol to KIP-848's and back, while records arrive.
"""

import time
from collections import Counter
from collections.abc import Iterator
from itertools import count

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient
from e2e.broker_processes import BrokerProcess, running_cluster
from e2e.test_groups import bootstrap, coordinator, create
from waiting import PATIENCE_S

QUICK = (
    *("--group.initial.rebalance.delay.ms", "100"),
    *("--group.consumer.heartbeat.interval.ms", "200"),
    *("--group.consumer.min.heartbeat.interval.ms", "200"),
)
PARTITIONS = 6
CLASSIC, CONSUMER = "CLASSIC", "CONSUMER"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[BrokerProcess]]:
    with running_cluster(tmp_path_factory.mktemp("migration"), 3, *QUICK) as brokers:
        yield brokers


class Rolling:
    """A group of two members and a producer. Members commit every record that they read."""

    def __init__(self, cluster: list[BrokerProcess], name: str, strategy: str) -> None:
        self.cluster, self.name, self.strategy = cluster, name, strategy
        self.producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap(cluster)})
        self.admin = AdminClient({"bootstrap.servers": bootstrap(cluster)})
        self.numbers = count()
        self.written = 0
        self.read: Counter[int] = Counter()
        self.refused: list[str] = []
        self.members: list[confluent_kafka.Consumer] = []

    def member(self, protocol: str) -> confluent_kafka.Consumer:
        of_classic = {
            "session.timeout.ms": 30_000,
            "heartbeat.interval.ms": 200,
            "partition.assignment.strategy": self.strategy,
        }
        settings = {
            "bootstrap.servers": bootstrap(self.cluster),
            "group.id": self.name,
            "group.protocol": protocol.lower(),
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **(of_classic if protocol == CLASSIC else {}),
        }
        made = confluent_kafka.Consumer(settings)
        made.subscribe([self.name])
        return made

    def goes_on(self) -> None:
        """Write one value, and let every member poll."""
        self.producer.produce(self.name, value=str(next(self.numbers)))
        self.producer.poll(0)
        self.written += 1
        for member in self.members:
            message = member.poll(0.02)
            if message is not None:
                assert message.error() is None, message.error()
                self.read[int(message.value() or b"")] += 1
                self.commit(member, message)

    def commit(self, member: confluent_kafka.Consumer, message: confluent_kafka.Message) -> None:
        """Commit one record. A refusal means that the partition changes hands: it is read again."""
        try:
            member.commit(message=message, asynchronous=False)
        except confluent_kafka.KafkaException as refused:
            self.refused.append(refused.args[0].name())

    def until(self, what: str, holds: object) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not holds():  # type: ignore[operator]
            assert time.monotonic() < deadline, what
            self.goes_on()

    def shared(self) -> bool:
        """True if the members have all partitions, each one a fair part."""
        sizes = [len(member.assignment()) for member in self.members]
        return sum(sizes) == PARTITIONS and max(sizes) - min(sizes) <= 1

    def replace(self, place: int, protocol: str) -> None:
        """Restart one member, as a rolling deployment does."""
        self.members[place].close()
        self.members[place] = self.member(protocol)
        self.until(f"member {place} is in", self.shared)

    def type(self) -> str:
        listed = self.admin.list_consumer_groups().result(PATIENCE_S).valid
        return next(str(one.type.name) for one in listed if one.group_id == self.name)

    def ends(self) -> None:
        """Read everything, and close."""
        assert self.producer.flush(PATIENCE_S) == 0
        written = self.written
        self.until("everything is read", lambda: all(self.read[n] for n in range(written)))
        for member in self.members:
            member.close()

    def positions(self) -> int:
        """Sum of the committed offsets: how many records the group does not read again."""
        reader = self.member(CLASSIC)
        everything = [confluent_kafka.TopicPartition(self.name, one) for one in range(PARTITIONS)]
        committed = reader.committed(everything, PATIENCE_S)
        reader.close()
        return sum(max(one.offset, 0) for one in committed)


@pytest.mark.feature("A09", "A10", "A11", "Y01")
@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_members_change_their_protocol_one_after_the_other(
    cluster: list[BrokerProcess], strategy: str
) -> None:
    create(cluster, f"rolled-{strategy}", PARTITIONS)
    group = Rolling(cluster, f"rolled-{strategy}", strategy)
    group.members = [group.member(CLASSIC), group.member(CLASSIC)]
    group.until("a classic group", group.shared)
    types = [group.type()]
    for place, protocol in ((0, CONSUMER), (1, CONSUMER), (0, CLASSIC), (1, CLASSIC)):
        group.replace(place, protocol)
        types.append(group.type())
    assert types == [CLASSIC, CONSUMER, CONSUMER, CONSUMER, CLASSIC]
    group.ends()
    assert group.positions() == len(group.read), "no record is skipped"


@pytest.mark.feature("A11", "E03", "E13", "Y01")
def test_a_group_of_both_protocols_outlives_its_coordinator(cluster: list[BrokerProcess]) -> None:
    create(cluster, "rolled-killed", PARTITIONS)
    group = Rolling(cluster, "rolled-killed", "range")
    group.members = [group.member(CLASSIC), group.member(CONSUMER)]
    group.until("a group of both protocols", group.shared)
    victim = coordinator(cluster, "rolled-killed")
    victim.kill()
    try:
        written = group.written
        group.until("records are read", lambda: all(group.read[n] for n in range(written)))
        group.members.pop().close()
        group.until("everything is one member's", group.shared)
        assert group.type() == CLASSIC
        group.ends()
        assert group.positions() == len(group.read), "no record is skipped"
    finally:
        victim.start()
        victim.wait_ready()
