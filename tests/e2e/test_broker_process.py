"""Broker processes with a real ZooKeeper and controller: join, serve, die, come back."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, ConfigSource, ResourceType
from e2e.broker_processes import BrokerProcess, running_cluster
from e2e.kafka_wire import Wire, batch
from tidemark.codec.record_batch import iterate_headers, read_header
from tidemark.runtime.exit_codes import ExitCode
from waiting import PATIENCE_S, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[BrokerProcess]]:
    with running_cluster(tmp_path_factory.mktemp("cluster"), 2) as started:
        yield started


def create(brokers: list[BrokerProcess], topic: str, *, at: int = 0) -> int:
    """Create a topic by asking for it; the number of its leader, when every broker knows it."""
    with Wire(brokers[at].port) as wire:
        (made,) = wire.metadata(topic, create=True).topics
    assert made.error_code == 0, made
    for broker in brokers:
        with Wire(broker.port) as wire:
            wait_for(lambda: wire.metadata(topic).topics[0].error_code == 0, str)
    return made.partitions[0].leader_id


@pytest.mark.feature("A13", "A14", "X01")
def test_every_broker_answers_metadata_for_all(brokers: list[BrokerProcess]) -> None:
    leader = create(brokers, "known")
    for broker in brokers:
        with Wire(broker.port) as wire:
            response = wire.metadata("known")
            assert {one.node_id for one in response.brokers} == {1, 2}
            assert response.topics[0].partitions[0].leader_id == leader
            assert response.controller_id == broker.number


@pytest.mark.feature("A06", "C01")
def test_only_the_leader_takes_records(brokers: list[BrokerProcess]) -> None:
    leader = create(brokers, "led")
    for broker in brokers:
        with Wire(broker.port) as wire:
            result = wire.produce("led", batch(b"x"), version=10)
            assert (result.error_code == 0) == (broker.number == leader)
            if broker.number != leader:
                assert result.current_leader == (leader, 0)


@pytest.mark.feature("Y01")
@pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat is not installed")
def test_kcat_produces_and_consumes(brokers: list[BrokerProcess]) -> None:
    create(brokers, "cats", at=1)
    lines = b"".join(b"key%d:value %d\n" % (number, number) for number in range(500))
    kcat = ["kcat", "-b", brokers[0].bootstrap, "-t", "cats"]
    subprocess.run([*kcat, "-P", "-K:", "-z", "lz4"], input=lines, check=True, timeout=PATIENCE_S)
    read = subprocess.run(
        [*kcat, "-C", "-e", "-q", "-o", "beginning", "-K:"],
        check=True,
        timeout=PATIENCE_S,
        capture_output=True,
    )
    assert sorted(read.stdout.splitlines()) == sorted(lines.splitlines())


@pytest.mark.feature("B05", "K09", "KU11", "KU13")
def test_kill_9_loses_nothing_acknowledged_and_keeps_sequences(
    brokers: list[BrokerProcess],
) -> None:
    leader = brokers[create(brokers, "killed") - 1]
    fields: dict[str, Any] = {"producer_id": 77, "producer_epoch": 0}
    with Wire(leader.port) as wire:
        for number in range(20):
            result = wire.produce("killed", batch(b"%d" % number, base_sequence=number, **fields))
            assert result.base_offset == number
    leader.kill()
    leader.start()
    leader.wait_ready()
    assert leader.http("/startupz")[0] == 200
    left = f'kafka_log_logmanager_remaininglogstorecover{{dir="{leader.log_dirs}"}} 0.0'
    assert left in leader.http("/metrics")[1]
    with Wire(leader.port) as wire:
        # Its registration and its election are two changes: it may be ready between them.
        wait_for(lambda: wire.offset("killed", 0, -1).offset == 20, "not served again")
        data = wire.fetch(("killed", 0, 0)).topics[0].partitions[0].records
        assert len(list(iterate_headers(data))) == 20
        repeated = wire.produce("killed", batch(b"19", base_sequence=19, **fields))
        assert (repeated.error_code, repeated.base_offset) == (0, 19)
        following = wire.produce("killed", batch(b"20", base_sequence=20, **fields))
        assert (following.error_code, following.base_offset) == (0, 20)


@pytest.mark.feature("G03", "G08")
def test_a_broker_without_options_has_the_intervals_of_the_design(
    brokers: list[BrokerProcess],
) -> None:
    admin = AdminClient({"bootstrap.servers": brokers[0].bootstrap})
    asked = ConfigResource(ResourceType.BROKER, "1")
    found = admin.describe_configs([asked])[asked].result(PATIENCE_S)
    lag, wait = (found[f"replica.{name}.max.ms"] for name in ("lag.time", "fetch.wait"))
    assert (lag.value, lag.source) == ("10000", ConfigSource.DEFAULT_CONFIG.value)
    assert (wait.value, wait.source) == ("500", ConfigSource.DEFAULT_CONFIG.value)


def test_sigterm_is_a_clean_stop(brokers: list[BrokerProcess]) -> None:
    leader = brokers[create(brokers, "stopped") - 1]
    with Wire(leader.port) as wire:
        assert wire.produce("stopped", batch(b"x")).error_code == 0
    assert leader.stop() == ExitCode.OK
    leader.start()
    leader.wait_ready()
    opened = [line for line in leader.logged() if line["message"] == "log directory open"]
    assert opened[-1]["clean"] is True
    with Wire(leader.port) as wire:
        # Its registration and its election are two changes: it may be ready between them.
        wait_for(lambda: wire.offset("stopped", 0, -1).offset == 1, "not served again")
        data = wire.fetch(("stopped", 0, 0)).topics[0].partitions[0].records
        assert read_header(data).record_count == 1


def test_metrics_carry_kafkas_names(brokers: list[BrokerProcess]) -> None:
    leader = brokers[create(brokers, "measured") - 1]
    with Wire(leader.port) as wire:
        assert wire.produce("measured", batch(b"x", b"y")).error_code == 0
    status, text = leader.http("/metrics")
    assert status == 200
    for line in (
        'kafka_server_brokertopicmetrics_messagesin_total{topic="measured"} 2.0',
        "kafka_server_replicamanager_leadercount",
        'kafka_network_requestmetrics_requests_total{request="Produce"}',
        'kafka_log_log_size{partition="0",topic="measured"}',
    ):
        assert line in text, line


def refusal_of(broker: BrokerProcess) -> tuple[int, str]:
    """Exit code and log of a broker that may not join."""
    broker.start()
    assert broker.process is not None
    try:
        return broker.process.wait(PATIENCE_S), broker.log_path.read_text()
    finally:
        broker.kill()


def test_a_directory_of_another_broker_is_refused(
    brokers: list[BrokerProcess], tmp_path: Path
) -> None:
    thief = BrokerProcess(9, "127.0.0.1:1", tmp_path)
    shutil.copytree(brokers[0].data, thief.data)
    (thief.data / ".lock").unlink()
    code, logged = refusal_of(thief)
    assert code == ExitCode.IO
    assert "belongs to broker 1" in logged


def test_a_broker_with_a_lease_of_another_length_is_refused(
    brokers: list[BrokerProcess], tmp_path: Path
) -> None:
    stranger = BrokerProcess(9, brokers[0].connect, tmp_path, "--lease.ms", "5000")
    code, logged = refusal_of(stranger)
    assert code == ExitCode.CONFIG
    assert "broker 9 has lease.ms=5000, the cluster has lease.ms=3000" in logged
    assert "set lease.ms=3000" in logged
    assert "Traceback" not in logged
    with Wire(brokers[0].port) as wire:
        assert {one.node_id for one in wire.metadata().brokers} == {1, 2}
