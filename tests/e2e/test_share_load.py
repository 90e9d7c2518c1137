"""The assignor "load" at real processes: more members where the lag is."""

import uuid
from collections.abc import Iterator

import confluent_kafka
import pytest
from e2e.clusters import Cluster, started_cluster
from e2e.share_coordinators import Coordinators, ShareMember
from e2e.wire import create_topic
from tidemark.cli.dev.cluster import Config
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import TopicId
from tidemark.model.share_state import SharePartitionKey
from waiting import PATIENCE_S, wait_for

pytestmark = [pytest.mark.e2e]

BROKER = {"offsets.topic.num.partitions": 1, "share.coordinator.state.topic.num.partitions": 1}
COORDINATOR = {
    "group.share.assignors": "load",
    "group.share.assignment.interval.ms": 10,
    "group.share.lag.interval.ms": 100,
}
MEMBERS = 6


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    overrides: dict[str, Config] = {"broker": BROKER, "share-coordinator": COORDINATOR}
    directory = tmp_path_factory.mktemp("load")
    running = started_cluster(directory, share_coordinators=1, overrides=overrides)
    yield running
    running.end()


@pytest.mark.feature("S05")
def test_members_move_to_the_partition_with_the_lag(cluster: Cluster) -> None:
    coordinators, name = Coordinators(cluster), f"s-{uuid.uuid4().hex[:8]}"
    topic_id = TopicId(create_topic(cluster, name, 2))
    members = [ShareMember(coordinators, name, [name], f"m-{one}") for one in range(MEMBERS)]

    def counts() -> list[int]:
        for member in members:
            member.beat()
        assigned = [member.assigned.get(topic_id, set()) for member in members]
        return [sum(number in one for one in assigned) for number in range(2)]

    wait_for(lambda: counts() == [3, 3], lambda: f"members by partition: {counts()}")
    for number in range(2):
        read = coordinators.read(SharePartitionKey(name, topic_id, number))
        assert coordinators.write(read, start=0).error_code is ErrorCode.NONE
    producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap})
    for _ in range(1_000):
        producer.produce(name, b"late", partition=1)
    assert producer.flush(PATIENCE_S) == 0
    wait_for(lambda: counts()[1] == MEMBERS, lambda: f"members by partition: {counts()}")
