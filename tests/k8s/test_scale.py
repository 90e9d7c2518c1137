"""Brokers are added under load, filled on command, emptied again, and only then removed."""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from k8s.cluster_waiting import wait_for
from k8s.conftest import EXTERNAL, Measure, timed
from k8s.load import PARTITIONS, Load
from k8s.release import Release, node_count, write_values
from k8s.runbook import Runbook
from k8s.test_nodes import MANY, NODES, load
from lab.control_plane import reclaim_volumes

__all__ = ["load"]

THROTTLE = "50000000"
ADDED = 3
"""Id of the broker that is added."""


@pytest.fixture
def wide(release: Release, tmp_path: Path) -> Iterator[Release]:
    """The release with a fourth broker; with three again in the end, however a test ended."""
    need_nodes()
    scale(release, tmp_path, 4)
    release.wait_ready()
    yield release
    if len(release.pods("broker")) > ADDED:
        move(release, "--remove-broker", str(ADDED))
        scale(release, tmp_path, 3)
    wait_for(lambda: len(release.pods("broker")) == ADDED, lambda: release.kubectl("get", "pods"))
    release.wait_says("cluster", "unregister", str(ADDED), "--yes")
    release.kubectl("delete", "pvc", f"disk0-{release.name}-broker-{ADDED}")
    reclaim_volumes()


def need_nodes() -> None:
    """Skip where the cluster is too small."""
    if node_count() < NODES:
        pytest.skip(f"the cluster has fewer than {NODES} nodes: make k8s-up NODES={NODES}")


def scale(release: Release, tmp_path: Path, brokers: int) -> str:
    """Upgrade to this number of brokers; return what helm prints."""
    values = write_values(
        tmp_path / f"{brokers}.yaml", external=EXTERNAL, broker={"replicas": brokers}
    )
    return release.install(values)


def move(release: Release, *target: str) -> None:
    """Plan, apply with a throttle, and watch to the end."""
    plan = release.tidemark("cluster", "reassign", "plan", *target, "-o", "json")
    words = ("cluster", "reassign", "apply", "-", "--throttle", THROTTLE)
    release.tidemark(*words, given=plan)
    release.tidemark("cluster", "reassign", "watch")


def replicas_on(release: Release, broker: int) -> int:
    """Number of replicas of a broker."""
    rows = json.loads(release.tidemark("cluster", "brokers", "-o", "json"))
    return next(int(row["replicas"]) for row in rows if row["broker"] == broker)


@pytest.mark.feature("KU24", "KU34")
def test_a_broker_is_added_and_filled_under_load_and_removed_once_it_is_empty(
    release: Release, load: Load, tmp_path: Path, measured: Measure
) -> None:
    need_nodes()
    commands = Runbook("Add and remove brokers", tmp_path)
    with load:
        wait_for(lambda: len(load.acknowledged) > MANY)
        commands.next("helm upgrade")
        commands.next("kubectl -n demo wait statefulset")
        with timed(measured, "rebalancing onto a fourth broker, s"):
            for _ in range(3):
                commands.next("kubectl -n demo exec")
        held = replicas_on(release, ADDED)
        assert held >= PARTITIONS / 2
        with pytest.raises(AssertionError, match=rf"broker {ADDED} has {held} replicas"):
            scale(release, tmp_path, 3)
        assert len(release.pods("broker")) == 4
        with timed(measured, "emptying the fourth broker, s"):
            for _ in range(3):
                commands.next("kubectl -n demo exec")
        assert replicas_on(release, ADDED) == 0
        commands.rest()
        release.wait_ready()
    assert len(release.pods("broker")) == 3
    reclaim_volumes()
    measured("longest gap of a partition as brokers are added and removed, s", load.longest_gap_s())
    load.check()


@pytest.mark.feature("KU24")
def test_a_rollback_does_not_remove_a_broker_with_replicas(wide: Release, tmp_path: Path) -> None:
    topic = f"wide-{time.time_ns()}"
    wide.tidemark("topic", "create", topic, "--partitions", "1", "--replication-factor", "4")
    with pytest.raises(AssertionError, match=rf"broker {ADDED} has [1-9][0-9]* replica"):
        wide.rollback(wide.revision() - 1)
    assert len(wide.pods("broker")) == 4
    Runbook("A rollback was refused", tmp_path).rest()
    wide.tidemark("topic", "delete", topic, "--yes")
