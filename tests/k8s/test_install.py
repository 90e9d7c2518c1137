"""The chart on a cluster: installed, used from inside and outside, removed, installed again."""

import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from k8s.conftest import EXTERNAL, Measure
from k8s.release import (
    SERVICES,
    Client,
    Release,
    is_of_set,
    is_ready,
    node_count,
    write_values,
)
from k8s.runbook import Runbook
from waiting import PATIENCE_S


def produce(client: Client, topic: str, values: list[str]) -> None:
    failed = []
    producer = Producer({**client, "acks": "all"})
    for value in values:
        producer.produce(topic, value, on_delivery=lambda error, _: failed.append(error))
    assert producer.flush(PATIENCE_S) == 0
    assert failed == [None] * len(values)


def consume(client: Client, topic: str, group: str, count: int) -> list[str]:
    config = {**client, "group.id": group, "auto.offset.reset": "earliest"}
    consumer = Consumer(config)
    consumer.subscribe([topic])
    values: list[str] = []
    while len(values) < count:
        message = consumer.poll(PATIENCE_S)
        assert message is not None, values
        if message.error() is None:
            values.append((message.value() or b"").decode())
    consumer.close()
    return values


@pytest.mark.feature("KU01", "KU02", "KU03", "KU04", "KU16", "X02")
def test_no_value_is_needed_for_three_brokers_on_three_nodes_and_a_write_acknowledged_by_all(
    tmp_path: Path, measured: Measure
) -> None:
    if node_count() < 3:
        pytest.skip("the cluster has fewer than three nodes: make k8s-up NODES=3")
    release = Release("plain")
    begun = time.monotonic()
    (tmp_path / "values.yaml").write_text("")
    release.install(tmp_path / "values.yaml")
    release.wait_says("topic", "create", "first", "--if-not-exists")
    release.tidemark("topic", "produce", "first", given="one\n")
    measured("install to first acknowledged write, no values, s", time.monotonic() - begun)
    release.wait_ready()
    measured("install to all pods ready, no values, s", time.monotonic() - begun)
    assert len({pod["spec"]["nodeName"] for pod in release.pods("broker")}) == 3
    for pod in filter(is_of_set, release.pods()):
        assert [it["restartCount"] for it in pod["status"]["containerStatuses"]] == [0]
    assert {it["status"]["disruptionsAllowed"] for it in release.objects("pdb")} == {1}
    assert "Succeeded" in release.test()
    release.uninstall()
    Runbook("Delete the data", tmp_path, release.name).next("kubectl -n plain delete pvc")
    release.remove_data()


@pytest.mark.feature("KU09")
def test_records_go_in_and_out_from_inside_and_from_outside(release: Release) -> None:
    release.tidemark("topic", "create", "in-and-out", "--if-not-exists")
    release.tidemark("topic", "produce", "in-and-out", given="inside\n")
    produce(release.client(), "in-and-out", ["outside"])
    assert {*consume(release.client(), "in-and-out", "out", 2)} == {"inside", "outside"}
    words = ("--from", "earliest", "--until-end")
    shown = release.tidemark("topic", "consume", "in-and-out", *words)
    assert {"inside", "outside"} <= set(shown.split())


@pytest.mark.feature("KU21")
def test_the_charts_own_test_succeeds(release: Release) -> None:
    assert "Succeeded" in release.test()


@pytest.mark.feature("KU12", "KU13")
def test_every_service_is_ready_and_was_restarted_by_no_probe(release: Release) -> None:
    """Other tests crash brokers: what counts is who ended a container."""
    for component in SERVICES:
        assert all(map(is_ready, release.pods(component)))
    ended = release.objects("events", "--field-selector", "reason=Killing")
    assert not [it["message"] for it in ended if "probe" in it["message"]]


@pytest.mark.feature("KU08")
def test_uninstall_keeps_the_data_and_a_new_install_finds_it(
    release: Release, tmp_path: Path, measured: Measure
) -> None:
    topic = f"kept-{time.time_ns()}"
    values = [str(number) for number in range(100)]
    release.tidemark("topic", "create", topic)
    produce(release.client(), topic, values)
    claims = {it["metadata"]["uid"] for it in release.objects("pvc")}
    if release.says("topic", "describe", "first"):
        release.tidemark("topic", "delete", "first", "--yes")
    begun = time.monotonic()
    (tmp_path / "uninstall").mkdir()
    commands = Runbook("Uninstall", tmp_path / "uninstall")
    commands.next("helm uninstall")
    measured("uninstall, until all pods are gone, s", time.monotonic() - begun)
    assert f"disk0-{release.name}-broker-2" in commands.next("kubectl -n demo get pvc")
    assert {it["metadata"]["uid"] for it in release.objects("pvc")} == claims
    values_file = write_values(tmp_path / "values.yaml", external=EXTERNAL)
    commands = Runbook("Install", tmp_path)
    commands.next("helm install", also=f"--values {values_file}")
    commands.rest()
    release.wait_ready()
    assert consume(release.client(), topic, topic, len(values)) == values
