"""Replacement of what lost nodes had, by the active controller, in a release of the Helm chart.

``tidemark.plans.kubernetes.watch`` decides. This module reads Kubernetes, performs one step at a
time, and writes an Event and counts for each refusal and each step.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from tidemark.kubernetes.api import KubernetesError, PodApi, is_in_pod
from tidemark.kubernetes.cluster import ReleaseOnKubernetes
from tidemark.kubernetes.work import NoReleaseError, prefix_of
from tidemark.model.ids import BrokerId
from tidemark.plans.kubernetes.release import BROKER, ClusterCheck, Release
from tidemark.plans.kubernetes.replacement import DeleteClaim, RetainVolume, Step, described
from tidemark.plans.kubernetes.watch import Check, Report, Watch
from tidemark.runtime.clock import Clock
from tidemark.runtime.exit_codes import ExitCode
from tidemark.runtime.metrics import Metrics
from tidemark.runtime.service import ServiceError
from tidemark.runtime.telemetry import fields

from controller.admin.restart import replacement_check
from controller.config import ControllerConfig
from controller.shell.node import ControllerNode

log = logging.getLogger(__name__)

LOOK_S: Final = 10.0
"""Pause between two looks."""
STEP_S: Final = 1.0
"""Pause after a step, within which Kubernetes begins to act on it."""

Duty = Callable[[], Awaitable[None]]


def duties(
    config: ControllerConfig, node: ControllerNode, clock: Clock, metrics: Metrics
) -> dict[str, Duty]:
    """Return the watch over lost nodes if it is switched on. Raises ServiceError outside of a pod
    with a service account.
    """
    if not config.kubernetes_release:
        return {}
    if not is_in_pod():
        words = "kubernetes.release is set, but this process has no service account of Kubernetes"
        raise ServiceError(words, ExitCode.CONFIG)
    release = ReleaseOnKubernetes(PodApi(), config.kubernetes_namespace, config.kubernetes_release)
    limits = Limits(config.kubernetes_node_lost_ms, config.zookeeper_session_timeout_ms)
    watch = LostNodes(
        release, node.active, partial(check, node), clock=clock, metrics=metrics, limits=limits
    )
    return {"lost-nodes": watch.run}


def check(node: ControllerNode, broker_id: int) -> ClusterCheck | None:
    """Return the risks of an empty disk for a broker, from the state of the active controller."""
    image = node.image
    if image is None or BrokerId(broker_id) not in image.brokers:
        return None
    found = replacement_check(image, broker_id)
    return ClusterCheck(
        brokers_fenced=tuple(found.brokers_fenced),
        partitions_not_whole=found.partitions_not_whole,
        risks=tuple(f"{each.kind} ({each.partitions_count} partitions)" for each in found.risks),
    )


@dataclass(frozen=True, slots=True)
class Limits:
    """Time that a node has to be lost, and the age up to which a look is acted on."""

    lost_ms: int
    look_age_ms: int


class WatchMetrics:
    """Measurements of the watch over lost nodes."""

    def __init__(self, metrics: Metrics, lost: Callable[[], int]) -> None:
        """``lost``: number of lost nodes at present."""
        prefix = "tidemark_controller_node_replacement"
        self.refusals = metrics.counter(
            f"{prefix}_refusals", "reported refusals to replace what a lost node had", ("reason",)
        )
        self.steps = metrics.counter(
            f"{prefix}_steps", "steps of replacements of what lost nodes had", ("step",)
        )
        self.failures = metrics.counter(
            f"{prefix}_failures", "requests of the watch over lost nodes that Kubernetes refused"
        ).at()
        metrics.computed_one(
            "tidemark_controller_lost_nodes",
            lambda: float(lost()),
            "nodes with volumes of the release that are gone or not ready; 0 on a standby",
        )


class LostNodes:
    """Watch over one release, as long as this controller is active."""

    def __init__(
        self,
        release: ReleaseOnKubernetes,
        active: asyncio.Event,
        check: Check,
        *,
        clock: Clock,
        metrics: Metrics,
        limits: Limits,
    ) -> None:
        """``active`` is set while this controller is active, ``check`` has its answers then."""
        self._release = release
        self._active = active
        self._check = check
        self._clock = clock
        self._limits = limits
        self._watch = Watch(wait_ms=limits.lost_ms)
        self._measured = WatchMetrics(metrics, lambda: len(self._watch.lost))

    async def run(self) -> None:
        """Look again and again while this controller is active, until cancelled."""
        while True:
            await self._active.wait()
            self._watch = Watch(wait_ms=self._limits.lost_ms)
            while self._active.is_set():
                stepped = await self._look()
                await asyncio.sleep(STEP_S if stepped else LOOK_S)
            self._watch = Watch(wait_ms=self._limits.lost_ms)

    async def _look(self) -> bool:
        """Look once; return True if a step was performed."""
        looked_at = self._clock.boot_ms()
        try:
            release = await asyncio.to_thread(self._release.read)
            set_name = f"{prefix_of(release)}-{BROKER}"
            return await self._act(release, set_name, looked_at)
        except NoReleaseError:
            log.warning("no such release", extra=fields(release=self._release.name))
        except KubernetesError as error:
            self._measured.failures.value += 1
            log.warning("Kubernetes refused a request", extra=fields(reason=str(error)))
        return False

    async def _act(self, release: Release, set_name: str, looked_at: int) -> bool:
        stepped = False
        for effect in self._watch.look(release, self._check, self._clock.now_ms()):
            if isinstance(effect, Report):
                if effect.is_refusal:
                    self._measured.refusals.at(effect.reason).value += 1
                await self._report(set_name, effect)
            elif self._may_act(looked_at):
                await asyncio.to_thread(self._release.perform, effect)
                self._measured.steps.at(_kind(effect)).value += 1
                await self._report(set_name, Report(_kind(effect), described(effect)))
                stepped = True
        return stepped

    def _may_act(self, looked_at: int) -> bool:
        """True while this controller is active, and no other one can be for long: a process that
        was stopped for longer than a session does not act on what it saw before.
        """
        is_fresh = self._clock.boot_ms() - looked_at <= self._limits.look_age_ms
        return is_fresh and self._active.is_set()

    async def _report(self, set_name: str, report: Report) -> None:
        level = logging.WARNING if report.is_refusal else logging.INFO
        log.log(level, "node replacement", extra=fields(reason=report.reason, text=report.message))
        try:
            await asyncio.to_thread(
                self._release.report,
                set_name,
                report.reason,
                report.message,
                now=self._clock.wall_ms(),
                is_warning=report.is_refusal,
            )
        except KubernetesError as error:
            self._measured.failures.value += 1
            log.warning("no Event written", extra=fields(reason=str(error)))


def _kind(step: Step) -> str:
    if isinstance(step, RetainVolume):
        return "VolumeRetained"
    return "ClaimDeleted" if isinstance(step, DeleteClaim) else "PodDeleted"
