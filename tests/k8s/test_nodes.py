"""Nodes that are lost under load: back again, never back, and with each other's disks."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from k8s.cluster_waiting import wait_for
from k8s.conftest import Measure, timed
from k8s.load import PARTITIONS, Load
from k8s.release import Manifest, Release, node_count, run, succeeds
from k8s.runbook import Runbook
from lab import node
from lab.control_plane import reclaim_volumes
from lab.settings import ROOT, node_name

MANY = 100
"""Acknowledged writes before a fault."""
NODES = 4
"""Three for the brokers, and one that takes the place of another."""


@pytest.fixture
def load(release: Release) -> Load:
    topic = f"nodes-{time.time_ns()}"
    release.tidemark("topic", "create", topic, "--partitions", str(PARTITIONS))
    return Load(release.client(), topic)


@pytest.fixture
def nodes() -> Iterator[None]:
    """Every node runs, before and after."""
    if node_count() < NODES:
        pytest.skip(f"the cluster has fewer than {NODES} nodes: make k8s-up NODES={NODES}")
    yield
    start_all()
    reclaim_volumes()


def start_all() -> None:
    """Start the nodes that do not run, and wait until all are ready."""
    for number in range(1, NODES + 1):
        if number not in node.running():
            lab("start", number)
        wait_node(number, "True")


def lab(command: str, *numbers: int) -> None:
    """Run a command of the lab in a process of its own, which what it starts outlives."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "tools")}
    argv = (sys.executable, "-m", "lab", command, *map(str, numbers))
    ran = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr


def wait_node(number: int, ready: str) -> None:
    """Wait until the API server has this status of a node."""
    path = '{.status.conditions[?(@.type=="Ready")].status}'
    name = node_name(number)
    argv = ("kubectl", "get", "node", name, "-o", f"jsonpath={path}", "--ignore-not-found")
    wait_for(lambda: run(*argv) == ready, lambda: run("kubectl", "get", "nodes"))


def number_of(pod: Manifest) -> int:
    """Number of the node of a pod."""
    return int(pod["spec"]["nodeName"].rpartition("-")[2])


def broker(release: Release, ordinal: int) -> Manifest:
    """The pod of a broker."""
    name = f"{release.name}-broker-{ordinal}"
    return next(it for it in release.pods("broker") if it["metadata"]["name"] == name)


def lose(load: Load, number: int) -> None:
    """Cut the power of a node under load, and wait until Kubernetes has noticed."""
    wait_for(lambda: len(load.acknowledged) > MANY)
    lab("kill", number)
    wait_node(number, "Unknown")


def refused(call: Callable[[], object]) -> str:
    """What a command that is refused says."""
    with pytest.raises(AssertionError) as failed:
        call()
    return str(failed.value)


@pytest.mark.usefixtures("nodes")
def test_a_node_that_comes_back_serves_its_disk_again_and_no_acknowledged_write_is_lost(
    release: Release, load: Load, measured: Measure
) -> None:
    number = number_of(broker(release, 2))
    with load:
        lose(load, number)
        said = refused(lambda: release.k8s("replace-node", node_name(number), "--yes"))
        assert "NodeNotConfirmed" in said
        lab("start", number)
        with timed(measured, "node back, until all pods are ready and replicas in sync, s"):
            release.wait_ready()
    measured(
        "longest gap of a partition when a node is lost and comes back, s", load.longest_gap_s()
    )
    assert number_of(broker(release, 2)) == number
    load.check()


@pytest.fixture
def cut(nodes: None) -> Iterator[list[int]]:
    """Nodes that are off the network, which are put back in the end."""
    found: list[int] = []
    yield found
    for number in found:
        lab("heal", number)


@pytest.mark.feature("KU30", "X03")
def test_a_node_off_the_network_is_not_replaced_and_serves_its_disk_once_it_is_back(
    release: Release, load: Load, cut: list[int], measured: Measure
) -> None:
    pod = broker(release, 2)
    number = number_of(pod)
    with load:
        wait_for(lambda: len(load.acknowledged) > MANY)
        cut.append(number)
        lab("cut", number)
        wait_node(number, "Unknown")
        seen = len(load.acknowledged)
        wait_for(lambda: len(load.acknowledged) > seen + MANY)
        said = refused(lambda: release.k8s("replace-node", node_name(number), "--yes"))
        assert "NodeNotConfirmed" in said
        lab("heal", number)
        cut.clear()
        with timed(measured, "node back on the network, until replicas are in sync, s"):
            release.wait_ready()
    measured("longest gap of a partition when a node is off the network, s", load.longest_gap_s())
    assert number_of(broker(release, 2)) == number
    load.check()


@pytest.mark.feature("KU29", "KU30", "KU31", "X03", "Y09")
@pytest.mark.usefixtures("nodes")
def test_a_node_that_never_comes_back_is_replaced_by_hand(
    release: Release, load: Load, tmp_path: Path, measured: Measure
) -> None:
    number = number_of(broker(release, 1))
    name = node_name(number)
    assert "NodeAlive" in refused(lambda: release.k8s("replace-node", name, "--yes"))
    with load:
        lose(load, number)
        commands = Runbook("A node is lost", tmp_path, NODE=name)
        commands.next("kubectl taint")
        commands.next("kubectl delete")
        assert f"node {name} is gone" in refused(lambda: release.k8s("status"))
        assert f"disk0-{release.name}-broker-1" in commands.next("tidemark k8s replace-node")
        with timed(measured, "replacement of a lost node, s"):
            commands.next("tidemark k8s replace-node", also="--yes --timeout 500")
    measured("longest gap of a partition when a node is replaced, s", load.longest_gap_s())
    release.wait_ready()
    assert number_of(broker(release, 1)) != number
    assert "no claim of this release" in release.k8s("replace-node", name, "--yes")
    load.check()


@pytest.mark.feature("KU30", "KU32")
@pytest.mark.usefixtures("nodes")
def test_of_two_lost_nodes_neither_is_replaced(release: Release, load: Load) -> None:
    first, second = number_of(broker(release, 0)), number_of(broker(release, 1))
    with load:
        wait_for(lambda: len(load.acknowledged) > MANY)
        lab("kill", first)
        lose(load, second)
        wait_node(first, "Unknown")
        words = ("replace-node", node_name(first), "--yes", "--node-is-dead")
        said = refused(lambda: release.k8s(*words))
        assert "SeveralNodes" in said
        events = release.objects("events", "--field-selector", "reason=SeveralNodes")
        assert node_name(second) in events[0]["message"]
        for number in (first, second):
            lab("start", number)
        release.wait_ready()
    load.check()


@pytest.mark.feature("KU28")
@pytest.mark.usefixtures("nodes")
def test_a_disk_of_another_broker_is_refused_by_its_stamp(release: Release) -> None:
    brokers = [broker(release, ordinal) for ordinal in (0, 1)]
    paths = [disk_of(release, ordinal) for ordinal in (0, 1)]
    stop(release, brokers)
    swap(*paths)
    run("kubectl", "uncordon", *node_names(brokers))
    wait_refused(release, 0, 1)
    wait_refused(release, 1, 0)
    stop(release, [broker(release, ordinal) for ordinal in (0, 1)])
    swap(*paths)
    run("kubectl", "uncordon", *node_names(brokers))
    release.wait_ready()


def wait_refused(release: Release, ordinal: int, other: int) -> None:
    """Wait until a broker does not serve the disk of another one."""
    belongs = f"this log directory belongs to broker {other}, not {ordinal}"
    argv = ("kubectl", "-n", release.name, "logs", f"{release.name}-broker-{ordinal}")
    wait_for(lambda: succeeds(*argv) and belongs in run(*argv), lambda: run(*argv))


def node_names(pods: list[Manifest]) -> list[str]:
    """Nodes of pods."""
    return [pod["spec"]["nodeName"] for pod in pods]


def stop(release: Release, pods: list[Manifest]) -> None:
    """End pods, and let none be made on their nodes."""
    run("kubectl", "cordon", *node_names(pods))
    for pod in pods:
        name = pod["metadata"]["name"]
        release.kubectl("delete", "pod", name, "--wait=false", "--grace-period=1")

    def gone() -> bool:
        uids = {pod["metadata"]["uid"] for pod in pods}
        return not uids & {it["metadata"]["uid"] for it in release.pods("broker")}

    wait_for(gone, lambda: release.kubectl("get", "pods"))


def disk_of(release: Release, ordinal: int) -> Path:
    """Directory of a broker's disk on this machine."""
    claim = f"disk0-{release.name}-broker-{ordinal}"
    volume = release.kubectl("get", "pvc", claim, "-o", "jsonpath={.spec.volumeName}")
    return Path(run("kubectl", "get", "pv", volume, "-o", "jsonpath={.spec.local.path}"))


def swap(one: Path, other: Path) -> None:
    """Exchange what two directories have."""
    between = one.with_name("swapped")
    between.mkdir()
    for source, target in ((one, between), (other, one), (between, other)):
        for file in source.iterdir():
            file.rename(target / file.name)
    between.rmdir()
