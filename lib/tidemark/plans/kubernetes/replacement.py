"""Replacement of what a lost node had on its disks: gates, and the next step. Pure.

A local volume exists on one node. When that node is lost, a pod with a claim on the volume is
pending for ever: its claim has to be deleted, so that the StatefulSet makes another one, on another
node. The broker then starts with an empty disk, joins outside of every ISR, and copies its
replicas.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from tidemark.plans.kubernetes.release import (
    BROKER,
    ZOOKEEPER,
    Claim,
    ClusterCheck,
    Done,
    Pod,
    Release,
    Volume,
    Wait,
)


class RefusalReason(StrEnum):
    """Reasons for which nothing is replaced."""

    PAUSED = "Paused"
    NODE_ALIVE = "NodeAlive"
    NODE_NOT_CONFIRMED = "NodeNotConfirmed"
    SEVERAL_NODES = "SeveralNodes"
    OTHER_REPLACEMENT = "OtherReplacement"
    NOT_LOCAL = "NotLocal"
    ZOOKEEPER_MAJORITY = "ZooKeeperMajority"
    NO_CONTROLLER = "NoController"
    BROKER_ALIVE = "BrokerAlive"
    REPLICAS_AT_RISK = "ReplicasAtRisk"


@dataclass(frozen=True, slots=True)
class Refusal:
    """Reason for which nothing is replaced, as a word for programs and as a sentence."""

    reason: RefusalReason
    message: str


@dataclass(frozen=True, slots=True)
class RetainVolume:
    """Keep the volume and its data when its claim is deleted."""

    volume: str


@dataclass(frozen=True, slots=True)
class DeleteClaim:
    """Delete this claim, not a later one of its name."""

    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class DeletePod:
    """Delete this pod, not a later one of its name. ``at_once``: its node cannot confirm."""

    name: str
    uid: str
    at_once: bool


Step = RetainVolume | DeleteClaim | DeletePod


def described(step: Step) -> str:
    """Return a line for people."""
    if isinstance(step, RetainVolume):
        return f"keeping volume {step.volume}: reclaim policy Retain"
    if isinstance(step, DeleteClaim):
        return f"deleting claim {step.name} ({step.uid})"
    return f"deleting pod {step.name} ({step.uid})"


def on_node(release: Release, node: str) -> list[tuple[Pod, Claim, Volume]]:
    """Return the claims on volumes of a node, with their pods."""
    return [
        (pod, claim, volume)
        for pod in sorted(release.pods, key=lambda pod: pod.name)
        for claim, volume in release.volumes_of(pod)
        if volume.node == node
    ]


def lost_on(release: Release, node: str) -> list[tuple[Pod, Claim, Volume]]:
    """Return the claims on volumes of a node that are not being deleted, with their pods."""
    return [each for each in on_node(release, node) if not each[1].is_deleting]


def brokers_on(release: Release, node: str) -> list[int]:
    """Return the ids of the brokers with a claim on a volume of a node."""
    pods = {pod.name: pod for pod, _, _ in on_node(release, node)}
    return sorted(pod.ordinal for pod in pods.values() if pod.component == BROKER)


def refusal(
    release: Release,
    node: str,
    checks: Mapping[int, ClusterCheck | None],
    *,
    confirmed: bool = False,
    accept_loss: bool = False,
    ours: frozenset[str] = frozenset(),
) -> Refusal | None:
    """Return why the volumes of this node are not given up; None if they may be.

    ``checks`` has a controller's answer for each broker with a volume there. ``confirmed``: an
    operator states that the node, which is not ready, does not run and will not come back.
    ``accept_loss``: partitions of which it had the only replica may start empty. ``ours`` names
    pods that this replacement has given a new claim already.
    """
    gates = (
        _paused(release, node),
        _alive(release, node),
        _several(release, node),
        _unconfirmed(release, node, confirmed=confirmed),
        _others(release, node, ours),
        _volumes(release, node),
        _zookeeper(release, node),
        _replicas(checks, accept_loss=accept_loss),
    )
    return next((found for gate in gates for found in gate), None)


def _paused(release: Release, node: str) -> Iterator[Refusal]:
    affected = {pod.component for pod, _, _ in on_node(release, node)}
    for each in release.sets:
        if each.is_paused and each.component in affected:
            yield Refusal(RefusalReason.PAUSED, f"{each.name} is annotated as paused")


def _alive(release: Release, node: str) -> Iterator[Refusal]:
    if release.is_node_ready(node):
        yield Refusal(RefusalReason.NODE_ALIVE, f"node {node} is ready")


def _several(release: Release, node: str) -> Iterator[Refusal]:
    others = [name for name in release.lost_nodes() if name != node]
    if others:
        yield Refusal(
            RefusalReason.SEVERAL_NODES,
            f"{', '.join(sorted([node, *others]))} are lost or not ready: several nodes at once"
            " are an outage of the cluster, after which most of them come back",
        )


def _unconfirmed(release: Release, node: str, *, confirmed: bool) -> Iterator[Refusal]:
    if not confirmed and not release.is_node_dead(node):
        yield Refusal(
            RefusalReason.NODE_NOT_CONFIRMED,
            f"node {node} is not ready, but it may still run: delete the Node, give it the taint"
            " node.kubernetes.io/out-of-service, or confirm that it does not run",
        )


def _others(release: Release, node: str, ours: frozenset[str]) -> Iterator[Refusal]:
    affected = {pod.name for pod, _, _ in on_node(release, node)} | ours
    for pod in release.pods_of(BROKER):
        if pod.name not in affected and not pod.serves:
            yield Refusal(
                RefusalReason.OTHER_REPLACEMENT,
                f"{pod.name} is not ready either: it may be in replacement or in restart",
            )
    for each in release.sets:
        if each.component == BROKER and _count(release, BROKER) < each.replicas:
            yield Refusal(RefusalReason.OTHER_REPLACEMENT, f"{each.name} lacks a pod")


def _volumes(release: Release, node: str) -> Iterator[Refusal]:
    for _, _, volume in on_node(release, node):
        if not volume.is_local:
            yield Refusal(
                RefusalReason.NOT_LOCAL, f"volume {volume.name} is not local: attach it elsewhere"
            )


def _zookeeper(release: Release, node: str) -> Iterator[Refusal]:
    if not any(pod.component == ZOOKEEPER for pod, _, _ in on_node(release, node)):
        return
    wanted = next(each.replicas for each in release.sets if each.component == ZOOKEEPER)
    serving = sum(pod.serves for pod in release.pods_of(ZOOKEEPER) if pod.node != node)
    if serving <= wanted // 2:
        yield Refusal(
            RefusalReason.ZOOKEEPER_MAJORITY,
            f"only {serving} of {wanted} ZooKeeper servers are ready: the lost disk may have what"
            " the others do not have",
        )


def _replicas(checks: Mapping[int, ClusterCheck | None], *, accept_loss: bool) -> Iterator[Refusal]:
    for broker, check in checks.items():
        if check is None:
            yield Refusal(RefusalReason.NO_CONTROLLER, "no controller answers")
            continue
        if broker not in check.brokers_fenced:
            yield Refusal(RefusalReason.BROKER_ALIVE, f"broker {broker} is alive")
        if check.risks and not accept_loss:
            yield Refusal(
                RefusalReason.REPLICAS_AT_RISK,
                f"replicas of broker {broker}: {'; '.join(check.risks)}",
            )


def next_step(
    release: Release, node: str, before: frozenset[str], *, is_dead: bool
) -> Step | Wait | Done:
    """Return the next step, once nothing refuses the replacement. Every step may be repeated.

    ``before`` has the uids of the claims that were given up. ``is_dead``: the node does not run, so
    that pods which it still has are deleted without its confirmation.
    """
    for step in (*_claim_steps(release, node, before), *_pod_steps(release, node, is_dead=is_dead)):
        return step
    for pod in sorted(release.pods, key=lambda pod: pod.name):
        if not pod.serves:
            return Wait(f"{pod.name} is not ready{f': {pod.problem}' if pod.problem else ''}")
    missing = [
        each.name for each in release.sets if _count(release, each.component) < each.replicas
    ]
    return Wait(f"{missing[0]} lacks a pod") if missing else Done()


def _count(release: Release, component: str) -> int:
    return len(release.pods_of(component))


def _claim_steps(release: Release, node: str, before: frozenset[str]) -> Iterator[Step]:
    for _, claim, volume in lost_on(release, node):
        if claim.uid in before:
            if not volume.is_retained:
                yield RetainVolume(volume.name)
            yield DeleteClaim(claim.name, claim.uid)


def _pod_steps(release: Release, node: str, *, is_dead: bool) -> Iterator[Step]:
    """Yield pods that hold a claim that is being deleted, that lack one, or that are on the node.

    A StatefulSet may make a pod again before the old claim is gone: it keeps the old one.
    """
    for pod in sorted(release.pods, key=lambda pod: pod.name):
        claims = [release.claims.get(name) for name in pod.claims]
        stale = any(claim is None or claim.is_deleting for claim in claims)
        if pod.node == node and is_dead:
            yield DeletePod(pod.name, pod.uid, at_once=True)
        elif stale and not pod.serves and not pod.is_deleting:
            yield DeletePod(pod.name, pod.uid, at_once=False)
