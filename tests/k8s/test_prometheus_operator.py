"""A release that the Prometheus operator watches: what Prometheus scrapes, and its alerts."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

import pytest
import yaml  # type: ignore[import-untyped]
from k8s.cluster_waiting import wait_for
from k8s.conftest import EXTERNAL
from k8s.release import CHART, SERVICES, Release, node_count, run, write_values
from k8s.test_nodes import NODES, lab, start_all
from lab import prometheus_operator
from lab.settings import ROOT, node_name

MONITORING: Final = "monitoring"
"""Namespace of Prometheus: the one that the example lets in."""
POD_MONITOR: Final = {
    "metrics": {"podMonitor": {"enabled": True, "labels": {"release": "prometheus"}}},
    "networkPolicy": {"allowedNamespaces": [MONITORING]},
}
_OBJECTS: Final = """\
apiVersion: v1
kind: Namespace
metadata:
  name: {namespace}
  labels: {{pod-security.kubernetes.io/enforce: restricted}}
---
apiVersion: v1
kind: ServiceAccount
metadata: {{name: prometheus, namespace: {namespace}}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {{name: prometheus}}
rules:
  - apiGroups: [""]
    resources: [services, endpoints, pods]
    verbs: [get, list, watch]
  - apiGroups: [discovery.k8s.io]
    resources: [endpointslices]
    verbs: [get, list, watch]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {{name: prometheus}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: prometheus}}
subjects: [{{kind: ServiceAccount, name: prometheus, namespace: {namespace}}}]
---
apiVersion: monitoring.coreos.com/v1
kind: Prometheus
metadata: {{name: watching, namespace: {namespace}}}
spec:
  image: {image}
  version: {version}
  serviceAccountName: prometheus
  serviceMonitorSelector: {{matchLabels: {{release: prometheus}}}}
  serviceMonitorNamespaceSelector: {{}}
  podMonitorSelector: {{matchLabels: {{release: prometheus}}}}
  podMonitorNamespaceSelector: {{}}
  ruleSelector: {{matchLabels: {{release: prometheus}}}}
  ruleNamespaceSelector: {{}}
  securityContext:
    runAsNonRoot: true
    runAsUser: 65534
    fsGroup: 65534
    seccompProfile: {{type: RuntimeDefault}}
  containers:
    - {{name: prometheus, command: [{prometheus}]}}
    - {{name: config-reloader, command: [{reloader}]}}
  initContainers:
    - {{name: init-config-reloader, command: [{reloader}]}}
"""


@pytest.fixture(scope="module")
def _prometheus() -> Iterator[None]:
    lab("prometheus-operator")
    objects = _OBJECTS.format(
        namespace=MONITORING,
        image=prometheus_operator.IMAGE,
        version=prometheus_operator.VERSION,
        prometheus=prometheus_operator.PROMETHEUS,
        reloader=prometheus_operator.RELOADER,
    )
    run("kubectl", "apply", "-f", "-", given=objects)
    ready = ("wait", "prometheus/watching", "--for=condition=Available", "--timeout=10m")
    run("kubectl", "-n", MONITORING, *ready)
    yield
    run("kubectl", "delete", "-f", "-", given=objects)
    prometheus_operator.stop()


@pytest.fixture
def example() -> dict[str, Any]:
    """The values that docs/operating/kubernetes.md gives for monitoring."""
    values: dict[str, Any] = yaml.safe_load((CHART / "examples/monitored.yaml").read_text())
    return values


@pytest.fixture
def watched(release: Release, example: dict[str, Any], tmp_path: Path) -> Iterator[Release]:
    """The release with the values of the example, as a test leaves them."""
    number = release.revision()
    release.install(write_values(tmp_path / "values.yaml", external=EXTERNAL, **example))
    yield release
    release.rollback(number)


def ask(path: str, **query: str) -> Any:
    """Return what Prometheus answers on a path of its API, through the API server."""
    service = f"/api/v1/namespaces/{MONITORING}/services/prometheus-operated:9090/proxy"
    answer = run("kubectl", "get", "--raw", f"{service}/api/v1/{path}?{urlencode(query)}")
    return json.loads(answer)["data"]


def scraped(jobs: str = "tidemark.*") -> dict[tuple[str, str], bool]:
    """Job and pod of each target of some jobs: True if its last scrape succeeded."""
    series = ask("query", query=f'up{{job=~"{jobs}"}}')["result"]
    return {(it["metric"]["job"], it["metric"]["pod"]): it["value"][1] == "1" for it in series}


def name_of(pod: dict[str, Any]) -> str:
    """Name of a pod."""
    return str(pod["metadata"]["name"])


def firing() -> set[tuple[str, str]]:
    """Names of the alerts that fire, each with the pod that it is about."""
    labels = [it["labels"] for it in ask("alerts")["alerts"] if it["state"] == "firing"]
    return {(it["alertname"], it.get("pod", "")) for it in labels}


@pytest.mark.feature("KU19")
@pytest.mark.usefixtures("_prometheus")
def test_prometheus_scrapes_every_pod_of_a_service_and_evaluates_every_alert(
    watched: Release,
) -> None:
    pods = {(f"tidemark-{it}", name_of(pod)) for it in SERVICES for pod in watched.pods(it)}
    assert len(pods) > len(SERVICES)
    wait_for(lambda: scraped() == dict.fromkeys(pods, True), lambda: str(scraped()))
    groups = yaml.safe_load((ROOT / "monitoring/alerts.yaml").read_text())["groups"]
    alerts = {rule["alert"] for group in groups for rule in group["rules"]}

    def health() -> dict[str, str]:
        found = [rule for group in ask("rules")["groups"] for rule in group["rules"]]
        return {rule["name"]: rule["health"] for rule in found}

    wait_for(lambda: health() == dict.fromkeys(alerts, "ok"), lambda: str(health()))


@pytest.mark.feature("KU19")
@pytest.mark.usefixtures("_prometheus")
@pytest.mark.parametrize("example", [pytest.param(POD_MONITOR, id="pod monitor")])
def test_prometheus_scrapes_every_pod_by_a_pod_monitor(watched: Release) -> None:
    job = f"{watched.name}/{watched.name}"
    pods = {(job, name_of(pod)) for it in SERVICES for pod in watched.pods(it)}
    wait_for(lambda: scraped(job) == dict.fromkeys(pods, True), lambda: str(scraped(job)))


@pytest.mark.feature("KU19")
@pytest.mark.usefixtures("_prometheus")
def test_an_alert_names_the_broker_whose_node_is_cut_off(watched: Release) -> None:
    if node_count() < NODES:
        pytest.skip(f"the cluster has fewer than {NODES} nodes: make k8s-up NODES={NODES}")
    argv = ("kubectl", "-n", MONITORING, "get", "pod", "prometheus-watching-0", "-o", "json")
    own = json.loads(run(*argv))["spec"]["nodeName"]
    broker = next(pod for pod in watched.pods("broker") if pod["spec"]["nodeName"] != own)
    (number,) = (it for it in range(1, NODES + 1) if node_name(it) == broker["spec"]["nodeName"])
    wait_for(lambda: scraped().get(("tidemark-broker", name_of(broker))))
    lab("cut", number)
    try:
        wait_for(lambda: ("TidemarkProcessDown", name_of(broker)) in firing())
    finally:
        lab("heal", number)
        start_all()
    wait_for(lambda: ("TidemarkProcessDown", name_of(broker)) not in firing())
    watched.wait_ready()
