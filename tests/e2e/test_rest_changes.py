"""Changes through REST whose effect is looked at in the cluster: what ends transactions, groups,
leaderships and the replicas of a broker. Each test has a topic of its own.
"""

import uuid
from collections.abc import Iterator
from typing import Any

import confluent_kafka
import pytest
from broker.storage.directory_names import DELETE_SUFFIX
from e2e.clusters import Cluster, started_cluster
from e2e.kafka_wire import Wire, batch
from e2e.rest_world import Api, api_of
from e2e.transactional_clients import producer, write
from tidemark.client import TopicPartition, sync
from tidemark.client.errors import ClientError
from tidemark.codec.record_batch import TRANSACTIONAL_BIT
from tidemark.model.errors import ErrorCode
from tidemark.runtime.clock import Clock
from waiting import PATIENCE_MS, PATIENCE_S, wait_for

pytestmark = pytest.mark.e2e

DRY = {"dry_run": "true"}
LEAVING = 4
AWAY = 3


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Four brokers. They take a batch without a transaction's consent, which then hangs."""
    own = started_cluster(
        tmp_path_factory.mktemp("rest-changes"),
        brokers=4,
        txn_coordinators=1,
        overrides={
            "broker": {
                "transaction.partition.verification.enable": False,
                "offsets.topic.num.partitions": 2,
                "transaction.state.log.num.partitions": 2,
            },
            "controller": {
                "auto.leader.rebalance.enable": False,
                "rest.rate.per.second": 10_000,
                "rest.allowed.hosts": "admin.example.org",
            },
        },
    )
    yield own
    own.end()


@pytest.fixture(scope="module")
def rest(cluster: Cluster) -> Iterator[Api]:
    api = api_of(cluster, 1)
    yield api
    api.http.close()


@pytest.fixture
def topic(rest: Api) -> str:
    """Topic of two partitions on brokers 1, 2 and 3."""
    return created(rest, {"0": [1, 2], "1": [2, 3]})


def created(rest: Api, replicas: dict[str, list[int]]) -> str:
    name = f"changes.{uuid.uuid4().hex}"
    rest.ok("createKafkaTopic", body={"topic_name": name, "replicas_assignments": replicas})
    return name


def produce(rest: Api, topic: str, count: int) -> None:
    for number in range(count):
        record = {"partition_id": 0, "value": {"type": "STRING", "data": f"v{number}"}}
        rest.ok("produceRecord", topic_name=topic, body=record)


def messages(rest: Api, topic: str, **query: Any) -> list[dict[str, Any]]:
    """Records of partition 0, in order."""
    found = rest.ok(
        "readMessages", topic_name=topic, query={"from": "earliest", "partition": 0, **query}
    )
    shown = [one for one in found["data"] if one["state"] != "marker"]
    return sorted(shown, key=lambda one: int(one["offset"]))


def values(rest: Api, topic: str) -> list[str]:
    """Values that a read_committed consumer would read."""
    return [one["value"]["data"] for one in messages(rest, topic)]


@pytest.mark.feature("AD42")
@pytest.mark.parametrize("path", ["/", "/topics", "/v3/clusters", "/openapi.json"])
def test_a_page_of_another_site_gets_nothing_under_its_own_name(rest: Api, path: str) -> None:
    rebound = rest.http.get(path, headers={"host": "evil.example:8080"})
    assert rebound.status_code == 421
    assert "rest.allowed.hosts" in rebound.text
    for name in ("localhost", "10.1.2.3:8080", "admin.example.org"):
        assert rest.http.get(path, headers={"host": name}).status_code == 200
    assert rest.http.get("/livez", headers={"host": "evil.example"}).status_code == 200


# -- brokers


@pytest.mark.feature("AD87")
def test_a_restart_that_is_put_off_is_counted_by_its_risk(rest: Api) -> None:
    created(rest, {"0": [2]})
    shown = 'tidemark_controller_restart_deferrals_total{risk="replication_factor_1"}'

    def counted() -> float:
        lines = rest.http.get("/metrics").text.splitlines()
        return sum(float(one.removeprefix(shown)) for one in lines if one.startswith(shown))

    before = counted()
    assert rest.ok("canRestartBroker", broker_id=2)["can_restart"] is False
    assert counted() == before + 1


def replicas_of(rest: Api, broker: int) -> int:
    return int(rest.ok("searchKafkaReplicasByBroker", broker_id=broker)["total"])


def on_disk(cluster: Cluster, broker: int, topic: str) -> bool:
    """True if the broker has a log of the topic that is not going to be deleted."""
    logs = cluster.data_directory(broker).glob(f"{topic}-*")
    return any(not one.name.endswith(DELETE_SUFFIX) for one in logs)


@pytest.mark.feature("AD20")
def test_a_decommission_ends_with_a_broker_that_has_no_replica(rest: Api, cluster: Cluster) -> None:
    topic = created(rest, {"0": [LEAVING, 1], "1": [2, LEAVING], "2": [3, LEAVING]})
    produce(rest, topic, 20)
    wait_for(lambda: on_disk(cluster, LEAVING, topic), "its logs are there")
    before = replicas_of(rest, LEAVING)
    assert before >= 3
    shown = rest.call("decommissionBroker", broker_id=LEAVING, query=DRY)
    assert (shown.status_code, len(shown.json()["moves"])) == (200, before)
    assert replicas_of(rest, LEAVING) == before
    begun = rest.call("decommissionBroker", broker_id=LEAVING)
    assert (begun.status_code, begun.json()["moves_count"]) == (202, before)
    ended = watched(rest, begun.json()["operation_id"])
    assert ended["messages"][-1]["text"] == f"{before} of {before} partitions are done"
    assert replicas_of(rest, LEAVING) == 0
    assert rest.ok("getKafkaBroker", broker_id=LEAVING)["leaders"] == 0
    wait_for(lambda: not on_disk(cluster, LEAVING, topic), "its replicas are deleted from its disk")
    assert values(rest, topic) == [f"v{number}" for number in range(20)]


@pytest.mark.feature("AD27")
def test_a_stopped_broker_without_replicas_is_unregistered_and_returns(
    rest: Api, cluster: Cluster
) -> None:
    if replicas_of(rest, LEAVING):
        watched(rest, rest.call("decommissionBroker", broker_id=LEAVING).json()["operation_id"])
    setting = {"value": "99"}
    rest.ok("updateKafkaBrokerConfig", body=setting, broker_id=LEAVING, name="max.connections")
    refused = rest.call("unregisterKafkaBroker", broker_id=LEAVING)
    assert (refused.status_code, refused.json()["remedy"]) == (409, "stop it first")
    with sync.Admin(cluster.bootstrap) as admin:
        held = refusal_of(admin, 1)
        assert cluster.terminate(f"broker-{LEAVING}")
        wait_for(lambda: not is_online(rest), "the cluster knows that it has stopped")
        assert rest.call("unregisterKafkaBroker", broker_id=LEAVING, query=DRY).is_success
        assert rest.ok("getKafkaBroker", broker_id=LEAVING)["state"] == "fenced"
        admin.unregister_broker(LEAVING)  # waits for the end of its lease
        assert refusal_of(admin, LEAVING) is ErrorCode.BROKER_ID_NOT_REGISTERED
    assert held is ErrorCode.POLICY_VIOLATION
    gone = lambda: rest.call("getKafkaBroker", broker_id=LEAVING).status_code == 404  # noqa: E731
    wait_for(gone, "every controller has forgotten it")
    cluster.restart(f"broker-{LEAVING}")
    assert is_online(rest)
    left = rest.ok("listKafkaBrokerConfigs", broker_id=LEAVING)["data"]
    assert {one["name"]: one["value"] for one in left}["max.connections"] != "99"


def refusal_of(admin: sync.Admin, broker_id: int) -> ErrorCode:
    with pytest.raises(ClientError) as refused:
        admin.unregister_broker(broker_id)
    return refused.value.code


def is_online(rest: Api) -> bool:
    return bool(rest.ok("getKafkaBroker", broker_id=LEAVING)["state"] == "online")


def watched(rest: Api, operation_id: str) -> dict[str, Any]:
    """Follow an operation until it has succeeded: its progress never falls, and ends with 1."""
    seen: list[float] = [0.0]

    def look() -> dict[str, Any] | None:
        found: dict[str, Any] = rest.ok("getOperation", operation_id=operation_id)
        assert seen[-1] <= found["progress"] <= 1
        seen.append(found["progress"])
        return found if found["state"] not in ("pending", "running") else None

    ended: dict[str, Any] = wait_for(look, "the operation ends")
    assert (ended["state"], ended["progress"]) == ("succeeded", 1)
    return ended


@pytest.mark.feature("AD21")
def test_preferred_leaders_are_elected(rest: Api, topic: str) -> None:
    swapped = {"topic_name": topic, "partition_id": 0, "replicas": [2, 1]}
    operation = rest.ok("applyReassignment", body={"moves": [swapped]})["operation_id"]
    assert rest.settled(operation)["state"] == "succeeded"
    assert leader(rest, topic) == 1
    both = [{"topic_name": topic, "partition_id": number} for number in (0, 1)]
    shown = rest.ok("electLeaders", body={"partitions": both}, query=DRY)["data"]
    assert [one["result"] for one in shown] == ["elected", "not needed"]
    assert leader(rest, topic) == 1
    done = rest.ok("electLeaders", body={"partitions": both})["data"]
    assert [one["result"] for one in done] == ["elected", "not needed"]
    wait_for(lambda: leader(rest, topic) == 2, "the preferred leader leads")


def leader(rest: Api, topic: str) -> int:
    replicas = rest.ok("listKafkaReplicas", topic_name=topic, partition_id=0)["data"]
    return int(next((one["broker_id"] for one in replicas if one["is_leader"]), -1))


@pytest.mark.feature("AD12")
def test_an_undrain_waits_for_a_broker_that_is_down(rest: Api, cluster: Cluster) -> None:
    topic = created(rest, {"0": [AWAY, 1]})
    assert rest.settled(rest.ok("drainBroker", broker_id=AWAY)["operation_id"])["progress"] == 1
    wait_for(lambda: leader(rest, topic) == 1, "the other replica leads")
    assert cluster.terminate(f"broker-{AWAY}")
    try:
        wait_for(lambda: in_sync(rest, topic) == [1], "the broker is not in sync")
        begun = rest.ok("undrainBroker", broker_id=AWAY)["operation_id"]
        wait_for(lambda: "alive and in sync" in said(rest, begun), "the operation says that")
        assert rest.ok("getOperation", operation_id=begun)["state"] == "running"
    finally:
        cluster.restart(f"broker-{AWAY}")
    assert rest.settled(begun)["state"] == "succeeded"
    assert leader(rest, topic) == AWAY


def in_sync(rest: Api, topic: str) -> list[int]:
    replicas = rest.ok("listKafkaReplicas", topic_name=topic, partition_id=0)["data"]
    return sorted(one["broker_id"] for one in replicas if one["is_in_sync"])


def said(rest: Api, operation_id: str) -> str:
    """Last message of an operation."""
    messages = rest.ok("getOperation", operation_id=operation_id)["messages"]
    return str(messages[-1]["text"]) if messages else ""


# -- transactions


def open_in(rest: Api, topic: str, kind: str = "open") -> list[dict[str, Any]]:
    query = {kind: "true", "topic": topic}
    found: list[dict[str, Any]] = rest.ok("listTransactions", query=query)["open_transactions"]
    return found


@pytest.mark.feature("AD22")
def test_an_aborted_transaction_is_gone_and_its_producer_fenced(
    rest: Api, cluster: Cluster, topic: str
) -> None:
    name = f"writer/{uuid.uuid4().hex}"
    writer = producer(cluster, name, **{"transaction.timeout.ms": PATIENCE_MS})
    writer.begin_transaction()
    write(writer, {topic: ["inside"]})
    wait_for(lambda: open_in(rest, topic), "the transaction is open")
    produce(rest, topic, 1)
    assert values(rest, topic) == []
    rest.ok("abortTransaction", transactional_id=name, query=DRY)
    assert rest.ok("getTransaction", transactional_id=name)["state"] == "Ongoing"
    assert rest.call("abortTransaction", transactional_id=name).status_code == 204
    wait_for(lambda: not open_in(rest, topic), "no transaction is open")
    wait_for(lambda: values(rest, topic) == ["v0"], "the record after it is read")
    with pytest.raises(confluent_kafka.KafkaException) as refusal:
        writer.commit_transaction(PATIENCE_S)
    assert refusal.value.args[0].code() == confluent_kafka.KafkaError._FENCED
    states = [one["state"] for one in messages(rest, topic, committed_only="false")]
    assert states == ["aborted", "plain"]


def hang(cluster: Cluster, topic: str) -> None:
    """Write a batch of a transaction that no coordinator has; it began an hour ago."""
    begun_ms = Clock().wall_ms() - 3_600_000
    late = batch(
        b"late", timestamp=begun_ms, producer_id=77, producer_epoch=5, base_sequence=0,
        attributes_extra=TRANSACTIONAL_BIT,
    )  # fmt: skip
    with Wire(int(cluster.kafka(1).rpartition(":")[2])) as wire:
        answer = wire.produce(topic, late, partition=0, acks=-1, transactional_id="gone")
    assert answer.error_code == 0


@pytest.mark.feature("AD22")
def test_a_hanging_transaction_is_aborted_in_its_partition(
    rest: Api, cluster: Cluster, topic: str
) -> None:
    produce(rest, topic, 2)
    hang(cluster, topic)
    (found,) = wait_for(lambda: open_in(rest, topic, "hanging"), "it is seen")
    at = {"topic_name": topic, "partition_id": 0, "start_offset": 2}
    assert (found["start_offset"], found["is_hanging"]) == (2, True)
    wrong = rest.call("abortHangingTransaction", body={**at, "start_offset": 1})
    assert wrong.status_code == 404
    rest.ok("abortHangingTransaction", body=at, query=DRY)
    assert open_in(rest, topic, "hanging")
    assert rest.call("abortHangingTransaction", body=at).status_code == 204
    wait_for(lambda: not open_in(rest, topic), "it is no longer open")
    produce(rest, topic, 1)
    assert values(rest, topic) == ["v0", "v1", "v0"]
    states = [one["state"] for one in messages(rest, topic, committed_only="false")]
    assert states == ["plain", "plain", "aborted", "plain"]


# -- groups


def committed(cluster: Cluster, group: str) -> dict[TopicPartition, int]:
    with sync.Admin(cluster.kafka()) as admin:
        return {at: one.offset for at, one in admin.list_group_offsets(group).items()}


@pytest.mark.feature("AD23")
def test_a_group_is_deleted_with_its_offsets_once_it_has_no_members(
    rest: Api, cluster: Cluster, topic: str
) -> None:
    group = f"gone/{uuid.uuid4().hex}"
    produce(rest, topic, 3)
    with sync.Consumer(cluster.kafka(), group_id=group, auto_offset_reset="earliest") as reader:
        reader.subscribe([topic])
        wait_for(lambda: reader.poll(timeout_ms=100), "the group reads")
        reader.commit()
        refused = rest.call("deleteKafkaConsumerGroup", consumer_group_id=group)
        assert (refused.status_code, refused.json()["error_code"]) == (409, 40901)
    assert committed(cluster, group)[TopicPartition(topic, 0)] == 3
    assert rest.call("deleteKafkaConsumerGroup", consumer_group_id=group).status_code == 204
    assert committed(cluster, group) == {}
    assert rest.call("getKafkaConsumerGroup", consumer_group_id=group).status_code == 404
    listed = rest.ok("listKafkaConsumerGroups", query={"page_size": 1_000})["data"]
    assert group not in [one["consumer_group_id"] for one in listed]
