"""What an operator adds to every kind of pod: volumes, environment, containers, placement."""

from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]
from helm.chart import CHART, Manifest, named, run_helm

SETS = {
    "broker": "broker",
    "controller": "controller",
    "txnCoordinator": "txn-coordinator",
    "shareCoordinator": "share-coordinator",
    "zookeeper": "zookeeper",
}
each_set = pytest.mark.parametrize("key", SETS)


def manifests(tmp_path: Path, values: dict[str, Any]) -> list[Manifest]:
    """Rendered with these values."""
    path = tmp_path / "values.yaml"
    path.write_text(yaml.safe_dump(values))
    ran = run_helm("template", "demo", str(CHART), "--values", str(path))
    assert ran.returncode == 0, ran.stderr
    return [found for found in yaml.safe_load_all(ran.stdout) if found]


def pod(tmp_path: Path, key: str, values: dict[str, Any], **others: Any) -> Manifest:
    """Template of the pods of one set."""
    found = manifests(tmp_path, {key: values, **others})
    template: Manifest = named(found, "StatefulSet", f"demo-{SETS[key]}")["spec"]["template"]
    return template


@pytest.mark.feature("KU18")
@each_set
def test_volumes_mounts_and_environment_are_added_to_the_container(
    tmp_path: Path, key: str
) -> None:
    volume = {"name": "more", "secret": {"secretName": "own"}}
    mount = {"name": "more", "mountPath": "/more", "readOnly": True}
    setting = {"name": "TZ", "valueFrom": {"configMapKeyRef": {"name": "own", "key": "zone"}}}
    added = {"extraVolumes": [volume], "extraVolumeMounts": [mount], "extraEnv": [setting]}
    spec = pod(tmp_path, key, added)["spec"]
    assert volume in spec["volumes"]
    assert mount in spec["containers"][0]["volumeMounts"]
    assert spec["containers"][0]["env"][-1] == setting
    assert len(spec["containers"]) == 1


@pytest.mark.feature("KU18")
@each_set
def test_containers_run_beside_the_service(tmp_path: Path, key: str) -> None:
    side = {"name": "side", "image": "localhost/side:1", "args": ["--verbose"]}
    spec = pod(tmp_path, key, {"extraContainers": [side]})["spec"]
    assert [it["name"] for it in spec["containers"]] == [SETS[key], "side"]
    assert spec["containers"][1] == side


@pytest.mark.feature("KU18")
@each_set
def test_resources_are_those_of_the_container(tmp_path: Path, key: str) -> None:
    wanted = {"requests": {"cpu": "3", "memory": "5Gi"}, "limits": {"memory": "6Gi"}}
    assert pod(tmp_path, key, {"resources": wanted})["spec"]["containers"][0]["resources"] == wanted


@pytest.mark.feature("KU18")
@each_set
def test_priority_nodes_tolerations_labels_and_annotations_are_those_of_the_pod(
    tmp_path: Path, key: str
) -> None:
    toleration = {"key": "dedicated", "operator": "Exists", "effect": "NoSchedule"}
    placed = {
        "priorityClassName": "high",
        "nodeSelector": {"disk": "nvme"},
        "tolerations": [toleration],
        "podLabels": {"team": "data"},
        "podAnnotations": {"example.com/note": "yes"},
    }
    template = pod(tmp_path, key, placed)
    spec, metadata = template["spec"], template["metadata"]
    assert spec["priorityClassName"] == "high"
    assert (spec["nodeSelector"], spec["tolerations"]) == ({"disk": "nvme"}, [toleration])
    assert metadata["labels"]["team"] == "data"
    assert metadata["annotations"]["example.com/note"] == "yes"


@pytest.mark.feature("KU03", "KU18")
@each_set
def test_pods_are_spread_by_the_topology_that_is_named(tmp_path: Path, key: str) -> None:
    spread = {"topologyKey": "example.com/row", "maxSkew": 2, "whenUnsatisfiable": "DoNotSchedule"}
    (found,) = pod(tmp_path, key, {}, topologySpread=spread)["spec"]["topologySpreadConstraints"]
    selector = found.pop("labelSelector")["matchLabels"]
    assert found == spread
    assert selector["app.kubernetes.io/component"] == SETS[key]


@pytest.mark.feature("KU18")
def test_manifests_are_added_and_templates_in_them_rendered(tmp_path: Path) -> None:
    more = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "{{ .Release.Name }}-more", "namespace": "{{ .Release.Namespace }}"},
        "data": {"brokers": "{{ .Values.broker.replicas }}"},
    }
    found = named(manifests(tmp_path, {"extraManifests": [more]}), "ConfigMap", "demo-more")
    assert found["metadata"]["namespace"] == "default"
    assert found["data"] == {"brokers": "3"}
