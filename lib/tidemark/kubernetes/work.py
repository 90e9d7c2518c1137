"""A roll and a replacement, from the first look to the end: look, plan, one step, look again."""

import ssl
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from tidemark.kubernetes.api import KubernetesApi, KubernetesError
from tidemark.kubernetes.cluster import ReleaseOnKubernetes
from tidemark.kubernetes.controllers import Controllers
from tidemark.kubernetes.rest import open_rest
from tidemark.plans.kubernetes import replacement, roll
from tidemark.plans.kubernetes.release import BROKER, CONTROLLER, ClusterCheck, Done, Release, Wait
from tidemark.plans.kubernetes.replacement import Refusal

POLL_S: Final = 1.0
_TRANSIENT: Final = (0, 409, 429)
"""Statuses that another try may change; all of 500 and above, too."""


class NoReleaseError(Exception):
    """There is no such release in the namespace."""


class OutOfTimeError(Exception):
    """The time ended first. The message is the last line of output."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Clock, pause and output of the work. ``wait`` returns False when the time is over."""

    wait: Callable[[], bool]
    say: Callable[[str], None]


class Work:
    """Work on one release."""

    def __init__(
        self,
        api: KubernetesApi,
        namespace: str,
        name: str,
        surroundings: Surroundings,
        trusted: ssl.SSLContext | None = None,
    ) -> None:
        """``trusted``: TLS of a pod for REST of the controllers; None without TLS."""
        self.on_kubernetes = ReleaseOnKubernetes(api, namespace, name)
        self._around = surroundings
        self._open_rest = partial(open_rest, api, namespace, trusted=trusted)
        self._controllers: Controllers | None = None
        self._said = ""

    def roll(self, *, again: bool) -> int:
        """Restart pods, one after another, each when nothing is at risk: those that run an older
        revision, or with ``again`` all. Return how many. Raises OutOfTimeError.
        """
        chosen = frozenset(pod.uid for pod in self._workloads().pods) if again else frozenset()
        count = 0
        while True:
            try:
                found = self._roll_once(chosen)
            except KubernetesError as error:
                found = _as_wait(error)
            if isinstance(found, Done):
                return count
            if isinstance(found, Wait):
                self._pause(found)
            else:
                count += 1

    def _roll_once(self, chosen: frozenset[str]) -> Wait | Done | None:
        """Restart one pod, and return None; or return why none is restarted."""
        release = self._workloads()
        pod = roll.next_pod(release, chosen)
        if isinstance(pod, Wait):
            return pod
        if isinstance(pod, Done):
            return roll.ended(self.controllers(release).can_restart(_some_broker(release))) or pod
        broker = pod.ordinal if pod.component == BROKER else _some_broker(release)
        problem = roll.may_restart(pod, self.controllers(release).can_restart(broker))
        if problem is not None:
            return problem
        if not self.on_kubernetes.evict(pod):
            return Wait(f"a PodDisruptionBudget does not allow the eviction of {pod.name}")
        self._say(f"restarting {pod.name}")
        return None

    def held_beyond(self, brokers: int) -> dict[int, int]:
        """Return the numbers of replicas of the brokers that fewer brokers would remove, by their
        ids, of those that have any. Raises OutOfTimeError without an answer of a controller.
        """
        while True:
            try:
                found = self._held_beyond_once(brokers)
            except KubernetesError as error:
                found = _as_wait(error)
            if not isinstance(found, Wait):
                return found
            self._pause(found)

    def _held_beyond_once(self, brokers: int) -> dict[int, int] | Wait:
        release = self.on_kubernetes.read_sets()
        prefix_of(release)
        held = {}
        for broker in release.brokers_beyond(brokers):
            count = self.controllers(release).replicas_of(broker)
            if count is None:
                return roll.NO_ANSWER
            if count:
                held[broker] = count
        return held

    def replacement_refusal(
        self, release: Release, node: str, *, confirmed: bool, accept_loss: bool
    ) -> Refusal | None:
        """Return why what a lost node had is not given up; None if it may be."""
        brokers = replacement.brokers_on(release, node)
        checks = {broker: self.controllers(release).can_replace(broker) for broker in brokers}
        return replacement.refusal(
            release, node, checks, confirmed=confirmed, accept_loss=accept_loss
        )

    def replace(self, release: Release, node: str) -> None:
        """Give up what a lost node had, and follow until every pod is ready and every replica in
        sync. Nothing refuses it. Raises OutOfTimeError.
        """
        given_up = frozenset(claim.uid for _, claim, _ in replacement.lost_on(release, node))
        while True:
            try:
                found = self._replace_once(node, given_up)
            except KubernetesError as error:
                found = _as_wait(error)
            if isinstance(found, Done):
                return
            # After a step, too: Kubernetes needs a moment to act on it.
            self._pause(found)

    def _replace_once(self, node: str, given_up: frozenset[str]) -> Wait | Done | None:
        release = self.on_kubernetes.read()
        is_dead = not release.is_node_ready(node)
        step = replacement.next_step(release, node, given_up, is_dead=is_dead)
        if isinstance(step, Wait):
            return step
        if isinstance(step, Done):
            return roll.ended(self.controllers(release).can_restart(_some_broker(release))) or step
        self._say(replacement.described(step))
        self.on_kubernetes.perform(step)
        return None

    def controllers(self, release: Release) -> Controllers:
        """Return the controllers of the release. Raises NoReleaseError, KubernetesError."""
        if self._controllers is None:
            service = f"{prefix_of(release)}-rest"
            self._controllers = Controllers(self._open_rest(service))
        return self._controllers

    def _workloads(self) -> Release:
        release = self.on_kubernetes.read_workloads()
        prefix_of(release)
        return release

    def _pause(self, found: Wait | None) -> None:
        if found is not None:
            self._say(f"waiting: {found.reason}")
        if not self._around.wait():
            raise OutOfTimeError(self._said)

    def _say(self, text: str) -> None:
        if text != self._said:
            self._around.say(text)
        self._said = text


def prefix_of(release: Release) -> str:
    """Return the name that all objects of the release begin with. Raises NoReleaseError."""
    names = [each.name for each in release.sets if each.component == CONTROLLER]
    if not names:
        raise NoReleaseError
    return names[0].removesuffix(f"-{CONTROLLER}")


def whole_check(work: Work, release: Release) -> ClusterCheck | None:
    """Return the state of the cluster; None without an answer of a controller."""
    return work.controllers(release).can_restart(_some_broker(release))


def _some_broker(release: Release) -> int:
    """Return the id of a broker that is registered, whose check shows the whole cluster."""
    return min((pod.ordinal for pod in release.pods_of(BROKER)), default=0)


def _as_wait(error: KubernetesError) -> Wait:
    """Return a failure that may pass as a reason to wait. Raises it otherwise."""
    if error.status in _TRANSIENT or error.status >= 500:
        return Wait(f"Kubernetes: {error}")
    raise error
