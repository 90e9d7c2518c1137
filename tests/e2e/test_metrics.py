"""Metrics of every kind of process of a real cluster, under the names of public dashboards."""

from collections.abc import Iterator

import pytest
from e2e.metered_cluster import GROUP, RECORDS, SERVICES, TOPIC, Metered, metered_cluster
from waiting import wait_for

pytestmark = pytest.mark.e2e

PARTITIONS = [{"topic": TOPIC, "partition": str(number)} for number in (0, 1)]


@pytest.fixture(scope="module")
def metered(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Metered]:
    with metered_cluster(tmp_path_factory.mktemp("metered")) as running:
        yield running


@pytest.mark.feature("AD70")
def test_brokers_serve_what_kafkas_exporter_serves(metered: Metered) -> None:
    manager = "kafka_server_replicamanager"
    assert sum(metered.values("broker", f"{manager}_leadercount")) > 2
    assert metered.values("broker", f"{manager}_underreplicatedpartitions") == [0, 0]
    assert metered.values("broker", f"{manager}_underminisrpartitioncount") == [0, 0]
    assert metered.values("broker", "kafka_log_logmanager_offlinelogdirectorycount") == [0, 0]
    for partition in PARTITIONS:
        assert metered.values("broker", "kafka_cluster_partition_underminisr", **partition) == [0]
        assert metered.values("broker", "kafka_cluster_partition_atminisr", **partition) == [0]
        assert len(metered.values("broker", "kafka_log_log_size", **partition)) == 2
    traffic = "kafka_server_brokertopicmetrics"
    for name in ("bytesin", "bytesout", "messagesin", "totalproducerequests", "totalfetchrequests"):
        assert sum(metered.values("broker", f"{traffic}_{name}_total", topic=TOPIC)) > 0, name
    clients = "kafka_server_socket_server_metrics_connection_count"
    assert len(metered.values("broker", clients, listener="CLIENT")) == 2
    assert sum(metered.values("broker", clients, listener="INTERNAL")) >= 2


@pytest.mark.feature("AD71")
def test_one_controller_is_active_and_counts_the_cluster(metered: Metered) -> None:
    prefix = "kafka_controller_kafkacontroller"
    assert sorted(metered.values("controller", f"{prefix}_activecontrollercount")) == [0, 1]
    assert metered.values("controller", f"{prefix}_offlinepartitionscount") == [0, 0]
    unclean = "kafka_controller_controllerstats_uncleanleaderelections_total"
    assert metered.values("controller", unclean) == [0, 0]
    assert metered.values("controller", "kafka_brokers") == [2], "once in the cluster"
    assert metered.values("controller", "kafka_topic_partitions", topic=TOPIC) == [2]


@pytest.mark.feature("AD72")
@pytest.mark.parametrize(
    ("name", "numbers"),
    [
        ("current_offset", [RECORDS, 1]),
        ("oldest_offset", [0, 0]),
        ("in_sync_replica", [2, 2]),
        ("replicas", [2, 2]),
        ("leader_is_preferred", [1, 1]),
        ("under_replicated_partition", [0, 0]),
    ],
)
def test_each_series_of_a_partition_exists_once(
    metered: Metered, name: str, numbers: list[int]
) -> None:
    for partition, number in zip(PARTITIONS, numbers, strict=True):
        assert metered.values("broker", f"kafka_topic_partition_{name}", **partition) == [number]


@pytest.mark.feature("AD73", "Y08")
def test_a_groups_lag_is_served_by_its_coordinator(metered: Metered) -> None:
    of_zero = {"consumergroup": GROUP, "topic": TOPIC, "partition": "0"}
    (offset,) = metered.values("broker", "kafka_consumergroup_current_offset", **of_zero)
    assert 0 < offset <= RECORDS
    assert metered.values("broker", "kafka_consumergroup_lag", **of_zero) == [RECORDS - offset]
    of_topic = {"consumergroup": GROUP, "topic": TOPIC}
    (lag_sum,) = metered.values("broker", "kafka_consumergroup_lag_sum", **of_topic)
    assert lag_sum >= RECORDS - offset
    assert metered.values("broker", "kafka_consumergroup_members", consumergroup=GROUP) == [0]
    assert sum(metered.values("broker", "tidemark_group_lag_unknown")) == 0


@pytest.mark.feature("AD74", "Y08")
def test_an_open_transaction_holds_the_last_stable_offset_back(metered: Metered) -> None:
    stable = "tidemark_partition_stable_lag_records"
    assert metered.values("broker", stable, **PARTITIONS[1]) == [1]
    assert metered.values("broker", stable, **PARTITIONS[0]) == []
    wait_for(
        lambda: metered.values("txn-coordinator", "tidemark_txn_oldest_open_seconds")[0] > 0,
        "the open transaction has an age",
    )


@pytest.mark.feature("AD74")
def test_every_service_counts_the_ends_of_its_zookeeper_sessions(metered: Metered) -> None:
    for service in SERVICES:
        assert set(metered.values(service, "tidemark_zookeeper_session_ends_total")) == {0}
        assert set(metered.values(service, "tidemark_zookeeper_connected")) == {1}
