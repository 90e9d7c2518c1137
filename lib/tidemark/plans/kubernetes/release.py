"""A release of the chart as Kubernetes has it: sets, pods, claims, volumes and nodes. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

BROKER: Final = "broker"
CONTROLLER: Final = "controller"
ZOOKEEPER: Final = "zookeeper"
COMPONENTS: Final = (ZOOKEEPER, "txn-coordinator", "share-coordinator", BROKER, CONTROLLER)
"""Components of a release, in the order in which they are restarted."""
PAUSED: Final = "tidemark/replacement-paused"
"""Annotation of a StatefulSet. While it is ``true``, no disk of its pods is replaced."""


@dataclass(frozen=True, slots=True)
class PodSet:
    """StatefulSet. ``revision`` is the newest one; ``is_observed`` is False while Kubernetes has
    not looked at the latest change of the set.
    """

    name: str
    component: str
    replicas: int
    revision: str
    is_observed: bool = True
    is_on_delete: bool = True
    is_paused: bool = False


@dataclass(frozen=True, slots=True)
class Pod:
    """Pod of a set. ``node`` is '' before it is scheduled, ``problem`` why it is not."""

    name: str
    uid: str
    component: str
    revision: str
    node: str = ""
    claims: tuple[str, ...] = ()
    is_ready: bool = True
    is_deleting: bool = False
    problem: str = ""

    @property
    def ordinal(self) -> int:
        """Number of the pod in its set; of a broker, its id."""
        return int(self.name.rpartition("-")[2])

    @property
    def serves(self) -> bool:
        """True if the pod is ready and is not being ended."""
        return self.is_ready and not self.is_deleting


@dataclass(frozen=True, slots=True)
class Claim:
    """PersistentVolumeClaim. ``volume`` is '' until it is bound."""

    name: str
    uid: str
    volume: str = ""
    is_deleting: bool = False


@dataclass(frozen=True, slots=True)
class Volume:
    """PersistentVolume. ``node`` is the only node that has it, '' if it is not bound to one."""

    name: str
    node: str
    is_local: bool = True
    is_retained: bool = True


@dataclass(frozen=True, slots=True)
class Node:
    """Node. ``is_out_of_service``: an operator has confirmed by the taint
    ``node.kubernetes.io/out-of-service`` that it does not run.
    """

    name: str
    is_ready: bool = True
    is_out_of_service: bool = False


@dataclass(frozen=True, slots=True)
class Release:
    """Everything of one release, and all nodes of the cluster."""

    sets: Sequence[PodSet]
    pods: Sequence[Pod]
    claims: Mapping[str, Claim]
    volumes: Mapping[str, Volume]
    nodes: Mapping[str, Node]

    def pods_of(self, component: str) -> list[Pod]:
        """Return the pods of a component, that with the highest ordinal first."""
        found = [pod for pod in self.pods if pod.component == component]
        return sorted(found, key=lambda pod: -pod.ordinal)

    def brokers_beyond(self, replicas: int) -> range:
        """Return the ids of the brokers that are there, and that fewer replicas would remove."""
        now = max((each.replicas for each in self.sets if each.component == BROKER), default=0)
        return range(replicas, now)

    def volumes_of(self, pod: Pod) -> Iterator[tuple[Claim, Volume]]:
        """Yield the claims of a pod that are bound, with their volumes."""
        for name in pod.claims:
            claim = self.claims.get(name)
            if claim is not None and claim.volume in self.volumes:
                yield claim, self.volumes[claim.volume]

    def lost_nodes(self) -> list[str]:
        """Return the nodes with volumes of this release that are gone or not ready. A volume counts
        while its pod is being made again, too.
        """
        used = {volume.node for pod in self.pods for _, volume in self.volumes_of(pod)}
        wanted = [f"-{each.name}-{number}" for each in self.sets for number in range(each.replicas)]
        used |= {
            self.volumes[claim.volume].node
            for claim in self.claims.values()
            if claim.volume in self.volumes and claim.name.endswith(tuple(wanted))
        }
        return sorted(name for name in used - {""} if not self.is_node_ready(name))

    def is_node_ready(self, name: str) -> bool:
        """True if a node exists and is ready."""
        node = self.nodes.get(name)
        return node is not None and node.is_ready and not node.is_out_of_service

    def is_node_dead(self, name: str) -> bool:
        """True if a node was deleted, or an operator has confirmed that it does not run."""
        node = self.nodes.get(name)
        return node is None or node.is_out_of_service


@dataclass(frozen=True, slots=True)
class ClusterCheck:
    """Answer of a controller about one broker: whole cluster, and risks of the asked action."""

    brokers_fenced: tuple[int, ...] = ()
    partitions_not_whole: int = 0
    risks: tuple[str, ...] = ()

    def problem(self) -> str:
        """Return what is not whole; '' if every broker is alive and every replica in sync."""
        if self.brokers_fenced:
            return f"broker {', '.join(map(str, self.brokers_fenced))} is not alive"
        if self.partitions_not_whole:
            return f"{self.partitions_not_whole} partitions are not fully replicated"
        return ""


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing is done now, for this reason."""

    reason: str


@dataclass(frozen=True, slots=True)
class Done:
    """Nothing is left to do."""
