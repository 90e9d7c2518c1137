"""The coordinators' topics at real processes: refused while there are too few brokers, and raised
when brokers come to be configured for more.
"""

from collections.abc import Mapping
from functools import partial

import pytest
from e2e.clusters import Cluster, StartCluster
from e2e.wire import ask, connect, topic_at
from tidemark.kafka.apis import ApiKey
from tidemark.kafka.long_tail import Struct
from tidemark.model.errors import ErrorCode
from tidemark.model.topics import CONSUMER_OFFSETS, TRANSACTION_STATE
from waiting import wait_for

pytestmark = pytest.mark.e2e

FACTORS = ("offsets.topic.replication.factor", "transaction.state.log.replication.factor")
MINIMUM = "transaction.state.log.min.isr"
PARTITIONS = {
    "offsets.topic.num.partitions": 2,
    "transaction.state.log.num.partitions": 2,
}
KEY_TYPES = {CONSUMER_OFFSETS: 0, TRANSACTION_STATE: 1}


def configured(replicas: int, minimum: int) -> Mapping[str, int]:
    """Keys of a broker."""
    return {**PARTITIONS, **dict.fromkeys(FACTORS, replicas), MINIMUM: minimum}


def find(cluster: Cluster, topic: str) -> Struct:
    """Ask for the coordinator of something that the topic holds."""
    with connect(cluster.kafka(1)) as wire:
        return ask(wire, ApiKey.FIND_COORDINATOR, 3, {"key": "k", "key_type": KEY_TYPES[topic]})


def is_served(cluster: Cluster, topic: str) -> bool:
    """Whether the topic's coordinator is found."""
    return not find(cluster, topic).error_code


def minimum_of(cluster: Cluster, topic: str) -> str:
    """The topic's min.insync.replicas."""
    key = {
        "resource_type": 2,
        "resource_name": topic,
        "configuration_keys": ["min.insync.replicas"],
    }
    with connect(cluster.kafka(1)) as wire:
        answer = ask(wire, ApiKey.DESCRIBE_CONFIGS, 4, {"resources": [key]})
    return str(answer.results[0].configs[0].value)


def has_three_in_sync(cluster: Cluster, topic: str) -> bool:
    """Every partition."""
    partitions = topic_at(cluster.kafka(1), topic).partitions
    return all(len(one.isr) == len(one.replicas) == 3 for one in partitions)


def test_with_too_few_brokers_there_is_no_coordinator_and_it_is_said_why(
    start_cluster: StartCluster,
) -> None:
    cluster = start_cluster(brokers=1, overrides={"broker": configured(3, 2)})
    for topic, option in zip(KEY_TYPES, FACTORS, strict=True):
        answer = find(cluster, topic)
        assert answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert option in answer.error_message
        refused = f'tidemark_internal_topics_refused_total{{topic="{topic}"}} 1.0'
        assert refused in cluster.ops("broker-1", "/metrics")
        assert topic_at(cluster.kafka(1), topic).partitions == []


def test_what_was_made_smaller_is_raised_with_its_minimum(start_cluster: StartCluster) -> None:
    cluster = start_cluster(brokers=3, overrides={"broker": configured(1, 1)})
    for topic in KEY_TYPES:
        wait_for(partial(is_served, cluster, topic), topic)
        assert {len(one.replicas) for one in topic_at(cluster.kafka(1), topic).partitions} == {1}
    cluster.configure("broker", configured(3, 2))
    for number in (1, 2, 3):
        cluster.restart(f"broker-{number}")
    for topic in KEY_TYPES:
        wait_for(partial(has_three_in_sync, cluster, topic), topic)
    wait_for(lambda: minimum_of(cluster, TRANSACTION_STATE) == "2", MINIMUM)
