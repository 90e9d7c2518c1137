"""Questions to the controllers of a release by REST: in a pod through their Service, elsewhere
through the API server.
"""

import urllib.request
from typing import Final

from tidemark.kubernetes.api import Document, KubernetesApi, KubernetesError, fetch
from tidemark.plans.kubernetes.release import ClusterCheck

_PORT: Final = 8080


class Controllers:
    """REST of the controllers of a release. ``service`` is the name of their Service."""

    def __init__(self, api: KubernetesApi, namespace: str, service: str) -> None:
        self._api = api
        self._namespace = namespace
        self._service = service
        self._clusters = ""

    def can_restart(self, broker_id: int) -> ClusterCheck | None:
        """Return the state of the cluster, and the risks of a restart of a broker; None without an
        answer.
        """
        return self._check(broker_id, "can-restart")

    def can_replace(self, broker_id: int) -> ClusterCheck | None:
        """Return the state of the cluster, and the risks of an empty disk for a broker; None
        without an answer.
        """
        return self._check(broker_id, "can-replace")

    def _check(self, broker_id: int, action: str) -> ClusterCheck | None:
        try:
            if not self._clusters:
                cluster_id = self._get("/v3/clusters")["data"][0]["cluster_id"]
                self._clusters = f"/v3/clusters/{cluster_id}"
            found = self._get(f"{self._clusters}/brokers/{broker_id}:{action}")
            return _read(found)
        except (KubernetesError, LookupError):  # also a controller of an earlier release
            return None

    def _get(self, path: str) -> Document:
        host = f"{self._service}.{self._namespace}.svc"
        if self._api.is_inside:
            return fetch(urllib.request.Request(f"http://{host}:{_PORT}{path}"))
        service = f"/api/v1/namespaces/{self._namespace}/services/{self._service}:{_PORT}/proxy"
        return self._api.call("GET", service + path, None, {"Host": host})


def _read(found: Document) -> ClusterCheck:
    return ClusterCheck(
        brokers_fenced=tuple(found["brokers_fenced"]),
        partitions_not_whole=found["partitions_not_whole"],
        risks=tuple(
            f"{each['kind']} ({each['partitions_count']} partitions)" for each in found["risks"]
        ),
    )
