"""What groups set for themselves (Kafka's group resource): by several clients, in force in the
consumer protocol, and kept over restarts.
"""

import asyncio
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)
from e2e.clusters import Cluster, started_cluster
from e2e.wire import WAIT_S, ask, connect, create_topic
from kafka.admin import ConfigResource as KafkaConfigResource
from kafka.admin import ConfigResourceType, KafkaAdminClient
from tidemark.cli.group import admin as group_commands
from tidemark.client.admin.types import AlterConfig
from tidemark.client.errors import ClientConfigError
from tidemark.kafka.apis import ApiKey
from tidemark.kafka.long_tail import Struct
from tidemark.model.errors import ErrorCode
from waiting import wait_for

pytestmark = pytest.mark.e2e

SESSION, HEARTBEAT = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
DYNAMIC_GROUP, STATIC_BROKER = 8, 4


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One broker that lets groups be quick."""
    broker = {
        "group.consumer.min.session.timeout.ms": 1_000,
        "group.consumer.heartbeat.interval.ms": 900,
        "group.consumer.min.heartbeat.interval.ms": 100,
        "offsets.topic.num.partitions": 2,
    }
    own = started_cluster(tmp_path_factory.mktemp("group-configs"), overrides={"broker": broker})
    create_topic(own, "read")
    yield own
    own.end()


@pytest.fixture
def group() -> str:
    """Of one test; a name that no znode could have."""
    return f"g/{uuid.uuid4().hex[:8]}"


def heartbeat(cluster: Cluster, group: str, member_id: str, epoch: int) -> Struct:
    """One member's, of the consumer protocol, which reads one topic."""
    joins = epoch == 0
    fields = {
        "group_id": group,
        "member_id": member_id,
        "member_epoch": epoch,
        "instance_id": None,
        "rack_id": None,
        "rebalance_timeout": 5_000 if joins else -1,
        "subscribed_topic_names": ["read"] if joins else None,
        "subscribed_topic_regex": None,
        "server_assignor": None,
        "topic_partitions": [] if joins else None,
    }
    with connect(cluster.kafka()) as wire:
        return ask(wire, ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, fields)


def join(cluster: Cluster, group: str, member_id: str) -> Struct:
    """Once the coordinator is there."""

    def joined() -> Struct | None:
        answer = heartbeat(cluster, group, member_id, 0)
        return answer if answer.error_code == ErrorCode.NONE else None

    with connect(cluster.kafka()) as wire:
        find = {"key_type": 0, "coordinator_keys": [group]}
        ask(wire, ApiKey.FIND_COORDINATOR, 4, find)
    return wait_for(joined, "a member joins")


def set_by(cluster: Cluster, group: str, **settings: int) -> None:
    changes = [AlterConfig(name.replace("_", "."), str(value)) for name, value in settings.items()]
    made = group_commands.configure(cluster.kafka(), group, changes, validate_only=False)
    asyncio.run(made)


def of_consumers(found: dict[str, tuple[Any, Any]]) -> dict[str, tuple[Any, Any]]:
    """Without those of share groups."""
    return {name: one for name, one in found.items() if name.startswith("consumer.")}


def shown(cluster: Cluster, group: str) -> dict[str, tuple[Any, Any]]:
    rows = asyncio.run(group_commands.configs(cluster.kafka(), group))
    return {str(row["name"]): (row["value"], row["source"]) for row in rows}


def test_a_groups_session_and_interval_are_its_own(cluster: Cluster, group: str) -> None:
    other = f"{group}-other"
    quick, patient = join(cluster, group, "m"), join(cluster, other, "m")
    assert (quick.heartbeat_interval, patient.heartbeat_interval) == (900, 900)
    set_by(cluster, group, consumer_session_timeout_ms=1_000, consumer_heartbeat_interval_ms=150)
    assert heartbeat(cluster, group, "m", quick.member_epoch).heartbeat_interval == 150

    def is_gone() -> bool:
        with connect(cluster.kafka()) as wire:
            asked = {"group_ids": [group], "include_authorized_operations": False}
            (described,) = ask(wire, ApiKey.CONSUMER_GROUP_DESCRIBE, 1, asked).groups
        return bool(described.group_state == "Empty")

    wait_for(is_gone, "the silent member is out")
    assert heartbeat(cluster, group, "m", quick.member_epoch).error_code in (
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_MEMBER_EPOCH,
    )
    assert heartbeat(cluster, other, "m", patient.member_epoch).error_code == ErrorCode.NONE


@pytest.mark.feature("Y01")
def test_every_client_sets_and_sees_them(cluster: Cluster, group: str) -> None:
    librdkafka = AdminClient({"bootstrap.servers": cluster.bootstrap})
    entry = ConfigEntry(SESSION, "2000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.GROUP, group, incremental_configs=[entry])
    librdkafka.incremental_alter_configs([resource])[resource].result(WAIT_S)
    python = KafkaAdminClient(bootstrap_servers=cluster.bootstrap)
    try:
        change = KafkaConfigResource(ConfigResourceType.GROUP, group, {HEARTBEAT: "300"})
        python.alter_configs([change])
        listed = python.list_config_resources([ConfigResourceType.GROUP])
    finally:
        python.close()
    asked = ConfigResource(ResourceType.GROUP, group)
    described = librdkafka.describe_configs([asked])[asked].result(WAIT_S)
    found = {name: (one.value, one.source) for name, one in described.items()}
    by_group = {SESSION: ("2000", DYNAMIC_GROUP), HEARTBEAT: ("300", DYNAMIC_GROUP)}
    assert of_consumers(found) == by_group
    assert "share.record.lock.duration.ms" in found
    assert group in str(listed)
    by_command = {SESSION: ("2000", "group"), HEARTBEAT: ("300", "group")}
    assert of_consumers(shown(cluster, group)) == by_command


def test_what_is_unset_is_the_brokers_again(cluster: Cluster, group: str) -> None:
    set_by(cluster, group, consumer_heartbeat_interval_ms=200)
    unset = [AlterConfig(HEARTBEAT, operation="delete")]
    asyncio.run(group_commands.configure(cluster.kafka(), group, unset, validate_only=False))
    assert of_consumers(shown(cluster, group)) == {
        SESSION: ("45000", "default"),
        HEARTBEAT: ("900", "broker file"),
    }


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"consumer_session_timeout_ms": 999}, "group.consumer.min.session.timeout.ms"),
        ({"consumer_session_timeout_ms": 60_001}, "group.consumer.max.session.timeout.ms"),
        ({"consumer_heartbeat_interval_ms": 99}, "group.consumer.min.heartbeat.interval.ms"),
        (
            {"consumer_session_timeout_ms": 1_000, "consumer_heartbeat_interval_ms": 1_000},
            "must be greater than",
        ),
        ({"session_timeout_ms": 2_000}, "Unknown group config name"),
    ],
)
def test_what_is_out_of_bounds_is_refused(
    cluster: Cluster, group: str, settings: dict[str, int], words: str
) -> None:
    with pytest.raises(ClientConfigError, match=words):
        set_by(cluster, group, **settings)
    assert {source for _, source in shown(cluster, group).values()} <= {"default", "broker file"}


def test_kafka_python_hears_why(cluster: Cluster, group: str) -> None:
    client = KafkaAdminClient(bootstrap_servers=cluster.bootstrap)
    change = KafkaConfigResource(ConfigResourceType.GROUP, group, {SESSION: "1"})
    try:
        told = client.alter_configs([change])
    finally:
        client.close()
    assert f"{SESSION} must be greater than or equal to" in told["group"][group]


def test_they_outlive_the_controller_and_the_coordinator(cluster: Cluster, group: str) -> None:
    set_by(cluster, group, consumer_heartbeat_interval_ms=250)
    for name in ("controller-1", "broker-1"):
        cluster.kill(name)
        cluster.restart(name)
    cluster.wait_healthy()
    assert shown(cluster, group)[HEARTBEAT] == ("250", "group")
    assert join(cluster, group, "m").heartbeat_interval == 250
