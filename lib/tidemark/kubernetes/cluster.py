"""One release on Kubernetes: read whole, and changed step by step."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final
from urllib.parse import quote, urlencode

from tidemark.kubernetes.api import MERGE_PATCH, Document, KubernetesApi, KubernetesError
from tidemark.kubernetes.reading import (
    read_claims,
    read_nodes,
    read_pods,
    read_sets,
    read_volume,
)
from tidemark.model.ids import WallMs
from tidemark.plans.kubernetes.release import Pod, Release, Volume
from tidemark.plans.kubernetes.replacement import DeleteClaim, DeletePod, RetainVolume, Step

_PAGE: Final = 500
_NOT_FOUND: Final = 404
_CONFLICT: Final = 409
_TOO_MANY_REQUESTS: Final = 429


class ReleaseOnKubernetes:
    """A release of the chart by its name and namespace. All calls raise KubernetesError."""

    def __init__(self, api: KubernetesApi, namespace: str, name: str) -> None:
        self._api = api
        self.namespace = namespace
        self.name = name

    def read_sets(self) -> Release:
        """Return sets alone, for which a caller needs one right."""
        sets = read_sets(self._list("/apis/apps/v1", "statefulsets"))
        return Release(sets, [], {}, {}, {})

    def read_workloads(self) -> Release:
        """Return sets and pods alone. Fewer rights are needed than for the whole release."""
        pods = read_pods(self._list("/api/v1", "pods"))
        return Release(read_sets(self._list("/apis/apps/v1", "statefulsets")), pods, {}, {}, {})

    def read(self) -> Release:
        """Return the whole release, and the nodes of the cluster."""
        # Pods first: a claim is made before the pod that has it.
        found = self.read_workloads()
        claims = read_claims(self._list("/api/v1", "persistentvolumeclaims"))
        bound = {claim.volume for claim in claims.values()} - {""}
        volumes = {name: volume for name in bound if (volume := self._volume(name))}
        nodes = read_nodes(self._pages("/api/v1/nodes", {}))
        return Release(found.sets, found.pods, claims, volumes, nodes)

    def evict(self, pod: Pod) -> bool:
        """Evict a pod, not a later one of its name. Returns False while a PodDisruptionBudget does
        not allow it.
        """
        body: Document = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod.name, "namespace": self.namespace},
            "deleteOptions": {"preconditions": {"uid": pod.uid}},
        }
        try:
            self._api.call("POST", self._path("/api/v1", f"pods/{pod.name}/eviction"), body)
        except KubernetesError as error:
            if error.status == _TOO_MANY_REQUESTS:
                return False
            if error.status not in (_NOT_FOUND, _CONFLICT):
                raise
        return True

    def perform(self, step: Step) -> None:
        """Carry out a step of a replacement. What is done already, is done."""
        try:
            if isinstance(step, RetainVolume):
                patch: Document = {"spec": {"persistentVolumeReclaimPolicy": "Retain"}}
                path = f"/api/v1/persistentvolumes/{quote(step.volume)}"
                self._api.call("PATCH", path, patch, {"Content-Type": MERGE_PATCH})
            elif isinstance(step, DeleteClaim):
                self._delete(f"persistentvolumeclaims/{step.name}", step.uid)
            else:
                self._delete_pod(step)
        except KubernetesError as error:
            # Gone already, or another one has the name: the next look decides.
            if error.status not in (_NOT_FOUND, _CONFLICT):
                raise

    def report(
        self, set_name: str, reason: str, message: str, *, now: WallMs, is_warning: bool = True
    ) -> None:
        """Write an Event about a StatefulSet. ``reason`` is a word for programs."""
        at = datetime.fromtimestamp(now / 1_000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        body: Document = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"generateName": f"{set_name}.", "namespace": self.namespace},
            "involvedObject": {
                "apiVersion": "apps/v1",
                "kind": "StatefulSet",
                "name": set_name,
                "namespace": self.namespace,
            },
            "type": "Warning" if is_warning else "Normal",
            "reason": reason,
            "message": message[:1024],
            "source": {"component": "tidemark"},
            "firstTimestamp": at,
            "lastTimestamp": at,
            "count": 1,
        }
        self._api.call("POST", self._path("/api/v1", "events"), body)

    def _delete_pod(self, step: DeletePod) -> None:
        self._delete(f"pods/{step.name}", step.uid, **({"grace": 0} if step.at_once else {}))

    def _delete(self, what: str, uid: str, **options: int) -> None:
        body: Document = {"preconditions": {"uid": uid}}
        if "grace" in options:
            body["gracePeriodSeconds"] = options["grace"]
        self._api.call("DELETE", self._path("/api/v1", what), body)

    def _volume(self, name: str) -> Volume | None:
        try:
            return read_volume(self._api.call("GET", f"/api/v1/persistentvolumes/{quote(name)}"))
        except KubernetesError as error:
            if error.status == _NOT_FOUND:
                return None
            raise

    def _list(self, group: str, kind: str) -> list[Document]:
        selector = {"labelSelector": f"app.kubernetes.io/instance={self.name}"}
        return list(self._pages(self._path(group, kind), selector))

    def _pages(self, path: str, query: dict[str, str]) -> Iterator[Document]:
        further = ""
        while True:
            words = {**query, "limit": str(_PAGE), **({"continue": further} if further else {})}
            found = self._api.call("GET", f"{path}?{urlencode(words)}")
            yield from found["items"]
            further = found["metadata"].get("continue", "")
            if not further:
                return

    def _path(self, group: str, what: str) -> str:
        return f"{group}/namespaces/{quote(self.namespace)}/{what}"
