"""Questions to the controllers of a release by REST."""

from tidemark.kubernetes.api import Document, KubernetesError
from tidemark.kubernetes.rest import Rest
from tidemark.plans.kubernetes.release import ClusterCheck


class Controllers:
    """The controllers of a release, and their answers."""

    def __init__(self, rest: Rest) -> None:
        self._rest = rest
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
                cluster_id = self._rest.get("/v3/clusters")["data"][0]["cluster_id"]
                self._clusters = f"/v3/clusters/{cluster_id}"
            found = self._rest.get(f"{self._clusters}/brokers/{broker_id}:{action}")
            return _read(found)
        except (KubernetesError, LookupError):  # also a controller of an earlier release
            return None


def _read(found: Document) -> ClusterCheck:
    return ClusterCheck(
        brokers_fenced=tuple(found["brokers_fenced"]),
        partitions_not_whole=found["partitions_not_whole"],
        risks=tuple(
            f"{each['kind']} ({each['partitions_count']} partitions)" for each in found["risks"]
        ),
    )
