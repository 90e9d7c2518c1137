"""Settings of brokers that change while they run, by unmodified clients and the command line."""

import socket
import struct
from collections.abc import Callable, Iterator
from typing import Literal

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)
from e2e.clusters import Cluster
from kafka import TopicPartition
from kafka.admin import KafkaAdminClient
from tidemark.client.admin.types import AlterConfig
from tidemark.client.admin.types import ConfigResource as NativeResource
from tidemark.client.sync import Admin
from waiting import PATIENCE_S, wait_for

pytestmark = [pytest.mark.e2e]

API_VERSIONS = struct.pack(">ihhih", 10, 18, 0, 1, -1)
OTHER_ADDRESS = "127.0.0.2"
Set = Callable[..., None]


@pytest.fixture
def admin(cluster: Cluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": cluster.bootstrap})


def alter(admin: AdminClient, broker: str, entry: ConfigEntry) -> None:
    resource = ConfigResource(ResourceType.BROKER, broker)
    resource.add_incremental_config(entry)
    admin.incremental_alter_configs([resource])[resource].result(PATIENCE_S)


@pytest.fixture
def change(admin: AdminClient) -> Iterator[Set]:
    """Set settings of a broker; they are removed at the end."""
    changed: list[tuple[str, str]] = []

    def set_(broker: str, **settings: str) -> None:
        for field, value in settings.items():
            name = field.replace("_", ".")
            entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
            alter(admin, broker, entry)
            changed.append((broker, name))

    yield set_
    for broker, name in changed:
        alter(
            admin, broker, ConfigEntry(name, None, incremental_operation=AlterConfigOpType.DELETE)
        )


def shown(admin: AdminClient, broker: str, name: str) -> ConfigEntry:
    """A setting of a broker with its synonyms."""
    resource = ConfigResource(ResourceType.BROKER, broker)
    setting: ConfigEntry = admin.describe_configs([resource])[resource].result(PATIENCE_S)[name]
    return setting


def is_served(cluster: Cluster, broker: int) -> bool:
    """True if a connection from the other address is answered, not closed."""
    host, port = cluster.kafka(broker).split(":")
    with socket.create_connection(
        (host, int(port)), PATIENCE_S, source_address=(OTHER_ADDRESS, 0)
    ) as client:
        try:
            client.sendall(API_VERSIONS)
            return client.recv(4) != b""
        except ConnectionError:
            return False


def set_of_all(cluster: Cluster, value: str | None) -> None:
    """Change the expiry of producers for all brokers; the other clients refuse the empty name."""
    operation: Literal["set", "delete"] = "delete" if value is None else "set"
    change = AlterConfig("producer.id.expiration.ms", value, operation)
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        admin.alter_configs({NativeResource("broker", ""): [change]})


def synonyms(cluster: Cluster, broker: str) -> list[str | None]:
    """Values of the expiry of producers, strongest first; librdkafka keeps one for each name."""
    resource = NativeResource("broker", broker)
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        entry = admin.describe_configs([resource])[resource]["producer.id.expiration.ms"]
    return [one.value for one in entry.synonyms]


def producers_of(cluster: Cluster, topic: str) -> object:
    """Idempotent producers that the leader of partition 0 has."""
    admin = KafkaAdminClient(bootstrap_servers=cluster.bootstrap)
    try:
        described = admin.describe_producers([TopicPartition(topic, 0)])
        return described[TopicPartition(topic, 0)].active_producers
    finally:
        admin.close()


@pytest.mark.feature("Y01")
def test_a_brokers_own_setting_is_stronger_than_that_of_all(
    cluster: Cluster, admin: AdminClient, change: Set
) -> None:
    set_of_all(cluster, "5000000")
    change("2", producer_id_expiration_ms="6000000")
    entries = [shown(admin, broker, "producer.id.expiration.ms") for broker in ("1", "2")]
    assert [one.value for one in entries] == ["5000000", "6000000"]
    assert [one.is_read_only for one in entries] == [False, False]
    assert synonyms(cluster, "2") == ["6000000", "5000000", "86400000"]
    set_of_all(cluster, None)
    wait_for(lambda: shown(admin, "1", "producer.id.expiration.ms").value == "86400000")


@pytest.mark.feature("Y01")
def test_addresses_are_closed_and_opened_while_a_broker_runs(cluster: Cluster, change: Set) -> None:
    assert is_served(cluster, 2)
    change("2", max_connections_per_ip_overrides=f"{OTHER_ADDRESS}:0")
    wait_for(lambda: not is_served(cluster, 2))
    assert is_served(cluster, 1)
    change("2", max_connections_per_ip_overrides=f"{OTHER_ADDRESS}:1")
    wait_for(lambda: is_served(cluster, 2))


@pytest.mark.feature("Y01")
def test_producers_are_forgotten_sooner_from_now_on(
    cluster: Cluster, admin: AdminClient, change: Set, topic_name: Callable[[str], str]
) -> None:
    name = topic_name("silent")
    admin.create_topics([NewTopic(name, 1, 3)])[name].result(PATIENCE_S)
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True})
    producer.produce(name, b"x", partition=0)
    assert producer.flush(PATIENCE_S) == 0
    assert producers_of(cluster, name)
    for broker in ("1", "2", "3"):
        change(
            broker,
            producer_id_expiration_ms="1000",
            producer_id_expiration_check_interval_ms="1000",
        )
    wait_for(lambda: not producers_of(cluster, name))


@pytest.mark.feature("Y01")
@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("num_partitions", "3", r"Cannot update these configs dynamically: \[num.partitions\]"),
        ("max_connections", "many", "Invalid value many for configuration max.connections"),
        ("max_connections_per_ip", "0", "can be set to zero only if"),
    ],
)
def test_what_only_a_restart_changes_and_wrong_values_are_refused(
    change: Set, name: str, value: str, words: str
) -> None:
    with pytest.raises(KafkaException, match=words):
        change("2", **{name: value})
