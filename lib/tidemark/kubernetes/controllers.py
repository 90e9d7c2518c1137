"""Questions to the controllers of a release by REST."""

from typing import Final

from tidemark.kubernetes.api import Document, KubernetesError
from tidemark.kubernetes.rest import Rest
from tidemark.plans.kubernetes.release import ClusterCheck

_NOT_FOUND: Final = 404


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

    def replicas_of(self, broker_id: int) -> int | None:
        """Return how many replicas a broker has, those that are being moved to it too: 0 if it is
        not registered; None without an answer.
        """
        try:
            cluster = self._cluster()
            path = f"{cluster}/brokers/{broker_id}/partition-replicas?page_size=1"
            return int(self._rest.get(path)["total"])
        except KubernetesError as error:
            # Without a controller there was no answer to the question for the cluster before.
            return 0 if self._clusters and error.status == _NOT_FOUND else None
        except (LookupError, TypeError, ValueError):
            return None

    def _check(self, broker_id: int, action: str) -> ClusterCheck | None:
        try:
            return _read(self._rest.get(f"{self._cluster()}/brokers/{broker_id}:{action}"))
        except (KubernetesError, LookupError):  # also a controller of an earlier release
            return None

    def _cluster(self) -> str:
        """Return the path of the cluster. Raises KubernetesError, LookupError."""
        if not self._clusters:
            cluster_id = self._rest.get("/v3/clusters")["data"][0]["cluster_id"]
            self._clusters = f"/v3/clusters/{cluster_id}"
        return self._clusters


def _read(found: Document) -> ClusterCheck:
    return ClusterCheck(
        brokers_fenced=tuple(found["brokers_fenced"]),
        partitions_not_whole=found["partitions_not_whole"],
        risks=tuple(
            f"{each['kind']} ({each['partitions_count']} partitions)" for each in found["risks"]
        ),
    )
