"""A disk is lost under load, its node is not: led elsewhere, and filled again on an empty disk."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from k8s.cluster_waiting import wait_for
from k8s.conftest import Measure, timed
from k8s.load import Load
from k8s.node_disk import NodeDisk
from k8s.release import Release, run
from k8s.runbook import Runbook
from k8s.test_nodes import MANY, broker, disk_of, load, node_names, number_of, stop

__all__ = ["load"]

ORDINAL = 1


@pytest.fixture
def disk(release: Release) -> Iterator[NodeDisk]:
    """A disk of its own for a broker, empty at first; in the end the broker has a directory."""
    pod, path = broker(release, ORDINAL), disk_of(release, ORDINAL)
    made = NodeDisk(number_of(pod), path)
    stop(release, [pod])
    shutil.rmtree(path)  # what is below: the broker must not find its old disk in the end
    path.mkdir()
    made.mount_empty()
    run("kubectl", "uncordon", *node_names([pod]))
    release.wait_ready()
    yield made
    stop(release, [broker(release, ORDINAL)])
    made.unmount()
    run("kubectl", "uncordon", *node_names([pod]))
    release.wait_ready()


@pytest.mark.feature("KU28", "KU33")
def test_partitions_of_a_failed_disk_are_led_elsewhere_and_an_empty_disk_is_filled(
    release: Release, disk: NodeDisk, load: Load, tmp_path: Path, measured: Measure
) -> None:
    name = f"{release.name}-broker-{ORDINAL}"
    restarts = release.restarts(name)
    with load:
        wait_for(lambda: len(load.acknowledged) > MANY)
        disk.fail()
        # The broker reports its replicas, and ends: it has no other disk.
        wait_for(lambda: release.restarts(name) > restarts, lambda: release.kubectl("get", "pods"))
        assert not release.says("cluster", "health")
        seen = len(load.acknowledged)
        wait_for(lambda: len(load.acknowledged) > seen + MANY)
        commands = Runbook("A disk is lost, the node is not", tmp_path)
        assert commands.next("kubectl get pv") == str(disk_of(release, ORDINAL))
        disk.unmount()
        disk.mount_empty()
        with timed(measured, "empty disk for a failed one, until all replicas are in sync, s"):
            commands.rest()
            release.wait_ready()
    measured("longest gap of a partition when a disk fails, s", load.longest_gap_s())
    load.check()
