"""An API server in memory with one release: lists, evictions, deletions; REST behind a proxy."""

from typing import Any
from urllib.parse import urlsplit

from tidemark.kubernetes.api import Document, KubernetesApi, KubernetesError, Request

NAMESPACE = "/api/v1/namespaces/log"
CLUSTERS = "/v3/clusters"
WHOLE: Document = {"brokers_fenced": [], "partitions_not_whole": 0, "risks": []}


class MemoryApi(KubernetesApi):
    """``answers`` has what REST says of brokers; an exception is raised."""

    is_inside = False

    def __init__(self) -> None:
        self.sets = [manifest("demo-controller", "controller"), manifest("demo-broker", "broker")]
        self.pods = {name: pod(name) for name in ("demo-controller-0", "demo-broker-0")}
        self.answer: Document | KubernetesError = WHOLE
        self.replicas: dict[int, int] = {}
        """Replicas of the brokers that are registered, by their ids."""
        self.budget: list[int] = []
        """Statuses that the next evictions are refused with."""
        self.done: list[str] = []
        self.claims: dict[str, Document] = {}
        self.volumes: dict[str, Document] = {}

    def lose_node(self) -> None:
        """The broker's node is gone, with its only volume; the pod is pending."""
        self.pods["demo-controller-0"]["spec"]["nodeName"] = "node-2"
        pending = self.pods["demo-broker-0"] = pod("demo-broker-0", revision="new")
        claimed = {"persistentVolumeClaim": {"claimName": "disk0"}}
        pending["spec"] = {"volumes": [{"name": "disk0", **claimed}]}
        pending["status"] = {"conditions": [{"type": "PodScheduled", "status": "False"}]}
        meta = {"name": "disk0", "uid": "7"}
        self.claims["disk0"] = {"metadata": meta, "spec": {"volumeName": "pv-1"}}
        rule = {"key": "kubernetes.io/hostname", "operator": "In", "values": ["node-1"]}
        terms = {"nodeSelectorTerms": [{"matchExpressions": [rule]}]}
        spec = {"local": {"path": "/a"}, "nodeAffinity": {"required": terms}}
        self.volumes["pv-1"] = {"metadata": {"name": "pv-1"}, "spec": spec}

    def send(self, request: Request) -> Document:
        method, body = request.method, request.body
        where = urlsplit(request.path).path
        if "/proxy/" in where:
            return self._rest(where.partition("/proxy")[2])
        if method == "GET":
            kind = where.rpartition("/")[2]
            if kind in self.volumes:
                return self.volumes[kind]
            items = {
                "pods": list(self.pods.values()),
                "statefulsets": self.sets,
                "persistentvolumeclaims": list(self.claims.values()),
            }
            return {"items": items.get(kind, []), "metadata": {}}
        if where.endswith("/eviction") and self.budget:
            raise KubernetesError(self.budget.pop(), "", "refused")
        self.done.append(f"{method} {where.removeprefix(NAMESPACE)} {body}")
        self._delete(method, where.rpartition("/")[2])
        if method == "PATCH" and body is not None and self.volumes:
            self.volumes[where.rpartition("/")[2]]["spec"].update(body["spec"])
        if where.endswith("/eviction"):
            name = where.split("/")[-2]
            self.pods[name] = pod(name, revision="new", uid=f"{name}-{len(self.done)}")
        return {}

    def _delete(self, method: str, name: str) -> None:
        """Delete a claim at once. A pod is made again, on another node, and is ready."""
        if method == "DELETE" and name in self.claims:
            del self.claims[name]
        elif method == "DELETE" and name in self.pods:
            self.pods[name] = pod(name, revision="new", uid=f"{name}-{len(self.done)}")
            self.pods[name]["spec"]["nodeName"] = "node-2"

    def _rest(self, path: str) -> Document:
        if isinstance(self.answer, KubernetesError):
            raise self.answer
        if path.endswith("/partition-replicas"):
            broker = int(path.split("/")[-2])
            if broker not in self.replicas:
                raise KubernetesError(404, "", "there is no broker")
            return {"data": [], "total": self.replicas[broker]}
        return {"data": [{"cluster_id": "c"}]} if path == CLUSTERS else self.answer


def manifest(name: str, component: str) -> Document:
    """A StatefulSet of one pod."""
    return {
        "metadata": {"name": name, "labels": _labels(component), "generation": 2},
        "spec": {"replicas": 1, "updateStrategy": {"type": "OnDelete"}},
        "status": {"updateRevision": "new", "observedGeneration": 2},
    }


def pod(name: str, *, revision: str = "old", uid: str = "1") -> Document:
    """A pod that is ready."""
    component = name.removeprefix("demo-").rpartition("-")[0]
    labels = {**_labels(component), "controller-revision-hash": revision}
    return {
        "metadata": {"name": name, "uid": uid, "labels": labels},
        "spec": {"nodeName": "node-1"},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    }


def _labels(component: str) -> dict[str, Any]:
    return {"app.kubernetes.io/component": component}
