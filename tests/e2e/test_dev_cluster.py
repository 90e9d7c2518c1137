"""``tidemark dev``: the embedded cluster as people start, hurt and stop it."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from e2e.clusters import PATIENT, START_SECONDS
from kazoo.client import KazooClient
from tidemark.cli.dev.cluster import DevCluster
from tidemark.cli.dev.layout import Layout, coordinators_default, free_port_block
from tidemark.cli.dev.process import ProcessFile
from tidemark.cli.failure import CommandError
from tidemark.runtime.exit_codes import ExitCode
from waiting import PATIENCE_S, cpu_s, idle_s, wait_for

pytestmark = pytest.mark.e2e

UP_SECONDS_MAX = 20.0


def dev(layout: Layout, *words: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "tidemark.cli.main", "dev", *words]
    argv = [*command, "--dir", str(layout.directory), *PATIENT.get(words[0], ())]
    return subprocess.run(argv, capture_output=True, text=True, timeout=PATIENCE_S, check=False)


def health(layout: Layout) -> dict[str, str]:
    return {
        row["name"]: row["health"] for row in json.loads(dev(layout, "status", "-o", "json").stdout)
    }


@pytest.fixture(scope="module")
def layout(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Layout]:
    layout = Layout.on_free_ports(tmp_path_factory.mktemp("cluster"))
    yield layout
    DevCluster(layout).stop()


@pytest.fixture
def cluster(layout: Layout) -> DevCluster:
    cluster = DevCluster(layout)
    cluster.start(START_SECONDS)
    return cluster


@pytest.mark.feature("X02")
def test_up_returns_when_healthy_within_twenty_seconds(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    idle_before_s = idle_s()
    up = dev(layout, "up", "--base-port", str(free_port_block()), "-o", "json")
    waited_s = idle_s() - idle_before_s  # and not for the CPU, which others use too
    running = DevCluster(layout)
    worked_s = sum(cpu_s(running.pid(name)) for name in running.running())
    try:
        assert up.returncode == ExitCode.OK, up.stderr
        expected = 6 + sum(coordinators_default().values())
        assert len(json.loads(up.stdout)["started"]) == expected
        assert set(health(layout).values()) == {"healthy"}
        assert waited_s + worked_s / (os.cpu_count() or 1) < UP_SECONDS_MAX
    finally:
        down = dev(layout, "down")
    assert down.returncode == ExitCode.OK, down.stderr


def test_a_second_up_says_that_it_runs(cluster: DevCluster) -> None:
    again = dev(cluster.layout, "up")
    assert again.returncode == ExitCode.OK, again.stderr
    assert "already running" in again.stderr
    assert f"bootstrap  {cluster.bootstrap}" in again.stdout


def test_after_a_crash_only_what_is_missing_is_started(cluster: DevCluster) -> None:
    pid = cluster.pid("broker-1")
    for name in ("broker-2", "controller-1"):
        cluster.kill(name)
    status = dev(cluster.layout, "status")
    assert status.returncode == ExitCode.FAILED
    assert health(cluster.layout)["broker-2"] == "crashed"
    up = dev(cluster.layout, "up", "-o", "json")
    assert up.returncode == ExitCode.OK, up.stderr
    assert json.loads(up.stdout)["started"] == ["controller-1", "broker-2"]
    assert cluster.pid("broker-1") == pid


def test_a_cluster_that_was_killed_whole_comes_back(cluster: DevCluster) -> None:
    for member in reversed(cluster.layout.members()):
        cluster.kill(member.name)
    assert len(cluster.start(START_SECONDS)) == 6
    assert set(health(cluster.layout).values()) == {"healthy"}


def test_down_stops_everything_and_a_second_down_says_so(cluster: DevCluster) -> None:
    down = dev(cluster.layout, "down", "-o", "json")
    assert down.returncode == ExitCode.OK, down.stderr
    assert json.loads(down.stdout)["killed"] == []
    assert set(health(cluster.layout).values()) == {"stopped"}
    assert "nothing is running" in dev(cluster.layout, "down").stderr


def test_a_cluster_of_another_shape_is_refused_while_one_runs(cluster: DevCluster) -> None:
    up = dev(cluster.layout, "up", "--brokers", "2")
    assert up.returncode == ExitCode.FAILED
    assert "other options is running" in up.stderr


def test_a_taken_port_names_who_has_it_before_anything_starts(tmp_path: Path) -> None:
    layout = Layout.on_free_ports(tmp_path)
    port = layout.shape.ports.client + 1
    taken = pytest.raises(CommandError, match=f"port {port} .*client of broker-2.* pid")
    with socket.create_server(("127.0.0.1", port)), taken as caught:
        DevCluster(layout).start()
    assert caught.value.exit_code is ExitCode.UNAVAILABLE
    assert DevCluster(layout).running() == []


def test_two_commands_at_once_do_not_start_everything_twice(cluster: DevCluster) -> None:
    with cluster._locked():
        up = dev(cluster.layout, "up")
    assert up.returncode == ExitCode.TEMPORARY
    assert "another command is running" in up.stderr


def test_a_configuration_key_is_overridden_for_one_process(cluster: DevCluster) -> None:
    cluster.configure("broker-3", {"log.level": "DEBUG"})
    cluster.restart("broker-3", START_SECONDS)
    text = (cluster.layout.run_directory / "broker-3.yaml").read_text()
    assert json.loads(text)["log.level"] == "DEBUG"
    cluster.wait_healthy(START_SECONDS)


def test_a_broker_is_killed_paused_resumed_and_restarted_by_command(cluster: DevCluster) -> None:
    killed = dev(cluster.layout, "kill", "1")
    assert (killed.returncode, health(cluster.layout)["broker-1"]) == (0, "crashed")
    again = dev(cluster.layout, "kill", "broker-1")
    assert again.returncode == ExitCode.FAILED
    assert "broker-1 is not running" in again.stderr
    assert dev(cluster.layout, "restart", "1").returncode == 0
    for word in ("pause", "resume"):
        assert dev(cluster.layout, word, "1", "-o", "json").returncode == 0
    assert health(cluster.layout)["broker-1"] == "healthy"
    assert "there is no process" in dev(cluster.layout, "kill", "9").stderr


def pids_of(cluster: DevCluster, name: str) -> list[int]:
    """Pids of a service and of its supervisor, if it has one."""
    found = (ProcessFile.read(path) for path in cluster.layout.run_directory.glob(f"{name}.*.json"))
    return [process.pid for process in found if process is not None and process.running()]


def ended_brokers(cluster: DevCluster) -> list[str]:
    """Broker processes whose end is recorded."""
    client = KazooClient(cluster.layout.zookeeper_connect)
    client.start()
    try:
        return list(client.get_children("/brokers/ended"))
    finally:
        client.stop()
        client.close()


def test_a_power_loss_ends_the_supervisor_too_and_is_not_recorded(cluster: DevCluster) -> None:
    assert len(pids_of(cluster, "broker-2")) == 2
    assert dev(cluster.layout, "kill", "2", "--power").returncode == 0
    assert pids_of(cluster, "broker-2") == []
    assert ended_brokers(cluster) == []
    dev(cluster.layout, "kill", "3")
    wait_for(lambda: [one[0] for one in ended_brokers(cluster)] == ["3"])


def test_services_are_started_without_supervisors_on_request(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    few = ["--brokers", "1", "--controllers", "1", "--txn-coordinators", "0"]
    few += ["--share-coordinators", "0", "--base-port", str(free_port_block())]
    up = dev(layout, "up", "--no-supervisors", *few)
    try:
        assert up.returncode == ExitCode.OK, up.stderr
        dev(layout, "restart", "1")
        assert len(pids_of(DevCluster(layout), "broker-1")) == 1
    finally:
        assert dev(layout, "down").returncode == ExitCode.OK
