"""Administration by unmodified clients: confluent-kafka (librdkafka) and kafka-python against a
real cluster.
"""

import itertools
from collections import Counter
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)
from e2e.clusters import Cluster, StartCluster
from kafka import KafkaProducer
from kafka import TopicPartition as KafkaTopicPartition
from kafka.admin import ConfigResource as KafkaConfigResource
from kafka.admin import ConfigResourceType, KafkaAdminClient
from waiting import PATIENCE_S

pytestmark = [pytest.mark.e2e]

WAIT = PATIENCE_S
Names = Callable[[str], str]


@pytest.fixture
def admin(cluster: Cluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": cluster.bootstrap})


@pytest.fixture
def python_admin(cluster: Cluster) -> Iterator[KafkaAdminClient]:
    client = KafkaAdminClient(bootstrap_servers=cluster.bootstrap)
    yield client
    client.close()


def create(admin: AdminClient, name: str, partitions: int = 1, **config: str) -> None:
    dotted = {key.replace("_", "."): value for key, value in config.items()}
    admin.create_topics([NewTopic(name, partitions, 1, config=dotted)])[name].result(WAIT)


def code_of(problem: pytest.ExceptionInfo[KafkaException]) -> str:
    error: KafkaError = problem.value.args[0]
    return error.name()


def topic_config(admin: AdminClient, name: str) -> dict[str, ConfigEntry]:
    resource = ConfigResource(ResourceType.TOPIC, name)
    described: dict[str, ConfigEntry] = admin.describe_configs([resource])[resource].result(WAIT)
    return described


def source_of(entry: ConfigEntry) -> object:
    """The number on the wire; the client declares an enum and hands out the number."""
    return entry.source


def produce(cluster: Cluster, name: str, count: int, *, idempotent: bool = True) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": idempotent})
    for number in range(count):
        producer.produce(name, str(number).encode(), partition=0)
    assert producer.flush(WAIT) == 0


@pytest.mark.feature("Y01", "A04")
def test_a_topic_has_the_partitions_it_was_asked_to_have(
    admin: AdminClient, topic_name: Names
) -> None:
    name = topic_name("orders")
    create(admin, name, 10)
    described = admin.list_topics(name, timeout=WAIT).topics[name]
    assert sorted(described.partitions) == list(range(10))
    assert all(len(one.replicas) == 1 for one in described.partitions.values())


@pytest.mark.feature("H06")
def test_leaders_of_a_new_topic_are_spread_evenly(admin: AdminClient, topic_name: Names) -> None:
    name = topic_name("spread")
    create(admin, name, 9)
    partitions = admin.list_topics(name, timeout=WAIT).topics[name].partitions
    assert sorted(Counter(one.leader for one in partitions.values()).values()) == [3, 3, 3]


@pytest.mark.feature("A04")
def test_whoever_creates_sees_the_topic_at_once_on_the_broker_it_asked(
    cluster: Cluster, topic_name: Names
) -> None:
    for number in range(3):
        admin = AdminClient({"bootstrap.servers": cluster.kafka(1 + number % 3)})
        name = topic_name(f"seen-{number}")
        create(admin, name)
        assert admin.list_topics(name, timeout=WAIT).topics[name].error is None


@pytest.mark.feature("Y01", "A04")
def test_mistakes_in_creating_are_told_with_kafka_s_errors(
    admin: AdminClient, topic_name: Names
) -> None:
    name = topic_name("twice")
    create(admin, name)
    cases = {
        NewTopic(name, 1, 1): "TOPIC_ALREADY_EXISTS",
        NewTopic("a/b", 1, 1): "TOPIC_EXCEPTION",
        NewTopic(topic_name("none"), 0, 1): "INVALID_PARTITIONS",
        NewTopic(topic_name("too-many"), 1, 9): "INVALID_REPLICATION_FACTOR",
        NewTopic(topic_name("bad"), 1, 1, config={"retention.ms": "x"}): "INVALID_CONFIG",
        NewTopic(topic_name("odd"), 1, 1, config={"no.such.key": "1"}): "INVALID_CONFIG",
    }
    for topic, error in cases.items():
        with pytest.raises(KafkaException) as problem:
            admin.create_topics([topic])[topic.topic].result(WAIT)
        assert error in code_of(problem), topic.topic


def test_validating_creates_nothing(admin: AdminClient, topic_name: Names) -> None:
    name = topic_name("dry")
    admin.create_topics([NewTopic(name, 3, 1)], validate_only=True)[name].result(WAIT)
    assert name not in admin.list_topics(timeout=WAIT).topics


@pytest.mark.feature("Y01")
def test_a_deleted_topic_is_gone_and_an_unknown_one_is_an_error(
    admin: AdminClient, topic_name: Names
) -> None:
    name = topic_name("gone")
    create(admin, name)
    admin.delete_topics([name])[name].result(WAIT)
    assert name not in admin.list_topics(timeout=WAIT).topics
    with pytest.raises(KafkaException) as problem:
        admin.delete_topics([name])[name].result(WAIT)
    assert "UNKNOWN_TOPIC" in code_of(problem)


@pytest.mark.feature("Y01", "A04")
def test_partitions_are_added_and_never_taken_away(admin: AdminClient, topic_name: Names) -> None:
    name = topic_name("wider")
    create(admin, name, 2)
    admin.create_partitions([NewPartitions(name, 5)])[name].result(WAIT)
    assert len(admin.list_topics(name, timeout=WAIT).topics[name].partitions) == 5
    with pytest.raises(KafkaException) as problem:
        admin.create_partitions([NewPartitions(name, 3)])[name].result(WAIT)
    assert code_of(problem) == "INVALID_PARTITIONS"


@pytest.mark.feature("A17", "A19")
def test_retention_and_compaction_are_set_per_topic_and_shown_with_their_source(
    admin: AdminClient, topic_name: Names
) -> None:
    name = topic_name("kept")
    create(admin, name, retention_ms="3600000", cleanup_policy="compact,delete")
    shown = topic_config(admin, name)
    assert (shown["retention.ms"].value, source_of(shown["retention.ms"])) == ("3600000", 1)
    assert (shown["cleanup.policy"].value, shown["cleanup.policy"].is_default) == (
        "compact,delete",
        False,
    )
    assert (shown["segment.bytes"].value, source_of(shown["segment.bytes"])) == ("1073741824", 5)


@pytest.mark.feature("A17", "A19")
def test_topic_configuration_is_altered_key_by_key(admin: AdminClient, topic_name: Names) -> None:
    name = topic_name("altered")
    create(admin, name, retention_ms="1000", segment_ms="2000")
    resource = ConfigResource(ResourceType.TOPIC, name)
    for key, value, operation in (
        ("retention.ms", "5000", AlterConfigOpType.SET),
        ("cleanup.policy", "compact", AlterConfigOpType.APPEND),
        ("segment.ms", None, AlterConfigOpType.DELETE),
    ):
        resource.add_incremental_config(ConfigEntry(key, value, incremental_operation=operation))
    admin.incremental_alter_configs([resource])[resource].result(WAIT)
    shown = topic_config(admin, name)
    assert shown["retention.ms"].value == "5000"
    assert shown["cleanup.policy"].value == "delete,compact"
    assert (shown["segment.ms"].value, shown["segment.ms"].is_default) == ("604800000", True)


@pytest.mark.feature("A17")
def test_a_bad_value_is_refused_and_nothing_changes(admin: AdminClient, topic_name: Names) -> None:
    name = topic_name("refused")
    create(admin, name, retention_ms="1000")
    resource = ConfigResource(ResourceType.TOPIC, name)
    resource.add_incremental_config(
        ConfigEntry("retention.ms", "-5", incremental_operation=AlterConfigOpType.SET)
    )
    with pytest.raises(KafkaException) as problem:
        admin.incremental_alter_configs([resource])[resource].result(WAIT)
    assert code_of(problem) == "INVALID_CONFIG"
    assert "retention.ms" in problem.value.args[0].str()
    assert topic_config(admin, name)["retention.ms"].value == "1000"


@pytest.mark.feature("A17")
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::PendingDeprecationWarning")
def test_the_old_alter_forgets_what_it_does_not_name(admin: AdminClient, topic_name: Names) -> None:
    name = topic_name("replaced")
    create(admin, name, retention_ms="1000", segment_ms="2000")
    resource = ConfigResource(ResourceType.TOPIC, name, set_config={"retention.ms": "7000"})
    admin.alter_configs([resource])[resource].result(WAIT)
    shown = topic_config(admin, name)
    assert (shown["retention.ms"].value, shown["segment.ms"].is_default) == ("7000", True)


def alter_broker(admin: AdminClient, entry: ConfigEntry) -> dict[str, ConfigEntry]:
    """Broker 2's configuration after the change."""
    own, change = (ConfigResource(ResourceType.BROKER, "2") for _ in range(2))
    change.add_incremental_config(entry)
    admin.incremental_alter_configs([change])[change].result(WAIT)
    described: dict[str, ConfigEntry] = admin.describe_configs([own])[own].result(WAIT)
    return described


def test_a_broker_shows_its_configuration_and_takes_defaults_for_topics(admin: AdminClient) -> None:
    key = "log.index.interval.bytes"
    entry = ConfigEntry(key, "8192", incremental_operation=AlterConfigOpType.SET)
    shown = alter_broker(admin, entry)
    assert (shown["broker.id"].value, shown["broker.id"].is_read_only) == ("2", True)
    assert (shown[key].value, source_of(shown[key])) == ("8192", 2)
    entry = ConfigEntry(key, None, incremental_operation=AlterConfigOpType.DELETE)
    assert alter_broker(admin, entry)[key].value != "8192"  # the cluster stays as it was


def test_configuration_that_is_not_there_is_an_error(admin: AdminClient, topic_name: Names) -> None:
    unknown = ConfigResource(ResourceType.TOPIC, topic_name("nowhere"))
    with pytest.raises(KafkaException) as problem:
        admin.describe_configs([unknown])[unknown].result(WAIT)
    assert "UNKNOWN_TOPIC" in code_of(problem)
    read_only = ConfigResource(ResourceType.BROKER, "2")
    read_only.add_incremental_config(
        ConfigEntry("log.dirs", "/x", incremental_operation=AlterConfigOpType.SET)
    )
    with pytest.raises(KafkaException):
        admin.incremental_alter_configs([read_only])[read_only].result(WAIT)


@pytest.mark.feature("Y01", "A17")
def test_records_are_deleted_up_to_an_offset_or_all_of_them(
    cluster: Cluster, admin: AdminClient, topic_name: Names
) -> None:
    name = topic_name("cut")
    create(admin, name)
    produce(cluster, name, 10)
    for offset, low_watermark in ((4, 4), (-1, 10)):
        asked = TopicPartition(name, 0, offset)
        (result,) = admin.delete_records([asked]).values()
        assert result.result(WAIT).low_watermark == low_watermark
        earliest = admin.list_offsets({TopicPartition(name, 0): OffsetSpec.earliest()})
        assert next(iter(earliest.values())).result(WAIT).offset == low_watermark
    (result,) = admin.delete_records([TopicPartition(name, 0, 99)]).values()
    with pytest.raises(KafkaException) as problem:
        result.result(WAIT)
    assert code_of(problem) == "OFFSET_OUT_OF_RANGE"


@pytest.mark.feature("Y01")
def test_the_cluster_and_its_topics_are_described(
    cluster: Cluster, admin: AdminClient, topic_name: Names
) -> None:
    name = topic_name("described")
    create(admin, name, 3)
    described = admin.describe_cluster(include_authorized_operations=True).result(WAIT)
    assert sorted(node.id for node in described.nodes) == [1, 2, 3]
    assert described.cluster_id == admin.list_topics(timeout=WAIT).cluster_id
    assert len(described.authorized_operations) == 7


@pytest.mark.feature("Y01", "A04", "A17")
def test_kafka_python_administers_topics(python_admin: KafkaAdminClient, topic_name: Names) -> None:
    name = topic_name("python")
    python_admin.create_topics({name: {"num_partitions": 4, "configs": {"retention.ms": "9000"}}})
    python_admin.create_partitions({name: 6})
    (topic,) = python_admin.describe_topics([name])
    assert len(topic["partitions"]) == 6
    resource = KafkaConfigResource(ConfigResourceType.TOPIC, name, {"retention.ms": "8000"})
    python_admin.alter_configs([resource])
    shown = python_admin.describe_configs([KafkaConfigResource(ConfigResourceType.TOPIC, name)])
    assert "8000" in str(shown)
    python_admin.delete_topics([name])
    assert name not in python_admin.list_topics()


@pytest.mark.feature("Y01")
def test_kafka_python_pages_through_partitions_and_sees_log_dirs(
    cluster: Cluster, python_admin: KafkaAdminClient, topic_name: Names
) -> None:
    name = topic_name("paged")
    python_admin.create_topics({name: {"num_partitions": 5}})
    numbers: list[int] = []
    cursor = None
    for _ in itertools.count():
        page = python_admin.describe_topic_partitions(
            [name], response_partition_limit=2, cursor=cursor
        )
        topics = page["topics"]
        numbers += [one["partition_index"] for topic in topics for one in topic["partitions"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert numbers == [0, 1, 2, 3, 4]
    assert name in str(python_admin.describe_log_dirs())


@pytest.mark.feature("K01")
def test_every_producer_has_an_id_of_its_own_which_the_partition_knows(
    cluster: Cluster, python_admin: KafkaAdminClient, topic_name: Names
) -> None:
    name = topic_name("produced")
    python_admin.create_topics({name: {"num_partitions": 1}})
    for _ in range(3):
        with KafkaProducer(
            bootstrap_servers=cluster.bootstrap, enable_idempotence=True
        ) as producer:
            producer.send(name, b"x", partition=0).get(WAIT)
    partition = KafkaTopicPartition(name, 0)
    described = python_admin.describe_producers([partition])[partition]
    assert len({one.producer_id for one in described.active_producers}) == 3


def producers_known(cluster: Cluster, name: str) -> set[int]:
    admin = KafkaAdminClient(bootstrap_servers=cluster.bootstrap)
    partition = KafkaTopicPartition(name, 0)
    described = admin.describe_producers([partition])[partition]
    admin.close()
    return {one.producer_id for one in described.active_producers}


@pytest.mark.feature("K01")
def test_producer_ids_never_come_twice_even_after_kill_9(start_cluster: StartCluster) -> None:
    quick = {"zookeeper.session.timeout.ms": 4_000}  # a killed broker's id is free after it
    cluster = start_cluster(brokers=1, overrides={"broker": quick})
    create(AdminClient({"bootstrap.servers": cluster.bootstrap}), "orders")
    produce(cluster, "orders", 1)
    (first,) = producers_known(cluster, "orders")
    cluster.kill("broker-1")
    cluster.restart("broker-1")
    produce(cluster, "orders", 1)
    both = producers_known(cluster, "orders")
    assert len(both) == 2
    assert first in both


@pytest.mark.feature("Y01")
def test_without_a_controller_a_change_fails_in_time_and_the_rest_goes_on(
    start_cluster: StartCluster,
) -> None:
    quick = {"zookeeper.session.timeout.ms": 4_000}  # the next one is elected after it
    cluster = start_cluster(brokers=1, overrides={"controller": quick})
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    create(admin, "before")
    cluster.kill("controller-1")
    with pytest.raises(KafkaException) as problem:
        admin.create_topics([NewTopic("during", 1, 1)], operation_timeout=1)["during"].result(WAIT)
    assert code_of(problem) == "REQUEST_TIMED_OUT", "not answered by the broker"
    produce(cluster, "before", 1, idempotent=False)
    cluster.restart("controller-1")
    create(admin, "after")
