"""Documents of the Kubernetes API as the types of plans. The only module that has their fields."""

from collections.abc import Iterable
from typing import Any, Final

from tidemark.plans.kubernetes.release import (
    COMPONENTS,
    PAUSED,
    Claim,
    Node,
    Pod,
    PodSet,
    Volume,
)

Document = dict[str, Any]
COMPONENT: Final = "app.kubernetes.io/component"
REVISION: Final = "controller-revision-hash"
_HOST: Final = "kubernetes.io/hostname"
_OUT_OF_SERVICE: Final = "node.kubernetes.io/out-of-service"
_MESSAGE_CHARS_MAX: Final = 300


def read_sets(items: Iterable[Document]) -> list[PodSet]:
    """Return the StatefulSets of known components."""
    return [_set(item) for item in items if _component(item) in COMPONENTS]


def _set(item: Document) -> PodSet:
    meta, spec, status = item["metadata"], item["spec"], item.get("status", {})
    return PodSet(
        name=meta["name"],
        component=_component(item),
        replicas=spec.get("replicas", 1),
        revision=status.get("updateRevision", ""),
        is_observed=status.get("observedGeneration", 0) >= meta.get("generation", 0),
        is_on_delete=spec.get("updateStrategy", {}).get("type") == "OnDelete",
        is_paused=(meta.get("annotations") or {}).get(PAUSED) == "true",
    )


def read_pods(items: Iterable[Document]) -> list[Pod]:
    """Return the pods of StatefulSets of known components."""
    return [
        _pod(item)
        for item in items
        if _component(item) in COMPONENTS and REVISION in item["metadata"]["labels"]
    ]


def _pod(item: Document) -> Pod:
    meta, spec = item["metadata"], item["spec"]
    conditions = {each["type"]: each for each in item.get("status", {}).get("conditions", ())}
    scheduled = conditions.get("PodScheduled", {})
    is_scheduled = scheduled.get("status") != "False"
    return Pod(
        name=meta["name"],
        uid=meta["uid"],
        component=_component(item),
        revision=meta["labels"][REVISION],
        node=spec.get("nodeName", ""),
        claims=tuple(
            volume["persistentVolumeClaim"]["claimName"]
            for volume in spec.get("volumes", ())
            if "persistentVolumeClaim" in volume
        ),
        is_ready=conditions.get("Ready", {}).get("status") == "True",
        is_deleting="deletionTimestamp" in meta,
        problem="" if is_scheduled else scheduled.get("message", "")[:_MESSAGE_CHARS_MAX],
    )


def _component(item: Document) -> str:
    return str((item["metadata"].get("labels") or {}).get(COMPONENT, ""))


def read_claims(items: Iterable[Document]) -> dict[str, Claim]:
    """Return claims by their names."""
    found = [
        Claim(
            name=item["metadata"]["name"],
            uid=item["metadata"]["uid"],
            volume=item["spec"].get("volumeName", ""),
            is_deleting="deletionTimestamp" in item["metadata"],
        )
        for item in items
    ]
    return {claim.name: claim for claim in found}


def read_volume(item: Document) -> Volume:
    """Return a volume, with the node that its affinity names."""
    spec = item["spec"]
    terms = spec.get("nodeAffinity", {}).get("required", {}).get("nodeSelectorTerms", ())
    hosts = [
        value
        for term in terms
        for rule in term.get("matchExpressions", ())
        if rule["key"] == _HOST and rule["operator"] == "In"
        for value in rule["values"]
    ]
    return Volume(
        name=item["metadata"]["name"],
        node=hosts[0] if len(hosts) == 1 else "",
        is_local="local" in spec,
        is_retained=spec.get("persistentVolumeReclaimPolicy") == "Retain",
    )


def read_nodes(items: Iterable[Document]) -> dict[str, Node]:
    """Return nodes by their host names, which volumes refer to."""
    return {_host(item): _node(item) for item in items}


def _host(item: Document) -> str:
    meta = item["metadata"]
    return str((meta.get("labels") or {}).get(_HOST, meta["name"]))


def _node(item: Document) -> Node:
    conditions = item.get("status", {}).get("conditions", ())
    return Node(
        name=item["metadata"]["name"],
        is_ready=any(each["type"] == "Ready" and each["status"] == "True" for each in conditions),
        is_out_of_service=any(
            taint["key"] == _OUT_OF_SERVICE for taint in item["spec"].get("taints") or ()
        ),
    )
