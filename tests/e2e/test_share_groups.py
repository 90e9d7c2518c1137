"""Share groups over real processes: brokers, share-coordinators, and members on the bare wire."""

import uuid
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from confluent_kafka.admin import AdminClient, NewPartitions
from e2e.clusters import Cluster, started_cluster
from e2e.kafka_wire import Wire, batch
from e2e.share_wire import (
    ACCEPT,
    REJECT,
    RELEASE,
    RENEW,
    ShareMember,
    ask,
    configure_group,
    port_of,
)
from tidemark.kafka.apis import ApiKey
from tidemark.model.errors import ErrorCode
from tidemark_wire.v1 import share_pb2, share_pb2_grpc
from waiting import PATIENCE_S, wait_for

pytestmark = pytest.mark.e2e

NONE = ErrorCode.NONE
LOCK_MS = 1_000
RECORD_LIMIT = 1
SETTINGS = {
    "group.share.min.record.lock.duration.ms": LOCK_MS,
    "share.coordinator.state.topic.num.partitions": 3,
    "num.partitions": 1,
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One broker and a share-coordinator."""
    directory = tmp_path_factory.mktemp("share")
    running = started_cluster(directory, share_coordinators=1, overrides={"broker": SETTINGS})
    yield running
    running.end()


class Scene:
    """A topic, a group that reads it from its beginning, and its members."""

    def __init__(self, cluster: Cluster) -> None:
        self.port = port_of(cluster.kafka(1))
        self.wire = Wire(self.port)
        name = uuid.uuid4().hex[:8]
        self.topic, self.group = f"t-{name}", f"g-{name}"
        self.wires = [self.wire]
        self.wire.metadata(self.topic, create=True)
        configure_group(self.wire, self.group, share_auto_offset_reset="earliest")

    def put(self, *values: bytes) -> None:
        assert self.wire.produce(self.topic, batch(*values)).error_code == 0

    def member(self, *, version: int = 2) -> ShareMember:
        """A member that has joined."""
        member = self.stranger(version=version)
        assert member.join() == [0]
        return member

    def stranger(self, *, name: str = "", group: str = "", version: int = 2) -> ShareMember:
        """A client that has not joined."""
        member = ShareMember(self.port, group or self.group, self.topic, name=name, version=version)
        self.wires.append(member.wire)
        return member

    def end(self) -> None:
        """Close all connections."""
        for wire in self.wires:
            wire.socket.close()


@pytest.fixture
def scene(cluster: Cluster) -> Iterator[Scene]:
    """For one test."""
    made = Scene(cluster)
    yield made
    made.end()


TEN = tuple(b"%d" % number for number in range(10))


@pytest.mark.feature("S08", "S16", "S28")
@pytest.mark.parametrize("version", [1, 2])
def test_a_member_reads_and_acknowledges(scene: Scene, version: int) -> None:
    scene.put(*TEN)
    member = scene.member(version=version)
    found = member.fetch_until(0)[0]
    assert (found.error, found.acquired) == (NONE, [(0, 9, 1)])
    assert [one.value for one in found.records] == list(TEN)
    assert member.acknowledge((0, 9, ACCEPT)) is NONE
    assert member.fetch(wait_ms=0) == {}


@pytest.mark.feature("S11", "S16")
def test_records_are_acknowledged_one_by_one_and_in_ranges(scene: Scene) -> None:
    scene.put(*TEN)
    member = scene.member()
    member.take(0)
    assert member.acknowledge((0, 0, ACCEPT), (1, 3, RELEASE), (4, 4, REJECT)) is NONE
    assert member.acknowledge((5, 9, ACCEPT, RELEASE, ACCEPT, RELEASE, ACCEPT)) is NONE
    assert member.fetch()[0].acquired == [(1, 3, 2), (6, 6, 2), (8, 8, 2)]


@pytest.mark.feature("S02", "S15")
def test_members_share_the_records_of_a_partition(scene: Scene) -> None:
    members = [scene.member() for _ in range(3)]
    for number in range(6):
        scene.put(b"%d" % number)
    offsets = [
        offset
        for _ in range(2)
        for member in members
        for offset, _, _ in member.take(*([0] if not member.epoch else []), records=1)
    ]
    assert sorted(offsets) == list(range(6))


@pytest.mark.feature("S06")
def test_two_groups_of_a_partition_are_independent(scene: Scene, cluster: Cluster) -> None:
    other = Scene(cluster)
    other.topic = scene.topic
    scene.wires.append(other.wire)
    scene.put(*TEN)
    one, two = scene.member(), other.member()
    scene.wires.append(two.wire)
    assert one.take(0) == two.take(0) == [(0, 9, 1)]
    assert one.acknowledge((0, 9, ACCEPT)) is NONE
    assert two.acknowledge((0, 9, RELEASE)) is NONE
    assert one.fetch(wait_ms=0) == {}
    assert two.fetch()[0].acquired == [(0, 9, 2)]


@pytest.mark.feature("S11", "S13", "S17")
def test_a_lock_expires_and_another_member_gets_the_records(scene: Scene) -> None:
    configure_group(scene.wire, scene.group, share_record_lock_duration_ms=str(LOCK_MS))
    scene.put(*TEN)
    hangs, works = scene.member(), scene.member()
    assert hangs.take(0) == [(0, 9, 1)]
    assert works.take(0) == [(0, 9, 2)]
    assert hangs.acknowledge((0, 9, ACCEPT)) is ErrorCode.INVALID_RECORD_STATE
    assert works.acknowledge((0, 9, RENEW)) is NONE
    assert works.acknowledge((0, 9, ACCEPT)) is NONE


@pytest.mark.feature("S17")
def test_a_record_is_archived_at_the_limit_of_deliveries(scene: Scene) -> None:
    configure_group(scene.wire, scene.group, share_delivery_count_limit="2")
    scene.put(b"poison")
    member = scene.member()
    for delivery in (1, 2):
        assert member.take(*([0] if delivery == 1 else [])) == [(0, 0, delivery)]
        assert member.acknowledge((0, 0, RELEASE)) is NONE
    assert member.fetch(wait_ms=0) == {}
    scene.put(b"next")
    assert member.take() == [(1, 1, 1)]


@pytest.mark.feature("S19", "S20")
def test_a_lost_connection_gives_records_back(scene: Scene) -> None:
    scene.put(*TEN)
    lost, other = scene.member(), scene.member()
    assert lost.take(0) == [(0, 9, 1)]
    lost.wire.socket.close()
    assert other.take(0, wait_ms=10_000) == [(0, 9, 2)]


def test_a_session_is_closed_with_its_last_acknowledgements(scene: Scene) -> None:
    scene.put(*TEN)
    one, other = scene.member(), scene.member()
    one.take(0)
    assert one.close((0, 4, ACCEPT)) is NONE
    assert other.take(0) == [(5, 9, 2)]
    one.epoch = 1
    answer = one.fetch_answer(0)
    assert answer.error_code == ErrorCode.SHARE_SESSION_NOT_FOUND


def test_errors_of_sessions_change_nothing(scene: Scene) -> None:
    scene.put(*TEN)
    member = scene.member()
    assert member.fetch_answer(acks={0: [(0, 1, ACCEPT)]}).error_code == ErrorCode.INVALID_REQUEST
    member.take(0)
    epoch = member.epoch
    for wrong in (0, epoch + 1, epoch - 1, -2):
        member.epoch = wrong
        code = member.acknowledge((0, 9, ACCEPT))
        assert code is ErrorCode.INVALID_SHARE_SESSION_EPOCH, wrong
    stranger = scene.stranger(name=member.name)
    stranger.epoch = epoch
    assert stranger.acknowledge((0, 9, ACCEPT)) is ErrorCode.SHARE_SESSION_NOT_FOUND
    member.epoch = epoch
    assert member.acknowledge((0, 9, ACCEPT)) is NONE


@pytest.mark.feature("S29")
@pytest.mark.parametrize(
    "wrong",
    [(9, 0, ACCEPT), (-5, 9, ACCEPT), (0, 9, 77), (0, 9, ACCEPT, ACCEPT), (0, 2**40, ACCEPT)],
)
def test_malformed_acknowledgements_change_nothing(scene: Scene, wrong: tuple[int, ...]) -> None:
    scene.put(*TEN)
    member = scene.member()
    member.take(0)
    assert member.acknowledge(wrong) is ErrorCode.INVALID_REQUEST
    assert member.acknowledge((0, 9, ACCEPT)) is NONE


def test_a_group_without_members_has_nothing(scene: Scene) -> None:
    scene.member()  # before the first group there is no state topic, for which a fetch waits
    member = scene.stranger(group=f"{scene.group}-none")
    found = member.fetch_until(0)
    assert found[0].error is ErrorCode.GROUP_ID_NOT_FOUND


def test_a_restarted_broker_and_coordinator_have_the_acknowledgements(
    scene: Scene, cluster: Cluster
) -> None:
    scene.put(*TEN)
    member = scene.member()
    member.take(0)
    assert member.acknowledge((0, 2, ACCEPT), (3, 4, RELEASE)) is NONE
    for name in ("share-coordinator-1", "broker-1"):
        cluster.kill(name)
        cluster.restart(name)
    again = scene.member()
    found = again.fetch_until(0, holds=lambda parts: 0 in parts and parts[0].acquired)
    assert found[0].acquired == [(3, 4, 2), (5, 9, 1)]


@pytest.mark.feature("S10")
def test_the_window_is_bounded(scene: Scene) -> None:
    configure_group(scene.wire, scene.group, share_partition_max_record_locks="100")
    for _ in range(12):
        scene.put(*TEN)
    member = scene.member()
    assert member.take(0) == [(0, 99, 1)]
    assert member.fetch(wait_ms=0) == {}
    assert member.acknowledge((0, 9, ACCEPT)) is NONE
    assert member.take() == [(100, 109, 1)]


def window(scene: Scene, cluster: Cluster, topic_id: bytes) -> tuple[int, int, int]:
    """Start and end of the window, and the number of records behind it."""
    with grpc.insecure_channel(cluster.grpc(1)) as channel:
        stub: Any = share_pb2_grpc.SharePartitionsStub(channel)
        topics = [share_pb2.ShareTopicPartitions(topic_id=topic_id, partitions=[0])]
        asked = share_pb2.DescribeShareLagsRequest(group_id=scene.group, topics=topics)
        (lag,) = stub.DescribeLags(asked).lags
    return lag.start_offset, lag.end_offset, lag.behind


@pytest.mark.feature("S09")
def test_the_window_slides_with_deliveries_and_acknowledgements(
    scene: Scene, cluster: Cluster
) -> None:
    for _ in range(3):
        scene.put(*TEN)
    member = scene.member()
    seen = []
    for first in (0, 10):
        assert member.take(*([0] if first == 0 else []), records=1) == [(first, first + 9, 1)]
        seen.append(window(scene, cluster, member.topic_id))
        assert member.acknowledge((first, first + 9, ACCEPT)) is NONE
        seen.append(window(scene, cluster, member.topic_id))
    assert seen == [(0, 10, 20), (10, 10, 20), (10, 20, 10), (20, 20, 10)]


@pytest.mark.feature("S12")
def test_records_before_the_window_are_finished_and_those_after_it_new(scene: Scene) -> None:
    scene.put(*TEN)
    scene.put(*TEN)
    first = scene.member()
    assert first.take(0, records=1) == [(0, 9, 1)]
    first.leave()
    row = {"partition_index": 0, "start_offset": 5}
    topics = [{"topic_name": scene.topic, "partitions": [row]}]
    fields = {"group_id": scene.group, "topics": topics}

    def is_altered() -> bool:
        answer = ask(scene.wire, ApiKey.ALTER_SHARE_GROUP_OFFSETS, 0, fields)
        return not answer.error_code and not answer.responses[0].partitions[0].error_code

    wait_for(is_altered, "the start offset of a group without members")
    member = scene.member()
    assert member.take(0) == [(5, 19, 1)], "never delivered from the window's end on"
    assert member.acknowledge((0, 4, ACCEPT)) is NONE, "archived before its start: ignored"
    assert member.fetch(wait_ms=0) == {}


@pytest.mark.feature("S14")
def test_deliveries_are_counted_about_and_end_at_the_limit(scene: Scene, cluster: Cluster) -> None:
    scene.put(b"poison")
    member = scene.member()
    assert member.take(0) == [(0, 0, 1)]
    assert member.acknowledge((0, 0, RELEASE)) is NONE
    assert member.take() == [(0, 0, 2)]
    cluster.kill("broker-1")
    cluster.restart("broker-1")
    again = scene.member()
    found = again.fetch_until(0, holds=lambda parts: 0 in parts and parts[0].acquired)
    assert found[0].acquired == [(0, 0, 2)], "a delivery without an outcome is not stored"
    for delivery in range(3, 6):
        assert again.acknowledge((0, 0, RELEASE)) is NONE
        assert again.take() == [(0, 0, delivery)]
    assert again.acknowledge((0, 0, RELEASE)) is NONE
    assert again.fetch(wait_ms=0) == {}


@pytest.mark.feature("S18")
def test_a_record_is_delivered_five_times_by_default(scene: Scene) -> None:
    scene.put(b"poison")
    member = scene.member()
    for delivery in range(1, 6):
        assert member.take(*([0] if delivery == 1 else [])) == [(0, 0, delivery)]
        assert member.acknowledge((0, 0, RELEASE)) is NONE
    assert member.fetch(wait_ms=0) == {}


@pytest.mark.feature("S20", "S21")
def test_records_that_come_again_may_come_after_later_ones(scene: Scene) -> None:
    scene.put(*TEN)
    scene.put(*TEN)
    slow, other = scene.member(), scene.member()
    assert slow.take(0, records=1) == [(0, 9, 1)]
    assert other.take(0, records=1) == [(10, 19, 1)]
    slow.wire.socket.close()
    assert other.take(wait_ms=10_000) == [(0, 9, 2)]


@pytest.mark.feature("S23")
def test_a_group_begins_at_the_end_by_default(scene: Scene) -> None:
    scene.put(*TEN)
    scene.group = f"{scene.group}-latest"
    member = scene.member()
    for _ in range(2):
        member.fetch(*([0] if not member.epoch else []), wait_ms=100)
    member.fetch_until(holds=lambda _: begun(scene))
    scene.put(b"new")
    assert member.take() == [(10, 10, 1)]


def begun(scene: Scene) -> bool:
    """Whether the group has a start offset."""
    fields = {"groups": [{"group_id": scene.group, "topics": None}]}
    (group,) = ask(scene.wire, ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, 1, fields).groups
    offsets = [one.start_offset for topic in group.topics for one in topic.partitions]
    return offsets == [10]


@pytest.mark.feature("V01")
def test_records_of_a_key_are_shared_in_order(scene: Scene) -> None:
    configure_group(scene.wire, scene.group, share_record_order="key")
    for key in (b"a", b"b", b"a"):
        assert scene.wire.produce(scene.topic, batch(b"1", b"2", key=key)).error_code == 0
    one, two = scene.member(), scene.member()
    assert one.take(0, records=1, share_acquire_mode=RECORD_LIMIT) == [(0, 0, 1)]
    assert two.take(0) == [(2, 3, 1)], "key a is held by another member"
    assert one.acknowledge((0, 0, ACCEPT)) is NONE
    following = two.take()
    if len(following) == 1:  # keys are read a batch at a time: those of 4 and 5 may come later
        following += two.take()
    assert following == [(1, 1, 1), (4, 5, 1)], "its next record, and all that follow"
    assert one.fetch(wait_ms=0) == {}


@pytest.mark.feature("Y12")
def test_a_released_record_is_delayed(scene: Scene) -> None:
    configure_group(scene.wire, scene.group, share_release_backoff_ms="60000")
    scene.put(b"later")
    member = scene.member()
    assert member.take(0) == [(0, 0, 1)]
    assert member.acknowledge((0, 0, RELEASE)) is NONE
    scene.put(b"now")
    assert member.take() == [(1, 1, 1)]
    assert member.fetch(wait_ms=0) == {}


@pytest.mark.feature("V03", "Y08")
def test_a_window_is_browsed_and_lag_is_counted(scene: Scene, cluster: Cluster) -> None:
    scene.put(*TEN)
    scene.put(*TEN)
    member = scene.member()
    member.take(0, records=1)
    assert member.acknowledge((0, 3, ACCEPT), (4, 5, RELEASE)) is NONE
    metrics = cluster.ops("broker-1", "/metrics")
    label = f'{{group="{scene.group}",partition="0",topic="{scene.topic}"}}'
    assert f"tidemark_share_lag_records{label} 16.0" in metrics
    with grpc.insecure_channel(cluster.grpc(1)) as channel:
        stub: Any = share_pb2_grpc.SharePartitionsStub(channel)
        named: dict[str, Any] = {"group_id": scene.group, "topic_id": member.topic_id}
        found = stub.Browse(share_pb2.BrowseShareRequest(**named, last_offset=-1))
        topics = [share_pb2.ShareTopicPartitions(topic_id=member.topic_id, partitions=[0])]
        asked = share_pb2.DescribeShareLagsRequest(group_id=scene.group, topics=topics)
        (lag,) = stub.DescribeLags(asked).lags
    states = [(one.first_offset, one.last_offset, one.delivery_state) for one in found.ranges]
    assert states == [(4, 5, 0), (6, 9, 1)]
    assert (lag.start_offset, lag.available, lag.acquired, lag.behind) == (4, 2, 4, 10)
    assert member.fetch()[0].acquired == [(4, 5, 2)], "nothing was locked by the look"


@pytest.mark.feature("S24")
def test_partitions_that_are_added_are_read_from_their_beginning(
    scene: Scene, cluster: Cluster
) -> None:
    scene.put(*TEN)
    scene.group = f"{scene.group}-latest"
    member = scene.member()
    member.fetch_until(0, holds=lambda _: begun(scene))
    admin = AdminClient({"bootstrap.servers": cluster.kafka(1)})
    admin.create_partitions([NewPartitions(scene.topic, 2)])[scene.topic].result(PATIENCE_S)
    added = wait_for(lambda: scene.wire.metadata(scene.topic).topics[0].partitions[1:])
    assert [one.partition for one in added] == [1]
    assert scene.wire.produce(scene.topic, batch(b"first"), partition=1).error_code == 0
    wait_for(lambda: assigned(member) == [0, 1])
    assert member.take(1) == [(0, 0, 1)]


def assigned(member: ShareMember) -> list[int]:
    """Partitions of a heartbeat's answer; nothing if they are as before."""
    found = member.heartbeat().assignment
    topics = [] if found is None else found.topic_partitions
    return sorted(number for one in topics for number in one.partitions)
