"""Share-coordinators at real processes: ZooKeeper, a controller, brokers and two replicas."""

import uuid
from collections.abc import Iterator

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewPartitions
from e2e.clusters import Cluster, started_cluster
from e2e.share_coordinators import Coordinators, ShareMember, acknowledged
from e2e.wire import create_topic, delete_topic
from tidemark.codec.java_hash import shard_for_name
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import TopicId
from tidemark.model.share_state import UNKNOWN_START, DeliveryState, SharePartitionKey
from tidemark_wire.v1 import share_pb2 as pb
from waiting import PATIENCE_S, wait_for

pytestmark = [pytest.mark.e2e]

STATE = "__share_group_state"
SHARDS = 4
QUICK = {"zookeeper.session.timeout.ms": 4_000}
BROKER = {
    **QUICK,
    "offsets.topic.num.partitions": 2,
    "share.coordinator.state.topic.num.partitions": SHARDS,
}
COORDINATOR = {
    **QUICK,
    "group.share.assignment.interval.ms": 10,
    "share.coordinator.state.topic.prune.interval.ms": 1_000,
    "share.coordinator.snapshot.update.records.per.snapshot": 3,
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two brokers and two share-coordinators. Whoever kills one starts it again."""
    overrides = {"broker": BROKER, "share-coordinator": COORDINATOR}
    directory = tmp_path_factory.mktemp("share")
    made = started_cluster(directory, brokers=2, share_coordinators=2, overrides=overrides)
    try:
        yield made
    except BaseException as problem:
        problem.add_note(made.logs_tail())
        raise
    finally:
        made.end()


@pytest.fixture
def coordinators(cluster: Cluster) -> Coordinators:
    return Coordinators(cluster)


@pytest.fixture
def name() -> str:
    """For the topic and the group of one test."""
    return f"s-{uuid.uuid4().hex[:8]}"


def joined(
    coordinators: Coordinators, name: str, partitions: int = 1
) -> tuple[ShareMember, SharePartitionKey]:
    """A member that has all partitions of a new topic, and its first share-partition."""
    topic_id = create_topic(coordinators.cluster, name, partitions)
    member = ShareMember(coordinators, name, [name])
    member.wait_assigned(topic_id, *range(partitions))
    return member, SharePartitionKey(name, TopicId(topic_id), 0)


def log_start(cluster: Cluster, shard: int) -> int:
    """Offset of the first record of a shard's log."""
    settings = {"bootstrap.servers": cluster.bootstrap, "group.id": "looks"}
    consumer = confluent_kafka.Consumer(settings)
    try:
        at = confluent_kafka.TopicPartition(STATE, shard)
        return int(consumer.get_watermark_offsets(at, timeout=PATIENCE_S)[0])
    finally:
        consumer.close()


@pytest.mark.feature("S03")
def test_heartbeats_assign_partitions_and_their_states_begin(
    coordinators: Coordinators, name: str
) -> None:
    _, key = joined(coordinators, name, partitions=3)
    read = coordinators.read(key)
    assert (read.error_code, read.start_offset, read.batches) == (ErrorCode.NONE, UNKNOWN_START, ())
    described = coordinators.ask("DescribeGroup", pb.DescribeShareGroupRequest(group_id=name))
    assert (described.state, len(described.members)) == ("Stable", 1)


def test_two_members_share_the_partitions(coordinators: Coordinators, name: str) -> None:
    first, key = joined(coordinators, name, partitions=4)
    second = ShareMember(coordinators, name, [name], "n")

    def are_even() -> bool:
        first.beat()
        second.beat()
        counts = [len(member.assigned.get(key.topic_id, ())) for member in (first, second)]
        return counts == [2, 2]

    wait_for(are_even, lambda: f"{first.assigned} and {second.assigned}")


@pytest.mark.feature("S04")
def test_more_members_than_partitions_read_them_together(
    coordinators: Coordinators, name: str
) -> None:
    _, key = joined(coordinators, name)
    for number in range(3):
        member = ShareMember(coordinators, name, [name], f"m-{number}")
        member.wait_assigned(key.topic_id, 0)


@pytest.mark.feature("S30")
def test_a_state_survives_the_kill_of_its_owner_and_another_one_answers(
    cluster: Cluster, coordinators: Coordinators, name: str
) -> None:
    member, key = joined(coordinators, name)
    read = coordinators.read(key, leader_epoch=5)
    batches = (acknowledged(3, 5), acknowledged(8, 8))
    assert coordinators.write(read, *batches, leader_epoch=5).error_code is ErrorCode.NONE
    victim = coordinators.owner(name)
    cluster.kill(victim)
    try:
        found = coordinators.read(key, leader_epoch=5)
        assert (found.state_epoch, found.start_offset) == (read.state_epoch, 0)
        assert found.batches == batches
        assert coordinators.owner(name) != victim
        old_leader = coordinators.write(read, acknowledged(9, 9), leader_epoch=4)
        assert old_leader.error_code is ErrorCode.FENCED_LEADER_EPOCH
        member.beat()
    finally:
        cluster.restart(victim)


def test_a_write_of_an_earlier_life_of_the_state_is_refused(
    coordinators: Coordinators, name: str
) -> None:
    member, key = joined(coordinators, name)
    read = coordinators.read(key)
    member.leave()
    offset = pb.AlterShareOffsetsRequest.Offset(partition=0, start_offset=7)
    topic = {"topic_id": key.topic_id, "topic": name, "offsets": [offset]}
    altered = coordinators.ask(
        "AlterOffsets", pb.AlterShareOffsetsRequest(group_id=name, topics=[topic])
    )
    assert altered.error_code == ErrorCode.NONE
    late = coordinators.write(read, acknowledged(0, 9))
    assert late.error_code is ErrorCode.FENCED_STATE_EPOCH
    assert coordinators.summary(key).start_offset == 7


def test_a_topic_that_is_made_again_has_a_new_state(
    cluster: Cluster, coordinators: Coordinators, name: str
) -> None:
    member, old = joined(coordinators, name)
    read = coordinators.read(old)
    coordinators.write(read, acknowledged(0, 4), start=5)
    delete_topic(cluster, name)
    member.wait_assigned(create_topic(cluster, name), 0)
    (topic_id,) = member.assigned
    assert topic_id != old.topic_id
    assert coordinators.read(old._replace(topic_id=topic_id)).start_offset == UNKNOWN_START
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    wait_for(lambda: coordinators.read(old).error_code is unknown, "the old state is forgotten")


@pytest.mark.feature("S24")
def test_partitions_that_are_added_are_read_from_their_beginning(
    cluster: Cluster, coordinators: Coordinators, name: str
) -> None:
    member, key = joined(coordinators, name)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_partitions([NewPartitions(name, 3)])[name].result(PATIENCE_S)
    member.wait_assigned(key.topic_id, 0, 1, 2)
    starts = [coordinators.read(key._replace(partition=one)).start_offset for one in range(3)]
    assert starts == [UNKNOWN_START, 0, 0]


def test_a_deleted_group_leaves_nothing_and_may_be_created_again(
    coordinators: Coordinators, name: str
) -> None:
    member, key = joined(coordinators, name)
    read = coordinators.read(key)
    coordinators.write(read, acknowledged(0, 4))
    delete = pb.DeleteShareGroupRequest(group_id=name)
    assert coordinators.ask("DeleteGroup", delete).error_code == ErrorCode.NON_EMPTY_GROUP
    member.leave()
    assert coordinators.ask("DeleteGroup", delete).error_code == ErrorCode.NONE
    assert coordinators.read(key).error_code is ErrorCode.GROUP_ID_NOT_FOUND
    assert coordinators.write(read, acknowledged(5, 5)).error_code is ErrorCode.GROUP_ID_NOT_FOUND
    ShareMember(coordinators, name, [name]).wait_assigned(key.topic_id, 0)
    again = coordinators.read(key)
    assert (again.start_offset, again.batches) == (UNKNOWN_START, ())
    assert coordinators.write(read, acknowledged(5, 5)).error_code is ErrorCode.FENCED_STATE_EPOCH


def test_the_state_topic_is_pruned_and_loads_from_what_is_left(
    cluster: Cluster, coordinators: Coordinators, name: str
) -> None:
    # All groups of other tests in this shard may hold its beginning: they are deleted.
    _, key = joined(coordinators, name)
    shard = shard_for_name(name, SHARDS)
    listed = coordinators.ask_one(
        coordinators.owner(name), "ListGroups", pb.ListShareGroupsRequest()
    )
    for group in listed.groups:
        if group.group_id != name and shard_for_name(group.group_id, SHARDS) == shard:
            remove(coordinators, group.group_id)
    read = coordinators.read(key)
    before = log_start(cluster, shard)
    for offset in range(12):
        written = coordinators.write(read, acknowledged(offset, offset))
        assert written.error_code is ErrorCode.NONE
    remove(coordinators, name)
    wait_for(lambda: log_start(cluster, shard) > before, "the log's beginning is deleted")
    _, key = joined(coordinators, f"{name}-b")
    read = coordinators.read(key)
    coordinators.write(read, acknowledged(1, 1))
    victim = coordinators.owner(f"{name}-b")
    cluster.kill(victim)
    try:
        assert coordinators.read(key).batches == (acknowledged(1, 1),)
        gone = pb.DescribeShareGroupRequest(group_id=name)
        assert coordinators.ask("DescribeGroup", gone).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    finally:
        cluster.restart(victim)


def remove(coordinators: Coordinators, group_id: str) -> None:
    """Let all members leave, and delete the group."""
    described = coordinators.ask("DescribeGroup", pb.DescribeShareGroupRequest(group_id=group_id))
    for member in described.members:
        coordinators.beat(group_id, member.member_id, -1)
    deleted = coordinators.ask("DeleteGroup", pb.DeleteShareGroupRequest(group_id=group_id))
    assert deleted.error_code == ErrorCode.NONE, deleted.error_message


def test_a_replica_that_does_not_own_the_shard_says_so(
    coordinators: Coordinators, name: str
) -> None:
    joined(coordinators, name)
    (other,) = set(coordinators.names()) - {coordinators.owner(name)}
    for rpc, request in (
        ("Heartbeat", pb.ShareHeartbeatRequest(group_id=name, member_id="m")),
        ("DescribeGroup", pb.DescribeShareGroupRequest(group_id=name)),
        ("ReadStates", pb.ReadShareStatesRequest(group_id=name)),
        ("WriteStates", pb.WriteShareStatesRequest(group_id=name)),
        ("ReportLags", pb.ReportShareLagsRequest(group_id=name)),
    ):
        answer = coordinators.ask_one(other, rpc, request)
        assert answer.error_code == ErrorCode.NOT_COORDINATOR, rpc


@pytest.mark.feature("S30")
def test_bad_requests_are_refused_and_change_nothing(coordinators: Coordinators, name: str) -> None:
    _, key = joined(coordinators, name)
    read = coordinators.read(key)
    part = {"topic_id": key.topic_id, "partition": 0, "state_epoch": read.state_epoch}
    batch = {"first_offset": 3, "last_offset": 1, "delivery_state": 2, "delivery_count": 1}
    backwards = pb.WriteShareStatesRequest(group_id=name, parts=[{**part, "batches": [batch]}])
    (refused,) = coordinators.ask("WriteStates", backwards).parts
    assert refused.error_code == ErrorCode.INVALID_REQUEST
    short = pb.ReadShareStatesRequest(group_id=name, parts=[{"topic_id": b"short"}])
    assert coordinators.ask("ReadStates", short).error_code == ErrorCode.INVALID_REQUEST
    locked = {**batch, "last_offset": 3, "delivery_state": int(DeliveryState.ACQUIRED)}
    never = pb.WriteShareStatesRequest(group_id=name, parts=[{**part, "batches": [locked]}])
    (refused,) = coordinators.ask("WriteStates", never).parts
    assert refused.error_code == ErrorCode.INVALID_REQUEST
    epoch = pb.ShareHeartbeatRequest(group_id=name, member_id="m", member_epoch=-7)
    assert coordinators.ask("Heartbeat", epoch).error_code == ErrorCode.INVALID_REQUEST
    assert coordinators.read(key) == read
