"""Moving leaders and replicas with Kafka's own admin clients, on three real brokers."""

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import ElectionType, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from e2e.broker_processes import BrokerProcess, running_cluster
from e2e.kafka_wire import Wire
from kafka import TopicPartition as KafkaTopicPartition
from kafka.admin import KafkaAdminClient
from kafka.errors import NotLeaderForPartitionError
from waiting import PATIENCE_S, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[BrokerProcess]]:
    with running_cluster(tmp_path_factory.mktemp("admin"), 3) as started:
        yield started


def create(brokers: list[BrokerProcess], name: str, replicas: list[int]) -> AdminClient:
    admin = AdminClient({"bootstrap.servers": brokers[0].bootstrap})
    new = NewTopic(name, num_partitions=1, replica_assignment=[replicas])
    admin.create_topics([new])[name].result(PATIENCE_S)
    return admin


def state(broker: BrokerProcess, name: str) -> Any:
    with Wire(broker.port) as wire:
        return wire.metadata(name).topics[0].partitions[0]


@pytest.mark.feature("H11")
def test_a_preferred_leader_that_leads_need_not_be_elected(brokers: list[BrokerProcess]) -> None:
    admin = create(brokers, "led", [1, 2])
    asked = admin.elect_leaders(ElectionType.PREFERRED, [TopicPartition("led", 0)])
    ((_, error),) = asked.result(PATIENCE_S).items()
    assert error.name() == "ELECTION_NOT_NEEDED"


def test_replicas_move_with_their_records_and_the_leader_goes_along(
    brokers: list[BrokerProcess],
) -> None:
    create(brokers, "moves", [1, 2])
    producer = Producer({"bootstrap.servers": brokers[0].bootstrap, "acks": "all"})
    for number in range(100):
        producer.produce("moves", value=b"%d" % number)
    assert producer.flush(PATIENCE_S) == 0
    admin = KafkaAdminClient(bootstrap_servers=brokers[0].bootstrap)
    try:
        admin.alter_partition_reassignments({KafkaTopicPartition("moves", 0): [3, 2]})
        wait_for(lambda: list(state(brokers[0], "moves").replicas) == [3, 2])
        wait_for(lambda: state(brokers[0], "moves").leader_id == 3)
        assert admin.list_partition_reassignments() == {}
    finally:
        admin.close()
    assert sorted(state(brokers[0], "moves").isr) == [2, 3]


@pytest.mark.feature("K03")
def test_every_replica_tells_which_producers_it_remembers(brokers: list[BrokerProcess]) -> None:
    create(brokers, "remembered", [1, 2])
    producer = Producer({"bootstrap.servers": brokers[0].bootstrap, "enable.idempotence": True})
    producer.produce("remembered", value=b"x")
    assert producer.flush(PATIENCE_S) == 0
    admin = KafkaAdminClient(bootstrap_servers=brokers[0].bootstrap)
    partition = KafkaTopicPartition("remembered", 0)
    try:
        told = [
            admin.describe_producers([partition], broker_id=broker)[partition].active_producers
            for broker in (1, 2)
        ]
        (of_leader,), (of_follower,) = told
        assert of_leader.producer_id == of_follower.producer_id
        assert (of_leader.last_sequence, of_follower.last_sequence) == (0, 0)
        with pytest.raises(NotLeaderForPartitionError):
            admin.describe_producers([partition], broker_id=3)
    finally:
        admin.close()


@pytest.mark.feature("H09", "H11")
def test_the_preferred_replica_leads_again_when_asked(brokers: list[BrokerProcess]) -> None:
    admin = create(brokers, "returns", [2, 3])
    brokers[1].stop()
    wait_for(lambda: state(brokers[0], "returns").leader_id == 3)
    brokers[1].start()
    brokers[1].wait_ready()
    wait_for(lambda: sorted(state(brokers[0], "returns").isr) == [2, 3])
    asked = admin.elect_leaders(ElectionType.PREFERRED, [TopicPartition("returns", 0)])
    ((_, error),) = asked.result(PATIENCE_S).items()
    assert error is None
    wait_for(lambda: state(brokers[0], "returns").leader_id == 2)


@pytest.mark.feature("H11")
def test_the_command_line_shows_health_and_gives_leaders_back(
    brokers: list[BrokerProcess],
) -> None:
    create(brokers, "commanded", [3, 1])
    wait_for(lambda: cluster(brokers, "health").returncode == 0)
    brokers[2].stop()
    wait_for(lambda: state(brokers[0], "commanded").leader_id == 1)
    hurt = cluster(brokers, "health")
    assert hurt.returncode == 1
    assert "commanded-0" in json.loads(hurt.stdout)["under_replicated"]
    brokers[2].start()
    brokers[2].wait_ready()
    wait_for(lambda: cluster(brokers, "health").returncode == 0)
    asked = ("--topic", "commanded", "--partition", "0")
    assert cluster(brokers, "elect-leaders", *asked).returncode == 0
    wait_for(lambda: state(brokers[0], "commanded").leader_id == 3)
    (row,) = json.loads(cluster(brokers, "elect-leaders", *asked).stdout)
    assert row["error"] == "ELECTION_NOT_NEEDED"
    assert len(json.loads(cluster(brokers, "brokers").stdout)) == 3


def cluster(brokers: list[BrokerProcess], *words: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "tidemark.cli.main", "cluster", *words, "-o", "json"]
    argv = [*command, "--bootstrap", brokers[0].bootstrap]
    return subprocess.run(argv, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
