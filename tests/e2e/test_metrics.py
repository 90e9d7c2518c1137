"""Metrics of every kind of process of a real cluster, under the names of public dashboards."""

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
import yaml  # type: ignore[import-untyped]
from e2e import metrics_page
from e2e.kafka_wire import batch
from e2e.metered_cluster import (
    GROUP,
    RECORDS,
    SERVICES,
    SHARE_GROUP,
    TOPIC,
    Metered,
    metered_cluster,
)
from e2e.wire import to_leader
from promtool import needs_prometheus, needs_promtool, promtool
from tidemark.model.errors import ErrorCode
from tidemark_wire.v1 import diagnostics_pb2, diagnostics_pb2_grpc
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


@pytest.mark.feature("AD75", "Y08")
def test_states_of_share_groups_are_served(metered: Metered) -> None:
    labels = {"group": SHARE_GROUP, "topic": TOPIC, "partition": "0"}
    wait_for(
        lambda: metered.values("broker", "tidemark_share_lag_records", **labels) == [RECORDS],
        "closing the consumer has given its records back",
    )
    states = metered.samples("broker")
    shown = {
        one.labels["state"]: one.value
        for one in states
        if one.name == "tidemark_share_records" and labels.items() <= one.labels.items()
    }
    assert sum(shown.values()) == RECORDS
    assert {"available", "acquired", "acknowledged", "archived", "behind"} <= shown.keys()
    assert sum(metered.values("share-coordinator", "tidemark_share_groups")) == 1


@pytest.mark.feature("AD76")
@pytest.mark.parametrize("request_name", ["Produce", "Fetch", "CreateTopics", "OffsetCommit"])
def test_times_of_requests_are_histograms(metered: Metered, request_name: str) -> None:
    counts = "tidemark_request_seconds_count"
    assert sum(metered.values("broker", counts, request=request_name)) > 0
    if request_name != "Produce":
        assert sum(metered.values("broker", "tidemark_request_wait_seconds_count")) > 0


@pytest.mark.feature("AD76")
def test_syncs_and_the_delay_of_every_event_loop_are_histograms(metered: Metered) -> None:
    for service in SERVICES:
        name = "tidemark_event_loop_delay_seconds_count"
        wait_for(lambda: all(metered.values(service, name)), service)  # noqa: B023
    wait_for(
        lambda: all(metered.values("broker", "tidemark_flush_seconds_count")),
        "logs are synced in the background",
    )
    assert metered.values("broker", "tidemark_flush_errors_total") == [0, 0]
    assert len(metered.values("broker", "tidemark_isr_change_seconds_count")) == 2


@pytest.mark.feature("AD76")
def test_a_batch_that_does_not_match_its_crc_is_counted(metered: Metered) -> None:
    def errors() -> float:
        found = metered.values("broker", "tidemark_batch_crc_errors_total", source="produce")
        return sum(found)

    before = errors()
    damaged = bytearray(batch(b"abc"))
    damaged[66] ^= 1
    with to_leader(metered.cluster, TOPIC) as wire:
        assert wire.produce(TOPIC, bytes(damaged)).error_code == ErrorCode.CORRUPT_MESSAGE
    assert errors() == before + 1


@needs_promtool
@pytest.mark.feature("AD78")
@pytest.mark.parametrize("service", SERVICES)
def test_promtool_has_nothing_to_say_about_a_service(metered: Metered, service: str) -> None:
    for name in metered.names(service):
        assert promtool("check", "metrics", text=metered.text(name)) == ""


def _slow(stub: Any, count_max: int) -> Any:
    return stub.ListSlowRequests(diagnostics_pb2.ListSlowRequestsRequest(count_max=count_max))


@pytest.mark.feature("AD86")
def test_a_broker_keeps_its_slow_requests(metered: Metered) -> None:
    with grpc.insecure_channel(metered.cluster.grpc(1)) as channel:
        stub: Any = diagnostics_pb2_grpc.BrokerDiagnosticsStub(channel)
        wait_for(
            lambda: metered.create_topic() and _slow(stub, 1).requests,
            "the creation of a topic takes a millisecond",
        )
        found = _slow(stub, 1)
    assert (found.threshold_ms, len(found.requests)) == (1, 1)
    slow = found.requests[0]
    assert [stage.name for stage in slow.stages] == ["handling", "waiting", "ordering"]
    assert sum(stage.us for stage in slow.stages) == pytest.approx(slow.total_us, abs=3)
    assert slow.peer.startswith("127.0.0.1:")
    assert found.seen >= 1


@pytest.mark.feature("AD85")
def test_the_page_of_metrics_lists_what_processes_serve(metered: Metered) -> None:
    by_service = {
        service: metrics_page.served(metered.text(name) for name in metered.names(service))
        for service in SERVICES
    }
    if os.environ.get("REWRITE") == "1":
        metrics_page.rewrite(by_service)
    page = metrics_page.listed()
    for service, metrics in by_service.items():
        shown = page[metrics_page.EVERY] | page[metrics_page.TITLES[service]]
        assert {name: one.kind for name, one in shown.items()} == {
            name: one.kind for name, one in metrics.items()
        }, service
        labelled = {name: one for name, one in metrics.items() if one.labels}
        assert {name: shown[name] for name in labelled} == labelled


def _queries(folder: Path) -> Iterator[str]:
    """Every query of every panel and every alert, as Prometheus takes it."""
    for path in sorted((folder / "dashboards").glob("*.json")):
        for panel in json.loads(path.read_text())["panels"]:
            for target in panel["targets"]:
                query = target["expr"].replace("$__rate_interval", "1m")
                yield query.replace("$topic", ".*").replace("$group", ".*")
    rules = yaml.safe_load((folder / "alerts.yaml").read_text())
    yield from (rule["expr"] for group in rules["groups"] for rule in group["rules"])


QUERIES = list(_queries(Path(__file__).parents[2] / "monitoring"))
METRIC = re.compile(r"\b(?:kafka|tidemark|process)_\w+")


@pytest.mark.feature("AD80")
def test_every_metric_of_every_panel_and_alert_is_served(metered: Metered) -> None:
    served: set[str] = set()
    for service in SERVICES:
        texts = (metered.text(name) for name in metered.names(service))
        for name, one in metrics_page.served(texts).items():
            served.add(f"{name}_bucket" if one.kind == "histogram" else name)
    asked = {name for query in QUERIES for name in METRIC.findall(query)}
    assert len(asked) > 50
    assert asked - served == set()


@needs_prometheus
@pytest.mark.feature("AD81")
def test_prometheus_scrapes_every_process_and_evaluates_every_query(metered: Metered) -> None:
    names = {name for service in SERVICES for name in metered.names(service)}

    def scraped() -> bool:
        found = metered.prometheus("query", query="up == 1")["result"]
        return {one["metric"]["instance"] for one in found} == names

    wait_for(scraped, "every process is scraped")
    for query in QUERIES:
        assert metered.prometheus("query", query=query)["resultType"] == "vector", query
    alerts = metered.prometheus("rules")["groups"][0]["rules"]
    assert [rule for rule in alerts if rule["health"] == "err"] == []


@needs_prometheus
@pytest.mark.feature("AD81")
def test_lag_can_be_asked_of_prometheus_as_public_dashboards_do(metered: Metered) -> None:
    query = f'sum(kafka_consumergroup_lag{{consumergroup="{GROUP}"}}) by (consumergroup, topic)'
    (found,) = wait_for(
        lambda: metered.prometheus("query", query=query)["result"], "the group is scraped"
    )
    assert found["metric"] == {"consumergroup": GROUP, "topic": TOPIC}
    # Another process serves this one: it may be scraped later.
    (brokers,) = wait_for(
        lambda: metered.prometheus("query", query="kafka_brokers")["result"], "it is scraped"
    )
    assert brokers["value"][1] == "2"
