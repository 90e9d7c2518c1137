"""Drains of nodes under load: bounded by the PodDisruptionBudget and by the state of replicas."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from k8s.cluster_waiting import wait_for
from k8s.conftest import Measure, timed
from k8s.load import Load
from k8s.release import Manifest, Release, node_count, run, succeeds
from k8s.runbook import Runbook
from k8s.test_nodes import MANY, NODES, broker, load

__all__ = ["load"]

DRAIN = ("--ignore-daemonsets", "--delete-emptydir-data")
GATE_S = 22
"""For which a broker with 120 s of grace is held back: a quarter of 90 s."""
GRACE_S = 120


@pytest.fixture
def drained(release: Release) -> Iterator[list[str]]:
    """Nodes to drain, which take pods again in the end."""
    if node_count() < NODES:
        pytest.skip(f"the cluster has fewer than {NODES} nodes: make k8s-up NODES={NODES}")
    nodes: list[str] = []
    yield nodes
    run("kubectl", "uncordon", *nodes)
    release.wait_ready()


def node_of(pod: Manifest) -> str:
    """Name of the node of a pod."""
    name: str = pod["spec"]["nodeName"]
    return name


def brokers_of(release: Release) -> str:
    """Selector of the brokers, for drains of nothing else."""
    label = "app.kubernetes.io"
    return f"--pod-selector={label}/instance={release.name},{label}/component=broker"


@pytest.mark.feature("KU02", "KU14")
def test_a_second_drain_is_refused_by_the_budget_until_the_first_broker_is_back(
    release: Release, load: Load, drained: list[str], tmp_path: Path, measured: Measure
) -> None:
    first, second = (node_of(broker(release, ordinal)) for ordinal in (0, 1))
    drained += [first, second]
    with load:
        wait_for(lambda: len(load.acknowledged) > MANY)
        commands = Runbook("Drain a node", tmp_path, NODE=first)
        with timed(measured, "drain of a node with a broker, s"):
            commands.next("kubectl drain")
        assert not succeeds("kubectl", "drain", second, *DRAIN, "--timeout=5s")
        assert node_of(broker(release, 1)) == second
        commands.rest()
        release.wait_ready()
        run("kubectl", "drain", second, *DRAIN)
        run("kubectl", "uncordon", second)
        release.wait_ready()
    measured("longest gap of a partition in drains of two nodes, s", load.longest_gap_s())
    load.check()


@pytest.mark.feature("KU14")
def test_a_drain_waits_while_the_end_of_the_broker_would_be_a_risk_but_not_for_ever(
    release: Release, load: Load, drained: list[str], measured: Measure
) -> None:
    """Every pod is ready, so the budget allows it; partitions with one replica are the risk."""
    topic = f"alone-{time.time_ns()}"
    release.tidemark("topic", "create", topic, "--partitions", "6", "--replication-factor", "1")
    node = node_of(broker(release, 2))
    drained.append(node)
    with load:
        wait_for(lambda: len(load.acknowledged) > MANY)
        begun = time.monotonic()
        run("kubectl", "drain", node, *DRAIN, brokers_of(release))
        seconds = time.monotonic() - begun
        assert GATE_S < seconds < GRACE_S
        measured("drain of a broker with a partition that has no other replica, s", seconds)
        release.tidemark("topic", "delete", topic, "--yes")
    load.check()
