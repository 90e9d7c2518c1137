"""APIs for operators, asked by unmodified clients of a real cluster: levels of loggers, finished
transactions, the active controller.
"""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic
from e2e.clusters import Cluster, StartCluster
from kafka import KafkaProducer
from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient
from kafka.errors import KafkaError
from waiting import PATIENCE_S, wait_for

pytestmark = [pytest.mark.e2e]

LOGGER = "broker.shell.listener.connection"


@pytest.fixture
def admin(cluster: Cluster) -> Iterator[KafkaAdminClient]:
    client = KafkaAdminClient(bootstrap_servers=cluster.bootstrap)
    yield client
    client.close()


def level_of(admin: KafkaAdminClient, broker: str) -> str:
    resource = ConfigResource(ConfigResourceType.BROKER_LOGGER, broker)
    (described,) = admin.describe_configs([resource], config_filter="all").values()
    level: str = described[broker][LOGGER]["value"]
    return level


def is_complete(admin: KafkaAdminClient, name: str) -> bool:
    return "COMPLETE" in str(admin.describe_transactions([name])[name].state).upper()


def listed(admin: KafkaAdminClient, duration_ms: int | None) -> set[str]:
    found = admin.list_transactions(duration_filter_ms=duration_ms)
    return {one.transactional_id for of_broker in found.values() for one in of_broker}


@pytest.mark.feature("Y01")
def test_the_level_of_a_logger_is_set_on_one_broker(admin: KafkaAdminClient) -> None:
    assert (level_of(admin, "1"), level_of(admin, "2")) == ("INFO", "INFO")
    for change, after in ((("SET", "DEBUG"), "DEBUG"), (("DELETE", None), "INFO")):
        altered = ConfigResource(ConfigResourceType.BROKER_LOGGER, "2", {LOGGER: change})
        admin.alter_configs([altered])
        assert (level_of(admin, "1"), level_of(admin, "2")) == ("INFO", after)


@pytest.mark.feature("L07", "Y01")
def test_a_finished_transaction_shows_when_it_began(
    cluster: Cluster, admin: KafkaAdminClient, topic_name: Callable[[str], str]
) -> None:
    name = topic_name("finished")
    with KafkaProducer(bootstrap_servers=cluster.bootstrap, transactional_id=name) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        sent = producer.send(name, b"x").get(PATIENCE_S)
        producer.commit_transaction()
    wait_for(lambda: is_complete(admin, name), "the markers are not written")
    described = admin.describe_transactions([name])[name]
    assert described.transaction_start_time_ms >= sent.timestamp
    assert name in listed(admin, None)
    assert name not in listed(admin, 3_600_000)


def quorum(cluster: Cluster) -> dict[str, Any]:
    client = KafkaAdminClient(bootstrap_servers=cluster.bootstrap)
    try:
        described = client.describe_metadata_quorum()
    finally:
        client.close()
    (topic,) = described["topics"]
    (partition,) = topic["partitions"]
    assert partition["error"] is None
    found: dict[str, Any] = partition
    return found


@pytest.mark.feature("Y01")
def test_the_quorum_names_the_active_controller_after_a_failover_too(
    start_cluster: StartCluster,
) -> None:
    quick = {"zookeeper.session.timeout.ms": 4_000}  # the next one is elected after it
    cluster = start_cluster(brokers=2, controllers=2, overrides={"controller": quick})
    before = quorum(cluster)
    assert {one["replica_id"] for one in before["observers"]} == {1, 2}
    assert [one["replica_id"] for one in before["current_voters"]] == [before["leader_id"]]
    cluster.kill(f"controller-{before['leader_id']}")
    after = wait_for(lambda: elected_after(cluster, before), "no other controller is active")
    assert {before["leader_id"], after["leader_id"]} == {1, 2}


@pytest.mark.feature("Y01")
def test_topics_stay_where_their_deletion_is_disabled(start_cluster: StartCluster) -> None:
    cluster = start_cluster(brokers=1, overrides={"controller": {"delete.topic.enable": False}})
    client = AdminClient({"bootstrap.servers": cluster.bootstrap})
    client.create_topics([NewTopic("kept", 1, 1)])["kept"].result(PATIENCE_S)
    with pytest.raises(KafkaException, match="Topic deletion is disabled"):
        client.delete_topics(["kept"])["kept"].result(PATIENCE_S)
    assert "kept" in client.list_topics(timeout=PATIENCE_S).topics


def elected_after(cluster: Cluster, before: dict[str, Any]) -> dict[str, Any] | None:
    try:
        now = quorum(cluster)
    except KafkaError:
        return None  # between two controllers
    return now if now["leader_epoch"] > before["leader_epoch"] else None


@pytest.mark.feature("Y01")
def test_levels_of_features_are_shown_and_not_changed(admin: KafkaAdminClient) -> None:
    before = str(admin.describe_features())
    admin.update_features({"transaction.version": 2})
    with pytest.raises(KafkaError, match="Can't downgrade the version of this feature"):
        admin.update_features({"transaction.version": 1})
    with pytest.raises(KafkaError, match="as long as brokers of this release run"):
        admin.update_features({"transaction.version": ("SAFE_DOWNGRADE", 1)})
    assert str(admin.describe_features()) == before
