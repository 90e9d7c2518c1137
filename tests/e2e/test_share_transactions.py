"""Acknowledgements within transactions at real processes: they hold all or nothing."""

import uuid
from collections.abc import Iterator
from typing import Any

import confluent_kafka
import confluent_kafka.admin
import grpc
import pytest
from e2e import txn_wire
from e2e.clusters import Cluster, started_cluster
from e2e.kafka_wire import Wire
from e2e.share_coordinators import Coordinators
from e2e.share_wire import (
    ACCEPT,
    REJECT,
    RELEASE,
    ShareMember,
    configure_group,
    find_coordinator,
    port_of,
)
from e2e.wire import create_topic
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import TopicId
from tidemark.model.share_state import DeliveryState, SharePartitionKey
from tidemark_wire.v1 import share_pb2 as pb
from tidemark_wire.v1 import share_pb2_grpc
from waiting import PATIENCE_S, wait_for

pytestmark = [pytest.mark.e2e]

QUICK = {"zookeeper.session.timeout.ms": 4_000}
BROKER = {
    **QUICK,
    "offsets.topic.num.partitions": 2,
    "transaction.state.log.num.partitions": 2,
    "share.coordinator.state.topic.num.partitions": 2,
}
RETRIED = (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_NOT_AVAILABLE)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A broker, a txn-coordinator and two share-coordinators. A test that kills one restarts it."""
    running = started_cluster(
        tmp_path_factory.mktemp("share-transactions"),
        txn_coordinators=1,
        share_coordinators=2,
        overrides={"broker": BROKER, "share-coordinator": QUICK},
    )
    create_topic(running, "a")  # copies
    yield running
    running.end()


class Story:
    """A topic with ten records, a member that holds all of them, and a transactional producer."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        name = uuid.uuid4().hex[:8]
        self.topic, self.group = f"t-{name}", f"g-{name}"
        settings: dict[str, str | int | float | bool] = {"bootstrap.servers": cluster.bootstrap}
        admin = confluent_kafka.admin.AdminClient(settings)
        made = confluent_kafka.admin.NewTopic(self.topic, 1, 1)
        admin.create_topics([made])[self.topic].result(PATIENCE_S)
        self.producer = confluent_kafka.Producer(settings)
        self.port = port_of(cluster.kafka(1))
        self.wires: list[Wire] = []
        self.wire = self.connected()
        find_coordinator(self.wire, self.group)
        configure_group(self.wire, self.group, share_auto_offset_reset="earliest")
        self.put(10)
        self.member = self.joined()
        assert self.member.take(0) == [(0, 9, 1)]
        self.transaction = txn_wire.init(self.wire)

    def connected(self) -> Wire:
        self.wires.append(Wire(self.port))
        return self.wires[-1]

    def disconnect(self) -> None:
        for wire in self.wires:
            wire.socket.close()

    def put(self, count: int) -> None:
        for number in range(count):
            self.producer.produce(self.topic, b"%d" % number)
        assert self.producer.flush(PATIENCE_S) == 0

    def joined(self) -> ShareMember:
        member = ShareMember(self.port, self.group, self.topic)
        self.wires.append(member.wire)
        member.join()
        return member

    def acknowledge(self, *batches: tuple[int, int, int], **changes: Any) -> Any:
        """The response of one call, again while the end before it is under way."""
        part = pb.AcknowledgeInTransactionRequest.Part(
            topic_id=self.member.topic_id,
            partition=0,
            batches=[
                {"first_offset": first, "last_offset": last, "type": kind}
                for first, last, kind in batches
            ],
        )
        fields: dict[str, Any] = {
            "group_id": self.group,
            "member_id": self.member.name,
            "transactional_id": "late",
            "producer_id": self.transaction[0],
            "producer_epoch": self.transaction[1],
            "parts": [part],
            **changes,
        }
        request = pb.AcknowledgeInTransactionRequest(**fields)

        def answered() -> Any:
            with grpc.insecure_channel(self.cluster.grpc(1)) as channel:
                stub: Any = share_pb2_grpc.ShareTransactionsStub(channel)
                found = stub.Acknowledge(request, timeout=PATIENCE_S)
            return None if found.error_code in RETRIED else found

        return wait_for(answered, "an answer to an acknowledgement")

    def hold(self, *batches: tuple[int, int, int]) -> None:
        """Acknowledge within the transaction."""
        found = self.acknowledge(*batches)
        assert found.error_code == ErrorCode.NONE, found.error_message
        assert [part.error_code for part in found.parts] == [0], found.parts

    def end(self, *, commit: bool) -> None:
        code, *following = txn_wire.end(self.wire, self.transaction, commit=commit)
        assert code is ErrorCode.NONE
        self.transaction = following[0], following[1]

    @property
    def key(self) -> SharePartitionKey:
        return SharePartitionKey(self.group, TopicId(bytes(self.member.topic_id)), 0)


@pytest.fixture
def story(cluster: Cluster) -> Iterator[Story]:
    made = Story(cluster)
    yield made
    made.disconnect()


@pytest.mark.feature("V04")
def test_a_commit_finishes_what_the_transaction_acknowledged(story: Story) -> None:
    story.hold((0, 5, ACCEPT), (6, 9, REJECT))
    assert story.member.acknowledge((0, 5, RELEASE)) is ErrorCode.INVALID_RECORD_STATE
    story.end(commit=True)
    story.put(3)
    assert story.member.take() == [(10, 12, 1)]
    wait_for(lambda: Coordinators(story.cluster).summary(story.key).start_offset >= 0, "a state")
    assert story.member.close() is ErrorCode.NONE
    assert story.joined().take(0) == [(10, 12, 2)]


@pytest.mark.feature("V04")
def test_an_abort_gives_the_records_back(story: Story) -> None:
    story.hold((0, 9, ACCEPT))
    story.end(commit=False)
    assert story.member.take() == [(0, 9, 2)]
    assert story.member.acknowledge((0, 9, ACCEPT)) is ErrorCode.NONE


@pytest.mark.feature("V04")
def test_a_copy_and_the_acknowledgement_of_its_input_hold_together(story: Story) -> None:
    value = story.topic.encode()
    for commit, count in ((False, 2), (True, 0)):
        story.hold((0, 9, ACCEPT))
        assert txn_wire.write(story.wire, story.transaction, 0, value) is ErrorCode.NONE
        story.end(commit=commit)
        if count:
            assert story.member.take() == [(0, 9, count)]
            assert value not in committed_copies(story.cluster)
    wait_for(lambda: value in committed_copies(story.cluster), "the copy")
    story.put(1)
    assert story.member.take() == [(10, 10, 1)]


def committed_copies(cluster: Cluster) -> list[bytes | None]:
    """Values of topic ``a``, as a reader of committed records gets them."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "looks",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    try:
        consumer.assign([confluent_kafka.TopicPartition("a", 0, 0)])
        found = []
        while (message := consumer.poll(PATIENCE_S)) is not None and message.error() is None:
            found.append(message.value())
    finally:
        consumer.close()
    return found


@pytest.mark.feature("V04")
def test_pending_acknowledgements_survive_the_leader_and_the_owner_of_their_state(
    story: Story,
) -> None:
    story.hold((0, 5, ACCEPT))
    coordinators = Coordinators(story.cluster)
    owner = coordinators.owner(story.group)
    story.cluster.kill(owner)
    story.cluster.kill("broker-1")
    story.cluster.restart("broker-1")
    story.wire = story.connected()
    story.member = story.joined()
    taken = story.member.take(0)
    assert all(first > 5 for first, _, _ in taken), "pending records are not delivered"
    story.end(commit=True)
    story.cluster.restart(owner)
    wait_for(lambda: not coordinators.read(story.key, 1_000).pending, "the end of the transaction")
    states = {one.delivery_state for one in coordinators.read(story.key, 1_000).batches}
    assert states <= {DeliveryState.ACKNOWLEDGED}


def test_without_share_coordinators_other_transactions_end_and_this_one_waits(
    story: Story,
) -> None:
    story.hold((0, 9, ACCEPT))
    coordinators = Coordinators(story.cluster)
    victims = coordinators.names()
    for name in victims:
        story.cluster.kill(name)
    story.end(commit=True)
    other = confluent_kafka.Producer(
        {"bootstrap.servers": story.cluster.bootstrap, "transactional.id": story.group}
    )
    other.init_transactions(PATIENCE_S)
    for _ in range(2):  # the second one begins once the markers of the first are written
        other.begin_transaction()
        other.produce("a", story.group)
        other.commit_transaction(PATIENCE_S)
    for name in victims:
        story.cluster.restart(name)
    wait_for(lambda: not coordinators.read(story.key, 1_000).pending, "the end of the transaction")


def test_the_same_delivery_is_not_acknowledged_twice(story: Story) -> None:
    story.hold((0, 5, ACCEPT))
    found = story.acknowledge((4, 9, ACCEPT))
    assert [part.error_code for part in found.parts] == [ErrorCode.INVALID_RECORD_STATE]
    story.end(commit=True)


def test_offsets_are_not_reset_while_the_transaction_is_open(story: Story) -> None:
    story.hold((0, 5, ACCEPT))
    story.member.leave()
    offset = pb.AlterShareOffsetsRequest.Offset(partition=0, start_offset=3)
    topic = {"topic_id": story.member.topic_id, "topic": story.topic, "offsets": [offset]}
    alter = pb.AlterShareOffsetsRequest(group_id=story.group, topics=[topic])

    def result() -> int:
        answer = Coordinators(story.cluster).ask("AlterOffsets", alter)
        return int(answer.topics[0].partitions[0].error_code)

    assert result() == ErrorCode.UNSTABLE_OFFSET_COMMIT
    story.end(commit=False)
    wait_for(lambda: result() == ErrorCode.NONE, "the reset")


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"group_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"member_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"transactional_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"producer_id": -1}, ErrorCode.INVALID_REQUEST),
        ({"producer_epoch": 2**15}, ErrorCode.INVALID_REQUEST),
        ({"producer_id": 2**40}, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
    ],
)
def test_bad_requests_are_refused(story: Story, changes: dict[str, Any], code: ErrorCode) -> None:
    assert story.acknowledge((0, 9, ACCEPT), **changes).error_code == code
    assert story.member.acknowledge((0, 9, ACCEPT)) is ErrorCode.NONE


def test_a_release_belongs_to_no_transaction(story: Story) -> None:
    found = story.acknowledge((0, 9, RELEASE))
    assert [part.error_code for part in found.parts] == [ErrorCode.INVALID_REQUEST]
    story.end(commit=False)
    assert story.member.acknowledge((0, 9, ACCEPT)) is ErrorCode.NONE
