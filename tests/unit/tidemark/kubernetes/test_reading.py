from typing import Any

import pytest
from tidemark.kubernetes.reading import (
    read_claims,
    read_nodes,
    read_pods,
    read_sets,
    read_volume,
)
from tidemark.plans.kubernetes.release import Claim, Node, Pod, PodSet, Volume
from unit.tidemark.kubernetes.memory_api import manifest, pod


def test_a_set_with_its_annotation() -> None:
    paused = manifest("demo-broker", "broker")
    paused["metadata"]["annotations"] = {"tidemark/replacement-paused": "true"}
    paused["status"]["observedGeneration"] = 1
    assert read_sets([paused, manifest("else", "database")]) == [
        PodSet("demo-broker", "broker", 1, "new", is_observed=False, is_paused=True)
    ]


def test_a_pod_that_cannot_be_scheduled() -> None:
    pending = pod("demo-broker-2")
    claim = {"name": "disk0", "persistentVolumeClaim": {"claimName": "disk0-demo-broker-2"}}
    pending["spec"] = {"volumes": [claim, {"name": "tmp", "emptyDir": {}}]}
    why = {"type": "PodScheduled", "status": "False", "message": "volume node affinity conflict"}
    pending["status"]["conditions"] = [why]
    assert read_pods([pending]) == [
        Pod("demo-broker-2", "1", "broker", "old", "", ("disk0-demo-broker-2",), is_ready=False,
            problem="volume node affinity conflict")
    ]  # fmt: skip


def test_pods_of_jobs_are_left_out() -> None:
    job = pod("demo-roll-1")
    assert read_pods([job]) == []


def test_claims() -> None:
    meta = {"name": "a", "uid": "7", "deletionTimestamp": "2026-01-01T00:00:00Z"}
    items: list[dict[str, Any]] = [
        {"metadata": meta, "spec": {"volumeName": "pv-1"}},
        {"metadata": {"name": "b", "uid": "8"}, "spec": {}},
    ]
    assert read_claims(items) == {"a": Claim("a", "7", "pv-1", True), "b": Claim("b", "8")}


@pytest.mark.parametrize(("hosts", "node"), [(["one"], "one"), (["one", "two"], ""), ([], "")])
def test_the_node_of_a_volume_is_the_only_one_that_its_affinity_names(
    hosts: list[str], node: str
) -> None:
    rule = {"key": "kubernetes.io/hostname", "operator": "In", "values": hosts}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [rule]}]}
    spec = {"local": {"path": "/a"}, "nodeAffinity": {"required": terms}}
    found = read_volume({"metadata": {"name": "pv"}, "spec": spec})
    assert found == Volume("pv", node, is_local=True, is_retained=False)


def test_nodes_by_their_host_names() -> None:
    labels = {"kubernetes.io/hostname": "host-1"}
    taint = {"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute"}
    status = {"conditions": [{"type": "Ready", "status": "Unknown"}]}
    item = {"metadata": {"name": "n", "labels": labels}, "spec": {"taints": [taint]}}
    assert read_nodes([{**item, "status": status}]) == {"host-1": Node("n", False, True)}
