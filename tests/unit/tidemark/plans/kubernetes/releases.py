"""A release of three brokers on three nodes, for tests of plans."""

from dataclasses import replace
from typing import Any

from tidemark.plans.kubernetes.release import Claim, Node, Pod, PodSet, Release, Volume

NEW, OLD = "new", "old"
_SIZES = {
    "zookeeper": 3,
    "txn-coordinator": 2,
    "share-coordinator": 2,
    "broker": 3,
    "controller": 2,
}
_WITH_DISKS = ("zookeeper", "broker")


def release(**changed: dict[str, Any]) -> Release:
    """Everything is ready. ``changed`` has fields of pods, nodes and sets, by their names with
    underscores: ``broker_1={"is_ready": False}``, ``node_2={}`` or ``broker={"is_paused": True}``.
    """
    sets = [PodSet(kind, kind, size, NEW) for kind, size in _SIZES.items()]
    pods = [_pod(kind, number) for kind, size in _SIZES.items() for number in range(size)]
    stored = [(kind, number) for kind in _WITH_DISKS for number in range(3)]
    claims = [Claim(f"data-{k}-{n}", f"uid-{k}-{n}", f"pv-{k}-{n}") for k, n in stored]
    volumes = [Volume(f"pv-{k}-{n}", f"node-{n}") for k, n in stored]
    nodes = [Node(f"node-{number}") for number in range(4)]

    def new(one: Any) -> Any:
        return replace(one, **changed.get(one.name.replace("-", "_"), {}))

    return Release(
        [new(each) for each in sets],
        [new(pod) for pod in pods],
        {claim.name: new(claim) for claim in claims},
        {volume.name: new(volume) for volume in volumes},
        {node.name: new(node) for node in nodes},
    )


def without(found: Release, *, pod: str = "", node: str = "", claim: str = "") -> Release:
    """The release without one of its parts."""
    return replace(
        found,
        pods=[each for each in found.pods if each.name != pod],
        nodes={name: each for name, each in found.nodes.items() if name != node},
        claims={name: each for name, each in found.claims.items() if name != claim},
    )


def _pod(kind: str, number: int) -> Pod:
    claims = (f"data-{kind}-{number}",) if kind in _WITH_DISKS else ()
    return Pod(f"{kind}-{number}", f"uid-{kind}-{number}", kind, NEW, f"node-{number}", claims)
