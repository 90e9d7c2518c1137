"""Log ends and high watermarks of a leader and its followers, as clients and metrics show them."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from confluent_kafka import ElectionType, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from e2e.broker_processes import BrokerProcess, running_cluster
from e2e.kafka_wire import Wire, batch, records_of
from e2e.processes import paused
from e2e.wire import ask
from prometheus_client.parser import text_string_to_metric_families
from tidemark.kafka.apis import ApiKey
from tidemark.model.errors import ErrorCode
from waiting import PATIENCE_S, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

TOPIC = "marks"
LATEST = -1
VALUES = [b"one", b"two", b"three"]
SETTINGS = (
    *("--replica.selector.class", "org.apache.kafka.common.replica.RackAwareReplicaSelector"),
    *("--replica.lag.time.max.ms", "600000"),
    *("--zookeeper.session.timeout.ms", "40000"),
)
"""Followers serve reads, and one that is paused stays in the ISR."""


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[BrokerProcess]]:
    with running_cluster(tmp_path_factory.mktemp("marks"), 3, *SETTINGS) as started:
        yield started


def log_end(broker: BrokerProcess) -> int:
    """Log end offset of a broker's replica."""
    (found,) = (
        sample.value
        for family in text_string_to_metric_families(broker.http("/metrics")[1])
        for sample in family.samples
        if sample.name == "kafka_log_log_logendoffset" and sample.labels["topic"] == TOPIC
    )
    return int(found)


def fetched(broker: BrokerProcess) -> tuple[list[bytes | None], int]:
    """Records and the high watermark, from this broker whatever its role."""
    with Wire(broker.port) as wire:
        answer = wire.fetch((TOPIC, 0, 0))
    result = answer.topics[0].partitions[0].result
    assert result.error_code == ErrorCode.NONE
    return records_of(answer), result.high_watermark


def latest(broker: BrokerProcess) -> tuple[ErrorCode, int]:
    """Answer of ListOffsets for the latest offset."""
    with Wire(broker.port) as wire:
        found = wire.offset(TOPIC, 0, LATEST)
    return ErrorCode(found.error_code), found.offset


def lead(broker: BrokerProcess, *replicas: int) -> None:
    """Make the first of the replicas the leader."""
    with Wire(broker.port) as wire:
        moved = {"partition_index": 0, "replicas": list(replicas)}
        fields = {
            "timeout": 60_000,
            "allow_replication_factor_change": True,
            "topics": [{"name": TOPIC, "partitions": [moved]}],
        }
        assert ask(wire, ApiKey.ALTER_PARTITION_REASSIGNMENTS, 1, fields).error_code == 0
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})

    def is_elected() -> bool:
        admin.elect_leaders(ElectionType.PREFERRED, [TopicPartition(TOPIC, 0)]).result(PATIENCE_S)
        return bool(partition(broker).leader_id == replicas[0])

    wait_for(is_elected, "the preferred replica was not elected")


@pytest.mark.feature("G10", "G12", "G19")
def test_a_record_is_read_once_every_replica_in_sync_has_it_whoever_leads(
    brokers: list[BrokerProcess],
) -> None:
    old, new, slow = brokers
    admin = AdminClient({"bootstrap.servers": old.bootstrap})
    topic = NewTopic(TOPIC, 1, replica_assignment=[[1, 2, 3]])
    admin.create_topics([topic])[TOPIC].result(PATIENCE_S)
    wait_for(lambda: len(isr(old)) == 3, lambda: f"in sync: {isr(old)}")
    with paused(slow.pid):
        with Wire(old.port) as wire:
            assert wire.produce(TOPIC, batch(*VALUES), acks=1).error_code == ErrorCode.NONE
        wait_for(lambda: log_end(new) == 3, "the follower that runs has no records")
        # The log ends at three for two of three replicas; the high watermark, the least, is 0.
        assert log_end(old) == 3
        assert fetched(old) == ([], 0)
        assert latest(old) == (ErrorCode.NONE, 0)
        assert fetched(new) == ([], 0)
        lead(new, 2, 1, 3)
        # Below the start of its epoch a new leader's high watermark may be behind the old one's.
        unavailable = ErrorCode.OFFSET_NOT_AVAILABLE, -1
        wait_for(lambda: latest(new) == unavailable, lambda: f"latest offset: {latest(new)}")
        assert fetched(new) == ([], 0)
        assert isr(new) == [1, 2, 3]
    wait_for(lambda: latest(new) == (ErrorCode.NONE, 3), lambda: f"latest: {latest(new)}")
    for broker in brokers:  # followers take the high watermark over
        wait_for(partial(has_all, broker), f"broker {broker.number} does not show all records")


def has_all(broker: BrokerProcess) -> bool:
    """True once the broker's high watermark is behind the last record."""
    return fetched(broker) == (VALUES, len(VALUES))


def partition(broker: BrokerProcess) -> Any:
    """Describe the topic's partition as a broker knows it; None while it does not."""
    with Wire(broker.port) as wire:
        (topic,) = wire.metadata(TOPIC).topics
    return topic.partitions[0] if topic.partitions else None


def isr(broker: BrokerProcess) -> list[int]:
    """In-sync replicas as a broker knows them."""
    known = partition(broker)
    return sorted(known.isr) if known else []
