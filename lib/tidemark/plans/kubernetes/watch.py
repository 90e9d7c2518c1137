"""Watch over lost nodes: replacement of what they had on their disks without an operator. Pure.

A node is replaced when it has been lost for a time, when its Node was deleted or is tainted as out
of service, and when no gate of ``replacement`` refuses it. A node that is only not ready may still
run: the watch refuses it, and waits for an operator.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tidemark.model.ids import InstantMs
from tidemark.plans.kubernetes.release import BROKER, ClusterCheck, Done, Pod, Release, Wait
from tidemark.plans.kubernetes.replacement import (
    DeletePod,
    Refusal,
    RefusalReason,
    Step,
    brokers_on,
    next_step,
    on_node,
    refusal,
)
from tidemark.plans.kubernetes.roll import ended

REPEAT_MS: Final = 600_000
"""Interval at which a refusal is reported again. Kubernetes keeps Events for an hour."""
BEGUN: Final = "ReplacingNode"
ENDED: Final = "NodeReplaced"

Check = Callable[[int], ClusterCheck | None]
"""Answer of the active controller about one broker; None if it has none."""


@dataclass(frozen=True, slots=True)
class Report:
    """Event to write. ``reason`` is a word for programs."""

    reason: str
    message: str
    is_refusal: bool = False


@dataclass(frozen=True, slots=True)
class _UnderWay:
    """Replacement that was begun: node, uids of the claims and names of the pods that it has."""

    node: str
    claims: frozenset[str]
    pods: frozenset[str]


class Watch:
    """Watch of one active controller over one release."""

    def __init__(self, *, wait_ms: int) -> None:
        """``wait_ms``: time for which a node has to be found lost before it is replaced."""
        self._wait_ms = wait_ms
        self._since: dict[str, InstantMs] = {}
        self._under_way: _UnderWay | None = None
        self._refused: Refusal | None = None
        self._reported_at = InstantMs(0)

    @property
    def lost(self) -> frozenset[str]:
        """Nodes with volumes of the release that were gone or not ready at the latest look."""
        return frozenset(self._since)

    def look(self, release: Release, check: Check, now: InstantMs) -> list[Report | Step]:
        """Return what follows from a look at the release: reports, and at most one step, after
        which Kubernetes has to be looked at again.
        """
        self._since = {name: self._since.get(name, now) for name in release.lost_nodes()}
        due = [
            name
            for name, since in self._since.items()
            if now - since >= self._wait_ms and on_node(release, name)
        ]
        if self._under_way is not None:
            return self._continue(self._under_way, release, check, due, now)
        if due:
            return self._begin(release, due[0], check, now)
        self._refused = None
        return list(_unbound(release))

    def _begin(
        self, release: Release, node: str, check: Check, now: InstantMs
    ) -> list[Report | Step]:
        refused = refusal(release, node, _checks(release, node, check))
        if refused is not None:
            return self._refuse(refused, now)
        there = on_node(release, node)
        self._under_way = _UnderWay(
            node,
            claims=frozenset(claim.uid for _, claim, _ in there),
            pods=frozenset(pod.name for pod, _, _ in there),
        )
        self._refused = None
        names = ", ".join(sorted(self._under_way.pods))
        begun = Report(BEGUN, f"node {node} is lost: {names} get empty disks on other nodes")
        return [begun, *self._continue(self._under_way, release, check, [], now)]

    def _continue(
        self, work: _UnderWay, release: Release, check: Check, due: list[str], now: InstantMs
    ) -> list[Report | Step]:
        is_dead = release.is_node_dead(work.node)
        found = next_step(release, work.node, work.claims, is_dead=is_dead)
        if isinstance(found, Done):
            found = ended(check(_some_broker(release))) or found
        if isinstance(found, Done):
            self._under_way = self._refused = None
            return [Report(ENDED, f"what node {work.node} had is replaced, every replica in sync")]
        if isinstance(found, Wait):
            return self._refuse_others(work, due, now)
        if not isinstance(found, DeletePod):
            checks = _checks(release, work.node, check)
            refused = refusal(release, work.node, checks, ours=work.pods)
            if refused is not None:
                self._under_way = None
                return self._refuse(refused, now)
        return [found]

    def _refuse_others(
        self, work: _UnderWay, due: list[str], now: InstantMs
    ) -> list[Report | Step]:
        others = [name for name in due if name != work.node]
        if not others:
            return []
        words = f"{', '.join(others)} is not replaced while node {work.node} is being replaced"
        return self._refuse(Refusal(RefusalReason.OTHER_REPLACEMENT, words), now)

    def _refuse(self, refused: Refusal, now: InstantMs) -> list[Report | Step]:
        """Report a refusal when it is new, and from time to time."""
        if refused == self._refused and now - self._reported_at < REPEAT_MS:
            return []
        self._refused, self._reported_at = refused, now
        message = f"nothing is replaced: {refused.message}"
        return [Report(str(refused.reason), message, is_refusal=True)]


def _checks(release: Release, node: str, check: Check) -> dict[int, ClusterCheck | None]:
    return {broker: check(broker) for broker in brokers_on(release, node)}


def _some_broker(release: Release) -> int:
    return min((pod.ordinal for pod in release.pods_of(BROKER)), default=0)


def _unbound(release: Release) -> list[Step]:
    """Return the deletion of a pod that is on no node and lacks a claim: that of a controller which
    ended before it deleted the pod. Old releases of Kubernetes make the claim only with the pod.
    """
    for pod in release.pods:
        if not pod.node and not pod.is_deleting and _lacks_claim(release, pod):
            return [DeletePod(pod.name, pod.uid, at_once=False)]
    return []


def _lacks_claim(release: Release, pod: Pod) -> bool:
    return any(name not in release.claims for name in pod.claims)
