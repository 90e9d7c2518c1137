"""Where pods run, and what an operator adds to them: zones with several nodes, taints, labels,
digests, volumes, environment, containers and manifests.
"""

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

import pytest
from k8s.release import SERVICES, Manifest, Release, node_count, run, write_values
from k8s.test_nodes import NODES, number_of
from lab import node
from lab.settings import node_name

ZONE: Final = "topology.kubernetes.io/zone"
ALONE: Final = 4
"""The only node of its zone. Only pods that tolerate its taint run there."""
ZONES: Final = {1: "many", 2: "many", 3: "many", ALONE: "one"}
WITH_DISK: Final = 2
"""Node with a label that the coordinators ask for."""
SIDE: Final = {
    "name": "side",
    "image": "localhost/tidemark:0.1.0",
    "command": ["sh", "-c", "trap 'exit 0' TERM; sleep infinity & wait"],
    "securityContext": {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    },
}
SHOW: Final = 'echo "$TZ"; cat /own/zone'
OWN: Final = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "{{ .Release.Name }}-own", "namespace": "{{ .Release.Namespace }}"},
    "data": {"zone": "Europe/Berlin"},
}
PRIORITY: Final = {
    "apiVersion": "scheduling.k8s.io/v1",
    "kind": "PriorityClass",
    "metadata": {"name": "{{ .Release.Name }}-high"},
    "value": 1000,
}
EVERY_POD: Final[dict[str, Any]] = {
    "priorityClassName": "zones-high",
    "tolerations": [
        {"key": "dedicated", "operator": "Equal", "value": "log", "effect": "NoSchedule"}
    ],
    "podLabels": {"tier": "log"},
    "podAnnotations": {"example.com/note": "yes"},
    "extraVolumes": [{"name": "own", "configMap": {"name": "zones-own"}}],
    "extraVolumeMounts": [{"name": "own", "mountPath": "/own", "readOnly": True}],
    "extraEnv": [
        {"name": "TZ", "valueFrom": {"configMapKeyRef": {"name": "zones-own", "key": "zone"}}}
    ],
    "extraContainers": [SIDE],
    "resources": {"requests": {"cpu": "30m", "memory": "200Mi"}, "limits": {"memory": "900Mi"}},
}
SETS: Final[dict[str, dict[str, Any]]] = {
    "broker": {"replicas": 3, "storage": {"size": "1Gi"}},
    "controller": {"replicas": 2},
    "txnCoordinator": {"replicas": 1, "nodeSelector": {"disk": "nvme"}},
    "shareCoordinator": {"replicas": 1, "nodeSelector": {"disk": "nvme"}},
    "zookeeper": {"replicas": 1},
}
PLACED: Final[dict[str, Any]] = {
    "replication": {"factor": 2, "minInSyncReplicas": 1},
    "rackAwareness": {"enabled": True},
    "topologySpread": {"whenUnsatisfiable": "DoNotSchedule"},
    "commonLabels": {"team": "data"},
    "extraManifests": [OWN, PRIORITY],
}


@pytest.fixture(scope="module")
def zones() -> Iterator[None]:
    """Three nodes in a zone, and one in another; each in its own again in the end."""
    if node_count() < NODES:
        pytest.skip(f"the cluster has fewer than {NODES} nodes: make k8s-up NODES={NODES}")
    for number, zone in ZONES.items():
        run("kubectl", "label", "node", node_name(number), f"{ZONE}={zone}", "--overwrite")
    run("kubectl", "label", "node", node_name(WITH_DISK), "disk=nvme")
    run("kubectl", "taint", "node", node_name(ALONE), "dedicated=log:NoSchedule")
    yield
    run("kubectl", "taint", "node", node_name(ALONE), "dedicated-")
    run("kubectl", "label", "node", node_name(WITH_DISK), "disk-")
    for number in ZONES:
        run("kubectl", "label", "node", node_name(number), f"{ZONE}=zone-{number}", "--overwrite")


def digest_of(image: str) -> str:
    """Digest of an image, which the nodes then have under it, as if they had pulled it."""
    ctr = ("ctr", "-a", node.CONTAINERD, "-n", "k8s.io", "images")
    name = f"localhost/{image}"
    listed = node.inside(ALONE, *ctr, "ls", f"name=={name}:0.1.0").splitlines()
    digest = listed[1].split()[2]
    for number in ZONES:
        node.inside(number, *ctr, "tag", "--force", f"{name}:0.1.0", f"{name}@{digest}")
    return digest


@pytest.fixture(scope="module")
def placed(zones: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Release]:
    """A release with everything that an operator may add."""
    made = Release("zones")
    sets = {key: {**EVERY_POD, **values} for key, values in SETS.items()}
    sets["zookeeper"]["image"] = {"digest": digest_of("tidemark-zookeeper")}
    image = {"digest": digest_of("tidemark"), "pullSecrets": ["private"]}
    path = tmp_path_factory.mktemp("zones") / "values.yaml"
    made.install(write_values(path, **PLACED, **sets, image=image))
    made.wait_ready()
    yield made
    made.uninstall()
    made.remove_data()


def zones_of(pods: list[Manifest]) -> Counter[str]:
    """How many of the pods are in each zone."""
    return Counter(ZONES[number_of(pod)] for pod in pods)


@pytest.mark.feature("KU03", "KU10")
def test_pods_of_a_kind_are_spread_over_zones_with_several_nodes(placed: Release) -> None:
    brokers = placed.pods("broker")
    assert zones_of(brokers) == {"many": 2, "one": 1}
    assert len({number_of(pod) for pod in brokers}) == len(brokers), "one on each node"
    assert zones_of(placed.pods("controller")) == {"many": 1, "one": 1}
    rows = json.loads(placed.tidemark("cluster", "brokers", "-o", "json"))
    racks = {row["broker"]: row["rack"] for row in rows}
    assert Counter(racks.values()) == {"many": 2, "one": 1}
    placed.tidemark("topic", "create", "spread", "--partitions", "8")
    (topic,) = json.loads(placed.tidemark("topic", "describe", "spread", "-o", "json"))
    for partition in topic["partitions"]:
        assert {racks[broker] for broker in partition["replicas"]} == {"many", "one"}


@pytest.mark.feature("KU18")
def test_a_cluster_takes_what_an_operator_adds_to_pods(placed: Release) -> None:
    for component in (*SERVICES, "zookeeper"):
        for pod in placed.pods(component):
            spec, metadata = pod["spec"], pod["metadata"]
            assert (metadata["labels"]["team"], metadata["labels"]["tier"]) == ("data", "log")
            assert metadata["annotations"]["example.com/note"] == "yes"
            assert (spec["priorityClassName"], spec["priority"]) == ("zones-high", 1000)
            assert spec["imagePullSecrets"] == [{"name": "private"}]
            by_name = {it["name"]: it for it in spec["containers"]}
            own = by_name.pop(component)
            assert own["resources"] == EVERY_POD["resources"]
            assert "@sha256:" in own["image"]
            assert list(by_name) == ["side"]
            name = metadata["name"]
            shown = placed.kubectl("exec", name, "-c", component, "--", "sh", "-c", SHOW)
            assert shown.split() == ["Europe/Berlin", "Europe/Berlin"]
    for component in ("txn-coordinator", "share-coordinator"):
        assert [number_of(pod) for pod in placed.pods(component)] == [WITH_DISK]
    assert "Succeeded" in placed.test()
